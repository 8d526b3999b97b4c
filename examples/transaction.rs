//! An order and the record of its answer, committed in one transaction: whenever the process dies,
//! there are both or neither, and no retry orders twice.
//!
//! `cargo run -p onlyonce-examples --example transaction` uses a SQLite file of its own; another
//! database is named by its URL: `-- postgres://…`, `-- mysql://…` or `-- sqlite:shop.db`.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::post;
use onlyonce::sqlx::{MySqlPool, PgPool, SqlitePool};
use onlyonce::store::{Completed, Renewed};
use onlyonce::stores::sql::{MySqlStore, PostgresStore, SqliteStore};
use onlyonce::{Engine, Execution, IdempotencyLayer, Response};
use tower::ServiceExt;

/// A shop in one of the databases. It is the same for each of them; but each has transactions of a
/// type of its own.
macro_rules! shop {
    ($database:ident, $store:ty, $pool:ty, $value:literal) => {
        mod $database {
            use super::*;

            #[derive(Clone)]
            struct Shop {
                store: Arc<$store>,
                pool: $pool,
            }

            async fn order(
                State(Shop { store, pool }): State<Shop>,
                execution: Execution,
                item: String,
            ) -> Result<(StatusCode, String), NotNow> {
                let lease = execution.lease().ok_or("it runs without protection")?;
                let answer = format!("ordered: {item}");

                let mut tx = pool.begin().await?;
                // First of all: as long as the transaction lasts, nobody takes the claim over.
                let Renewed::Kept = store.lock_in(&mut tx, lease).await? else {
                    return Err("another process has taken over".into());
                };
                sqlx::query(concat!("INSERT INTO orders VALUES (", $value, ")"))
                    .bind(&item)
                    .execute(&mut *tx)
                    .await?;
                trip_over("glass", &item)?;
                let response = Arc::new(Response {
                    took: execution.took(), // operators see it with the record
                    ..Response::new(StatusCode::CREATED, answer.clone())
                });
                let stored = store.complete_in(&mut tx, lease, &response, lease.keep_for);
                let Completed::Stored(_) = stored.await? else {
                    return Err("another process has taken over".into());
                };
                tx.commit().await?;

                trip_over("vase", &item)?;
                Ok((StatusCode::CREATED, answer))
            }

            async fn count(State(shop): State<Shop>) -> Result<String, NotNow> {
                let count = sqlx::query_scalar("SELECT COUNT(*) FROM orders");
                let count: i64 = count.fetch_one(&shop.pool).await?;
                Ok(count.to_string())
            }

            pub(super) async fn open(url: &str) -> Result<Router, Box<dyn Error>> {
                let store = Arc::new(<$store>::open(url).await?);
                let pool = <$pool>::connect(url).await?;
                sqlx::query("CREATE TABLE IF NOT EXISTS orders (item VARCHAR(50))")
                    .execute(&pool)
                    .await?;
                let engine = Engine::open(store.clone()).await?;
                Ok(Router::new()
                    .route("/orders", post(order).get(count))
                    .layer(IdempotencyLayer::new(engine))
                    .with_state(Shop { store, pool }))
            }
        }
    };
}

shop!(sqlite, SqliteStore, SqlitePool, "?");
shop!(mysql, MySqlStore, MySqlPool, "?");
shop!(postgres, PostgresStore, PgPool, "$1");

/// Drops the first of what breaks: a glass before the commit, a vase after it.
fn trip_over(fragile: &str, item: &str) -> Result<(), NotNow> {
    static TRIPPED: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
    let which = usize::from(fragile == "vase");
    if item == fragile && !TRIPPED[which].swap(true, Ordering::Relaxed) {
        return Err(format!("tripped over a {fragile}").into());
    }
    Ok(())
}

/// A 503, which is not stored: the same key may be tried again.
struct NotNow(Box<dyn Error + Send + Sync>);

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for NotNow {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for NotNow {
    fn into_response(self) -> HttpResponse {
        (StatusCode::SERVICE_UNAVAILABLE, self.0.to_string()).into_response()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let own = format!("sqlite:{}/shop.db", folder.path().display());
    let url = std::env::args().nth(1).unwrap_or(own);
    let shop = match url.split(':').next() {
        Some("postgres") => postgres::open(&url).await?,
        Some("mysql") => mysql::open(&url).await?,
        _ => sqlite::open(&url).await?,
    };

    // A plain order; one that fails before the commit, and so has left nothing behind; one that
    // fails after it, and is answered by what was committed.
    for item in ["book", "glass", "vase"] {
        for attempt in ["order", "retry"] {
            let request = Request::post("/orders")
                .header("Idempotency-Key", format!("{item}-for-ada-0b9e1c526d0f"))
                .body(Body::from(item))?;
            println!("{attempt} {item}: {}", send(&shop, request).await?);
        }
    }
    let count = Request::get("/orders").body(Body::empty())?;
    println!("orders: {}", send(&shop, count).await?);
    Ok(())
}

async fn send(shop: &Router, request: Request<Body>) -> Result<String, Box<dyn Error>> {
    let (parts, body) = shop.clone().oneshot(request).await?.into_parts();
    let body = String::from_utf8(to_bytes(body, 64 << 10).await?.into())?;
    let replayed = match parts.headers.contains_key("idempotent-replayed") {
        true => " (replayed)",
        false => "",
    };
    Ok(format!("{}{replayed} {body}", parts.status))
}

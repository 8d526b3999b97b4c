//! axum-idempotent in front of the trivial handler. Its answers live in sessions, and its sessions in
//! memory; a request without a session is not covered, so `/session` begins one.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::post;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use ruts::store::Ttl;
use ruts::store::moka::MokaStore;
use ruts::{CookieOptions, Session, SessionLayer};
use tower_cookies::CookieManagerLayer;

static RUNS: AtomicU64 = AtomicU64::new(0);

#[tokio::main]
async fn main() {
    let store = Arc::new(MokaStore::builder().build());
    let options = IdempotentOptions::default()
        .use_idempotency_key_header(Some("Idempotency-Key"), false)
        .expire_after(86_400);
    let cookie = CookieOptions::build()
        .name("session")
        .max_age(86_400)
        .path("/");
    let app = Router::new()
        .route("/payments", post(pay))
        .route("/slow", post(slow))
        .route("/session", post(begin))
        .layer(IdempotentLayer::<MokaStore>::new(options))
        .layer(SessionLayer::new(store).with_cookie_options(cookie))
        .layer(CookieManagerLayer::new());
    let address = format!("127.0.0.1:{}", variable("PORT"));
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    axum::serve(listener, app).await.unwrap();
}

async fn pay(_: Bytes) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "application/json")],
        format!("\"{}\"", "r".repeat(198)),
    )
}

async fn slow(_: Bytes) -> impl IntoResponse {
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let mut file = std::fs::File::options()
        .append(true)
        .open(variable("RUNS"))
        .unwrap();
    file.write_all(b".").unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    (
        [(CONTENT_TYPE, "application/json")],
        format!("{{\"run\":{run}}}"),
    )
}

async fn begin(session: Session<MokaStore>, _: Bytes) -> &'static str {
    session
        .set("user", &1_u8, Ttl::new(86_400).unwrap(), None)
        .await
        .unwrap();
    "begun"
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

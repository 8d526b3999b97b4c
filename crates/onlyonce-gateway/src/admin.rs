//! The operators' side: health, records, what happens now. On loopback it trusts whoever reaches
//! it; anywhere else it asks for a bearer token.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use onlyonce_core::{Engine, Operate};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use self::problem::Problem;
use crate::observe::Observers;

mod events;
mod extract;
mod metrics;
mod openapi;
mod problem;
mod records;
mod top;
mod view;

pub use self::events::EventLine;
pub(crate) use self::events::Events;
pub use self::records::{RecordsPage, StatsView};
pub(crate) use self::top::HotKeys;
pub use self::top::{HotKey, TopView};
pub use self::view::{RecordView, ResponseView};

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Admin {
    engine: Engine,
    observers: Observers,
    sizes: Arc<metrics::Sizes>,
    /// The digest of the token, so that comparing takes the same time whatever was sent.
    token: Option<[u8; 32]>,
}

impl Admin {
    pub(crate) fn new(engine: Engine, observers: Observers, token: Option<&str>) -> Self {
        Self {
            engine,
            observers,
            sizes: Arc::default(),
            token: token.map(digest),
        }
    }

    /// The routes of the admin address.
    pub(crate) fn router(self) -> Router {
        let guarded = Router::new()
            .route("/api/v1/records", get(records::list))
            .route("/api/v1/records/find", post(records::find))
            .route(
                "/api/v1/records/{slot}",
                get(records::show).delete(records::forget),
            )
            .route("/api/v1/records/{slot}/extend", post(records::extend))
            .route("/api/v1/records/{slot}/resolve", post(records::resolve))
            .route("/api/v1/stats", get(records::stats))
            .route("/api/v1/sweep", post(records::sweep))
            .route("/api/v1/events", get(events::stream))
            .route("/api/v1/top", get(top::top))
            .route("/metrics", get(metrics::page))
            .route_layer(middleware::from_fn_with_state(self.clone(), guard));
        Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .route("/api/v1/openapi.json", get(openapi::document))
            .merge(guarded)
            .fallback(async || {
                Problem::not_found("there is nothing at this path; see /api/v1/openapi.json")
            })
            .method_not_allowed_fallback(async || {
                let why = "this path does not take this method; see /api/v1/openapi.json";
                Problem::new(StatusCode::METHOD_NOT_ALLOWED, why)
            })
            .with_state(self)
    }

    fn operate(&self) -> Result<&dyn Operate, Problem> {
        self.engine.store().operate().ok_or_else(|| {
            Problem::new(
                StatusCode::NOT_IMPLEMENTED,
                "this store has no operators' side",
            )
        })
    }
}

/// Lets through whoever has the token, where one is asked for.
async fn guard(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    let Some(token) = &admin.token else {
        return next.run(request).await;
    };
    let sent = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .map(digest);
    if sent.is_some_and(|sent| bool::from(sent.ct_eq(token))) {
        return next.run(request).await;
    }
    let why = "send the admin token as `Authorization: Bearer …`";
    let mut response = Problem::new(StatusCode::UNAUTHORIZED, why).into_response();
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Ready means that the store answers, and that its slot secret is still ours: else keyed requests
/// are refused.
async fn ready(State(admin): State<Admin>) -> Response {
    if !admin.engine.agrees() {
        let why = "another slot secret is in force in the store, so keyed requests are refused: \
                   restart this gateway to use it";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    }
    match admin.engine.store().operate() {
        None => "ready\n".into_response(),
        Some(operate) => match operate.ping().await {
            Ok(()) => "ready\n".into_response(),
            Err(error) => Problem::from(error).into_response(),
        },
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.trim().as_bytes()).into()
}

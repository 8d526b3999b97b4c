//! The operators' side: health, records, what happens now. On loopback it trusts whoever reaches
//! it, except for web pages; anywhere else it asks for a bearer token.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::StatusCode;
use onlyonce_core::{Engine, Operate};
use onlyonce_observe::{Observed, Observers};

use self::guard::Guard;
use self::problem::Problem;
use crate::audit::Trail;
use crate::config::Config;

mod audit;
mod events;
mod extract;
mod guard;
mod metrics;
mod openapi;
mod problem;
mod records;
mod serve;
mod top;
mod view;

pub use self::audit::{AuditPage, PurgedView};
pub use self::records::{RecordsPage, StatsView};
pub(crate) use self::serve::{AdminPatience, serve};
pub use self::top::TopView;
pub use self::view::{HeaderView, RecordView, ResponseView};

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Admin {
    engine: Engine,
    observers: Observers,
    sizes: Arc<metrics::Sizes>,
    /// Where entries are kept, if they are.
    trail: Option<Arc<Trail>>,
    guard: Guard,
}

impl Admin {
    /// The operators' side of a gateway that listens for them on `bound`.
    pub(crate) fn new(
        observed: Observed,
        config: &Config,
        bound: SocketAddr,
        token: Option<&str>,
    ) -> Self {
        Self {
            engine: observed.engine,
            sizes: Arc::default(),
            trail: observed.observers.trail().map(Arc::new),
            observers: observed.observers,
            guard: Guard::new(bound, config.admin_hosts.as_deref(), token),
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
            .route("/api/v1/audit", get(audit::tail))
            .route("/api/v1/audit/purge", post(audit::purge))
            .route("/metrics", get(metrics::page))
            .route_layer(middleware::from_fn_with_state(
                self.clone(),
                guard::with_token,
            ));
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
            .layer(middleware::from_fn_with_state(
                self.clone(),
                guard::admitted,
            ))
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

//! The operators' side: health, records, what happens now. On loopback it trusts whoever reaches
//! it, except for web pages; anywhere else it asks for a bearer token.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::StatusCode;
use onlyonce_core::{Engine, Operate};
use onlyonce_observe::{Observed, Observers};
use onlyonce_tower::observe::Observing;

use self::guard::Guard;
pub(crate) use self::health::Shown;
use self::now::History;
use self::problem::Problem;
pub(crate) use self::resolved::resolved;
use crate::audit::Trail;
use crate::settings::{AdminToken, Settings};
use crate::upstream::Healths;

mod audit;
mod callers;
mod console;
mod doubt;
mod events;
mod extract;
mod guard;
mod headers;
mod health;
mod metrics;
mod now;
mod observed;
mod openapi;
mod operator;
mod problem;
mod records;
mod resolved;
mod serve;
mod top;
mod tries;
mod upstreams;
mod view;

pub use self::audit::{AuditPage, PurgedView};
pub use self::callers::CallersView;
pub use self::doubt::{SettledView, UnsettledView};
pub use self::health::{
    HealthView, RouteView, SecretView, SettingView, SettingsView, StoreHealthView, WarningView,
};
pub use self::now::{NowView, SampleView, StoreOperationView, TotalsView};
pub use self::observed::{ExampleView, ObservedReport, ObservedRouteView, ObservedView, SeenView};
pub use self::records::{RecordsPage, StatsView};
pub(crate) use self::serve::serve;
pub use self::top::TopView;
pub use self::upstreams::{FailureView, UpstreamView, UpstreamsView};
pub use self::view::{HeaderView, RecordView, ResponseView, StepView};

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Admin {
    engine: Engine,
    observers: Observers,
    sizes: Arc<metrics::Sizes>,
    /// Where entries are kept, if they are.
    trail: Option<Arc<Trail>>,
    guard: Guard,
    /// The upstreams, where there are some.
    healths: Option<Healths>,
    /// Whether it is ready only while its upstreams can be reached.
    needs_upstreams: bool,
    history: Arc<History>,
    /// What was seen where nothing is enforced.
    observing: Observing,
    /// Whether some request meets a contract that holds, so that it needs the store.
    enforces: Arc<AtomicBool>,
    /// For what it knows of the store's breaker.
    observed: Observed,
    shown: Shown,
}

impl Admin {
    /// The operators' side of a gateway that listens for them on `bound`.
    pub(crate) fn new(
        observed: Observed,
        settings: &Settings,
        bound: SocketAddr,
        shown: Shown,
    ) -> Self {
        let operators = &settings.operators;
        let token = settings.credentials.admin_token.as_ref();
        let history = History::start(&observed.engine, observed.observers.metrics());
        Self {
            history,
            engine: observed.engine.clone(),
            sizes: Arc::default(),
            trail: observed.observers.trail().map(Arc::new),
            observers: observed.observers.clone(),
            guard: Guard::new(
                bound,
                operators.hosts.as_deref(),
                token.map(AdminToken::expose),
            ),
            healths: None,
            needs_upstreams: operators.needs_upstreams,
            observing: Observing::new(),
            enforces: Arc::new(AtomicBool::new(true)),
            observed,
            shown,
        }
    }

    /// The same of a gateway that counts here what it sees, and says whether it enforces anything.
    pub(crate) fn observing(mut self, observing: &Observing, enforces: &Arc<AtomicBool>) -> Self {
        self.observing = observing.clone();
        self.enforces = Arc::clone(enforces);
        self
    }

    /// The same of a gateway in front of these upstreams.
    pub(crate) fn in_front_of(mut self, healths: Healths) -> Self {
        self.history.watch(&healths);
        self.healths = Some(healths);
        self
    }

    /// The routes of the admin address.
    pub(crate) fn router(self) -> Router {
        let guarded = Router::new()
            .route("/api/v1/records", get(records::list))
            .route("/api/v1/records/find", post(records::find))
            .route("/api/v1/records/in-doubt", get(doubt::list))
            .route("/api/v1/records/settle", post(doubt::settle_many))
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
            .route("/api/v1/now", get(now::now))
            .route("/api/v1/callers", get(callers::callers))
            .route("/api/v1/upstreams", get(upstreams::list))
            .route("/api/v1/observed", get(observed::observed))
            .route("/api/v1/health", get(health::health))
            .route("/api/v1/audit", get(audit::tail))
            .route("/api/v1/audit/purge", post(audit::purge))
            .route("/metrics", get(metrics::page))
            .route_layer(middleware::from_fn_with_state(
                self.clone(),
                guard::with_token,
            ));
        let api = Router::new()
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
            .layer(middleware::from_fn(guard::as_json));
        api.merge(console::router(&self))
            .layer(middleware::from_fn_with_state(
                self.clone(),
                guard::admitted,
            ))
            .layer(middleware::map_response(headers::complete))
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

fn unavailable(why: String) -> Option<Problem> {
    Some(Problem::new(StatusCode::SERVICE_UNAVAILABLE, why))
}

/// Who sent a request, as far as the connection says.
#[derive(Clone, Copy)]
pub(super) struct Peer(IpAddr);

/// Ready means that the store answers, and that its slot secret is still ours: else keyed requests
/// are refused. Neither matters where everything is only observed. If the settings say so, also that
/// every upstream can be connected to.
async fn ready(State(admin): State<Admin>) -> Response {
    match admin.not_ready().await {
        None => "ready\n".into_response(),
        Some(problem) => problem.into_response(),
    }
}

impl Admin {
    async fn not_ready(&self) -> Option<Problem> {
        if let Some(problem) = self.store_not_ready().await {
            return Some(problem);
        }
        let healths = self.healths.as_ref().filter(|_| self.needs_upstreams)?;
        let unreachable = healths.unreachable().await;
        if unreachable.is_empty() {
            return None;
        }
        let names = unreachable.join(", ");
        unavailable(format!("no connection can be made to the upstream {names}"))
    }

    async fn store_not_ready(&self) -> Option<Problem> {
        if !self.enforces.load(Ordering::Relaxed) {
            return None;
        }
        if !self.engine.agrees() {
            let why = "another slot secret is in force in the store, so keyed requests are \
                       refused: restart this gateway to use it";
            return unavailable(why.to_owned());
        }
        let operate = self.engine.store().operate()?;
        operate.ping().await.err().map(Problem::from)
    }
}

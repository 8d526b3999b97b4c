//! What makes the requests of a service run once: the layer on the shared engine and, outside of it,
//! a span for each keyed request. What the layer stores is known by the span that it was made in, and
//! the span of a replay is linked to that one (D0 §9.5).

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use onlyonce::policy::HttpRules;
use onlyonce::tower::Replayed;
use onlyonce::{Engine, IdempotencyLayer, Policy};
use onlyonce_observe::traces::{Given, RequestSpan, Traces};

/// What all services share.
#[derive(Clone)]
pub(crate) struct Once {
    pub(crate) engine: Engine,
    pub(crate) traces: Option<Traces>,
}

/// The spans of one service.
#[derive(Clone)]
pub(crate) struct Spans {
    traces: Option<Traces>,
    rules: Arc<HttpRules>,
}

impl Once {
    /// The routes of `service`, each keyed request run once under `policy`.
    pub(crate) fn around<S>(&self, service: Router<S>, policy: Policy) -> Router<S>
    where
        S: Clone + Send + Sync + 'static,
    {
        let spans = self.spans(&policy);
        service
            .layer(IdempotencyLayer::new(self.engine.clone()).policy(policy))
            .layer(from_fn_with_state(spans, traced))
    }

    /// The spans of a service under `policy`; none where there are no traces.
    pub(crate) fn spans(&self, policy: &Policy) -> Spans {
        Spans {
            traces: self.traces.clone(),
            rules: Arc::new(policy.http.clone()),
        }
    }
}

impl Spans {
    fn begin(&self, request: &mut Request) -> Option<RequestSpan> {
        let traces = self.traces.as_ref()?;
        if !self.rules.is_keyed(request.method(), request.headers()) {
            return None;
        }
        let route = request.extensions().get::<MatchedPath>().cloned();
        let route = route.as_ref().map_or("*", MatchedPath::as_str);
        let method = request.method().clone();
        Some(traces.begin(&method, route, request.headers_mut()))
    }
}

/// Answers a request within its span.
pub(crate) async fn traced(
    State(spans): State<Spans>,
    mut request: Request,
    next: Next,
) -> Response {
    let span = spans.begin(&mut request);
    let response = next.run(request).await;
    if let Some(span) = span {
        let given = match response.extensions().get::<Replayed>() {
            Some(Replayed { original_trace }) => Given::Replay {
                original: original_trace.as_deref(),
            },
            None => Given::Own,
        };
        span.end(response.status(), given);
    }
    response
}

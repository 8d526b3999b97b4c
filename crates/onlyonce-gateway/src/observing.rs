//! What is seen on observed routes, counted and logged.

use std::sync::Arc;

use onlyonce_metrics::Metrics;
use onlyonce_tower::observe::{Observing, Sight, Sighting};

/// Nothing seen yet; what is seen goes to `metrics` and to the log.
pub(crate) fn counted(metrics: &Arc<Metrics>) -> Observing {
    let metrics = Arc::clone(metrics);
    Observing::telling(move |seen| {
        metrics.observed(seen.route, seen.sight.name());
        log(seen);
    })
}

/// A line of the log: what is ordinary for debugging, the rest as what became of a request.
fn log(seen: &Sighting<'_>) {
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                target: "onlyonce",
                event = "idempotency.observed",
                route = &**seen.route,
                seen = seen.sight.name(),
                idempotency_key = seen.key,
                detail = seen.detail,
            )
        };
    }
    if matches!(seen.sight, Sight::First | Sight::Unkeyed) {
        line!(debug);
    } else {
        line!(info);
    }
}

//! The lines that two of the documents' services write themselves: the broker for a duplicate (D2),
//! the sync service for a hit and for a request that comes while its original runs (D3). Keys are
//! labels, as everywhere.

use onlyonce::Reason;
use onlyonce::event::{About, Event, Subscriber};

use crate::{actor, forms, resources};

/// Writes them.
pub(crate) struct OwnLog;

/// Whose lines an operation has.
#[derive(Clone, Copy)]
enum Service {
    Broker,
    /// With what the operation is called there.
    Sync(&'static str),
}

impl Service {
    fn of(operation: &str) -> Option<Self> {
        if operation == forms::SUBMIT {
            return Some(Self::Broker);
        }
        resources::sync_operation(operation).map(Self::Sync)
    }
}

impl Subscriber for OwnLog {
    fn on_event(&self, about: &About<'_>, event: &Event) {
        let Some(service) = Service::of(&about.meta.operation) else {
            return;
        };
        let key = about.label();
        let actor = actor::view(about.meta.actor.as_deref());
        match (service, event) {
            (Service::Broker, Event::Replayed { original_at, .. }) => tracing::info!(
                target: "onlyonce_demo",
                original_submission_time = %original_at,
                "Duplicate submission detected - returning stored response for idempotency key: \
                 {key}"
            ),
            (
                Service::Sync(operation_type),
                Event::Replayed {
                    status,
                    original_at,
                    ..
                },
            ) => tracing::info!(
                target: "onlyonce_demo",
                event = "idempotency_cache_hit",
                idempotency_key = %key,
                user_id = actor["id"].as_str(),
                operation_type,
                cached_status = status,
                cached_at = %original_at,
            ),
            (
                Service::Sync(operation_type),
                Event::Refused {
                    reason: Reason::InProgress,
                    ..
                },
            ) => tracing::warn!(
                target: "onlyonce_demo",
                event = "idempotency_concurrent_request",
                idempotency_key = %key,
                user_id = actor["id"].as_str(),
                operation_type,
            ),
            _ => {}
        }
    }
}

//! Every event as a line of the log, by the names and levels that operators know (D0 §9.2). Keys
//! are a short start and a digest; bodies and tokens never come here.

use std::time::Duration;

use super::{About, Event, Subscriber};
use crate::refusal::Reason;

/// Who waits longer for a slot has found a hot key.
const CONTENTION_WAIT: Duration = Duration::from_secs(1);
/// So many waiters, and every doubling of them, are a hot key too.
const CONTENTION_WAITERS: usize = 8;

/// Writes every event to `tracing`, each with its name in the field `event`.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingSubscriber;

/// A line about an operation: its level, its name, and what else there is to say.
macro_rules! line {
    ($about:ident, $level:ident, $event:literal $(, $($more:tt)*)?) => {
        tracing::$level!(
            target: "onlyonce",
            event = concat!("idempotency.", $event),
            idempotency_key = %$about.label(),
            operation = &*$about.meta.operation,
            intake_id = $about.intake,
            actor = $about.meta.actor.as_deref(),
            trace_id = trace_id($about),
            $($($more)*)?
        )
    };
}

impl Subscriber for TracingSubscriber {
    fn on_event(&self, about: &About<'_>, event: &Event) {
        match event {
            Event::Claimed {
                attempt, waited, ..
            } => claimed(about, *attempt, *waited),
            Event::Attached { waiters } => attached(about, *waiters),
            Event::Waiting { holder } => {
                line!(about, debug, "lock.attempt", lock_holder = &**holder);
            }
            Event::Renewed => line!(about, debug, "lock.renewed"),
            Event::Ended { held } => {
                line!(about, debug, "lock.released", held_ms = millis(*held));
            }
            Event::Ran { took } => line!(about, debug, "answered", duration_ms = millis(*took)),
            Event::Stored {
                status,
                bytes,
                took,
                expires_at,
                ..
            } => line!(
                about,
                info,
                "processed",
                cached = true,
                status,
                response_size_bytes = bytes,
                duration_ms = millis(*took),
                expires_at = %expires_at,
            ),
            Event::NotKept { status } => line!(about, info, "processed", cached = false, status),
            Event::Replayed {
                original_at,
                original_trace,
                attached,
                replays,
                took,
            } => {
                line!(about, debug, "cache.lookup", result = "hit");
                line!(
                    about,
                    info,
                    "replay",
                    original_timestamp = %original_at,
                    original_trace_id = original_trace.as_deref().and_then(|it| it.get(..TRACE_ID)),
                    attached,
                    replay_count = replays + 1,
                    duration_ms = millis(*took),
                );
            }
            Event::HungUp => line!(about, info, "hung_up"),
            Event::NotRun => line!(about, info, "not_run"),
            Event::Expired {
                keep_for,
                lifetime,
                forgotten,
            } => line!(
                about,
                info,
                "key.expired",
                ttl_ms = millis(*keep_for),
                lifetime_ms = millis(*lifetime),
                reason = if *forgotten {
                    "explicit_delete"
                } else {
                    "ttl_elapsed"
                },
            ),
            Event::Refused {
                reason,
                original,
                took,
            } => refused(about, *reason, original.as_deref(), *took),
            Event::WeakKey => line!(about, warn, "key.weak"),
            Event::TookOver { holder } => {
                line!(about, warn, "lock.abandoned", lock_holder = &**holder);
            }
            Event::GaveUp { waited } => {
                line!(about, error, "lock.timeout", wait_time_ms = millis(*waited));
            }
            Event::TooLarge { bytes_max } => {
                line!(about, error, "cache.oversized", max_size_bytes = bytes_max);
            }
            Event::LeaseLost => line!(about, warn, "lock.lost"),
            Event::Overtaken => line!(about, warn, "lock.overtaken"),
            Event::Panicked => line!(about, error, "handler.panicked"),
            Event::TimedOut { after } => {
                line!(about, error, "handler.timeout", timeout_ms = millis(*after));
            }
            Event::OutcomeUnknown => line!(about, error, "outcome_unknown"),
            Event::StoreFailed { verb, kind } => {
                line!(about, error, "storage.error", storage_operation = verb.name(), error = %kind);
            }
            Event::Unprotected => line!(about, warn, "unprotected"),
            Event::Stalled => line!(about, warn, "storage.stalled"),
            Event::Abandoned => line!(about, error, "storage.abandoned"),
        }
    }
}

fn claimed(about: &About<'_>, attempt: u32, waited: Duration) {
    let wait_time_ms = millis(waited);
    line!(about, debug, "cache.lookup", result = "miss");
    line!(about, debug, "lock.attempt", attempt, wait_time_ms);
    if waited >= CONTENTION_WAIT {
        line!(about, warn, "lock.contention", wait_time_ms);
    }
}

fn attached(about: &About<'_>, queue_depth: usize) {
    line!(about, debug, "lock.attempt", queue_position = queue_depth);
    if queue_depth >= CONTENTION_WAITERS && queue_depth.is_power_of_two() {
        line!(about, warn, "lock.contention", queue_depth);
    }
}

fn refused(
    about: &About<'_>,
    reason: Reason,
    original: Option<&crate::refusal::Original>,
    took: Duration,
) {
    let duration_ms = millis(took);
    match reason {
        Reason::Mismatch | Reason::OtherCredential => line!(
            about,
            error,
            "conflict",
            conflict_type = conflict_type(reason),
            original_actor = original.and_then(|it| it.actor.as_deref()),
            original_trace_id = original
                .and_then(|it| it.trace.as_deref())
                .and_then(|it| it.get(..TRACE_ID)),
            duration_ms,
        ),
        Reason::TooManyWaiters => line!(about, warn, "lock.contention", duration_ms),
        Reason::MissingKey
        | Reason::BadKey
        | Reason::BadTtl
        | Reason::Unscoped
        | Reason::Unverified
        | Reason::RequestTooLarge
        | Reason::RequestUnreadable
        | Reason::InProgress
        | Reason::OutcomeUnknown
        | Reason::TimedOut
        | Reason::NotRun
        | Reason::NotStored
        | Reason::StoreDown
        | Reason::ShuttingDown
        | Reason::Panicked
        | Reason::ResponseTooLarge
        | Reason::TooManyRunning
        | Reason::OverQuota
        | Reason::TooManyBadRequests => {
            line!(about, info, "refused", reason = reason.name(), duration_ms);
        }
    }
}

/// How the documents call a conflict.
fn conflict_type(reason: Reason) -> &'static str {
    if reason == Reason::Mismatch {
        "payload_mismatch"
    } else {
        "key_collision"
    }
}

/// The bytes of a trace's id, before the span's.
const TRACE_ID: usize = 32;

fn trace_id<'a>(about: &About<'a>) -> Option<&'a str> {
    about.meta.trace.as_deref()?.get(..TRACE_ID)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

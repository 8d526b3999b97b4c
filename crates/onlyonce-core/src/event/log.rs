//! Every event as a line of the log, by the names, levels and fields that operators know
//! (D0 §9.2). Keys are a short start and a digest; bodies and tokens never come here.

use std::time::Duration;

use super::{About, Deed, Event, Found, Operated, Subscriber};
use crate::record::actor_parts;
use crate::refusal::{Original, Reason};

/// Who waits longer for a slot has found a hot key.
const CONTENTION_WAIT: Duration = Duration::from_secs(1);
/// So many waiters, and every doubling of them, are a hot key too.
const CONTENTION_WAITERS: usize = 8;

/// A request that waits has asked for the slot once: it waits for the attempt that has it, and asks
/// again only if that one ends without an answer.
const QUEUED_ATTEMPT: u32 = 1;

/// Writes every event to `tracing`, each with its name in the field `event`.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingSubscriber;

/// A line about an operation: its level, its name, and what else there is to say.
macro_rules! line {
    ($about:ident, $level:ident, $event:literal $(, $($more:tt)*)?) => {
        named!($about, $level, $event, operation = &*$about.meta.operation, $($($more)*)?)
    };
}

/// The same, where `operation` is something else.
macro_rules! named {
    ($about:ident, $level:ident, $event:literal, $($more:tt)*) => {
        tracing::$level!(
            target: "onlyonce",
            event = concat!("idempotency.", $event),
            idempotency_key = %$about.label(),
            intake_id = $about.intake,
            actor.type = actor($about).map(|(kind, _)| kind),
            actor.id = actor($about).map(|(_, id)| id),
            trace_id = trace_id($about),
            $($more)*
        )
    };
}

impl Subscriber for TracingSubscriber {
    /// Where replays are logged.
    fn wants_replay_numbers(&self) -> bool {
        tracing::enabled!(target: "onlyonce", tracing::Level::INFO)
    }

    fn on_event(&self, about: &About<'_>, event: &Event) {
        match event {
            Event::Claimed { attempt, asked, .. } => claimed(about, *attempt, *asked),
            Event::Attached { waiters } => {
                line!(
                    about,
                    debug,
                    "lock.attempt",
                    metadata.attemptNumber = QUEUED_ATTEMPT,
                    metadata.queuePosition = waiters
                );
            }
            Event::Waiting { holder } => line!(
                about,
                debug,
                "lock.attempt",
                metadata.attemptNumber = QUEUED_ATTEMPT,
                metadata.queuePosition = 1,
                lock_holder = &**holder,
            ),
            Event::Waited {
                waited,
                queue_depth,
                holder,
                ..
            } => waited_for(about, *waited, *queue_depth, holder),
            Event::TurnedAway {
                waited,
                queue_depth,
                holder,
            } => line!(
                about,
                warn,
                "lock.contention",
                wait_time_ms = millis(*waited),
                queue_depth,
                lock_holder = &**holder,
                metadata.message = "as many requests wait for this key as may: this one is refused",
            ),
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
                resource,
                ..
            } => line!(
                about,
                info,
                "processed",
                submission_id = resource.as_deref(),
                status,
                duration_ms = millis(*took),
                expires_at = %expires_at,
                metadata.cached = true,
                metadata.response_size_bytes = bytes,
            ),
            Event::NotKept { status } => {
                line!(about, info, "processed", status, metadata.cached = false);
            }
            Event::Replayed { asked, .. } => line!(
                about,
                debug,
                "cache.lookup",
                result = "hit",
                storage_duration_ms = asked.map_or(0, millis),
            ),
            Event::ReplayCounted {
                number,
                at,
                status,
                original_at,
                original_trace,
                attached,
                resource,
                took,
            } => line!(
                about,
                info,
                "replay",
                submission_id = resource.as_deref(),
                replayed_at = %at,
                cached_status = status,
                original_timestamp = %original_at,
                original_trace_id = original_trace.as_deref().and_then(|it| it.get(..TRACE_ID)),
                attached,
                replay_count = number,
                duration_ms = millis(*took),
            ),
            Event::HungUp => line!(about, info, "hung_up"),
            Event::NotRun => line!(about, info, "not_run"),
            Event::Expired {
                keep_for,
                lifetime,
                forgotten,
                replays,
                resource,
            } => line!(
                about,
                info,
                "key.expired",
                submission_id = resource.as_deref(),
                ttl_ms = millis(*keep_for),
                lifetime_ms = millis(*lifetime),
                replay_count = replays,
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
            Event::TookOver { holder, age } => line!(
                about,
                warn,
                "lock.abandoned",
                lock_age_ms = millis(*age),
                lock_holder = &**holder,
                metadata.message = "the claim was taken over: its holder may have crashed",
            ),
            Event::GaveUp { waited, timeout } => line!(
                about,
                error,
                "lock.timeout",
                wait_time_ms = millis(*waited),
                timeout_ms = millis(*timeout),
                metadata.message = "the wait for the original request timed out",
            ),
            Event::TooLarge { bytes, bytes_max } => line!(
                about,
                error,
                "cache.oversized",
                response_size_bytes = bytes,
                max_size_bytes = bytes_max,
                metadata.message = "the response is too large to store: a retry is told that it ran, \
                                    without the response",
            ),
            Event::LeaseLost => line!(about, warn, "lock.lost"),
            Event::Overtaken => line!(about, warn, "lock.overtaken"),
            Event::Panicked => line!(about, error, "handler.panicked"),
            Event::TimedOut { after } => {
                line!(about, error, "handler.timeout", timeout_ms = millis(*after));
            }
            Event::OutcomeUnknown => line!(about, error, "outcome_unknown"),
            Event::Reconciled {
                found: Found::CannotTell,
                attempt,
                took,
                in_background,
            } => line!(
                about,
                warn,
                "reconciled",
                found = Found::CannotTell.name(),
                attempt,
                took_ms = millis(*took),
                in_background,
                metadata.message = "it cannot be told whether an earlier attempt happened: nothing \
                                    is run, and it is asked again",
            ),
            Event::Reconciled {
                found: found @ (Found::Happened | Found::DidNot),
                attempt,
                took,
                in_background,
            } => line!(
                about,
                info,
                "reconciled",
                found = found.name(),
                attempt,
                took_ms = millis(*took),
                in_background,
            ),
            Event::StoreFailed {
                verb,
                kind,
                backend,
                attempt,
                cause,
                server,
            } => named!(
                about,
                error,
                "storage.error",
                operation = verb.name(),
                request_operation = &*about.meta.operation,
                backend,
                error = %kind,
                error_message = &**cause,
                retry_attempt = attempt,
                metadata.host = server.as_deref().map(|server| &*server.host),
                metadata.port = server.as_deref().map(|server| server.port),
            ),
            Event::Unprotected => line!(about, warn, "unprotected"),
            Event::Stalled => line!(about, warn, "storage.stalled"),
            Event::Abandoned => line!(about, error, "storage.abandoned"),
            Event::Operated(operated) => self::operated(about, operated),
        }
    }
}

fn claimed(about: &About<'_>, attempt: u32, asked: Duration) {
    line!(
        about,
        debug,
        "cache.lookup",
        result = "miss",
        storage_duration_ms = millis(asked),
    );
    line!(
        about,
        debug,
        "lock.attempt",
        metadata.attemptNumber = attempt,
        metadata.queuePosition = 0,
    );
}

/// A warning, so that it is written at the default level: it is rare, and changes what retries get.
fn operated(about: &About<'_>, operated: &Operated) {
    if let Some(count) = operated.deed.at_large() {
        tracing::warn!(
            target: "onlyonce",
            event = "idempotency.operator",
            action = operated.deed.name(),
            operator = operated.by.as_deref(),
            reason = operated.reason.as_deref(),
            via = operated.via,
            count,
            "an operator removed what was kept"
        );
        return;
    }
    let (status, longer) = match operated.deed {
        Deed::Resolved { status, keep_for } => (Some(status), Some(keep_for)),
        Deed::Extended { by } => (None, Some(by)),
        Deed::Forgot | Deed::Discarded | Deed::Read | Deed::Swept { .. } | Deed::Purged { .. } => {
            (None, None)
        }
    };
    let message = match operated.deed {
        Deed::Read => "an operator read the body of this answer",
        Deed::Resolved { .. }
        | Deed::Extended { .. }
        | Deed::Forgot
        | Deed::Discarded
        | Deed::Swept { .. }
        | Deed::Purged { .. } => "an operator changed this record",
    };
    line!(
        about,
        warn,
        "operator",
        action = operated.deed.name(),
        operator = operated.by.as_deref(),
        reason = operated.reason.as_deref(),
        via = operated.via,
        status,
        keep_ms = longer.map(millis),
        metadata.message = message,
    );
}

fn waited_for(about: &About<'_>, waited: Duration, queue_depth: usize, holder: &str) {
    let is_crowded = queue_depth >= CONTENTION_WAITERS && queue_depth.is_power_of_two();
    if waited >= CONTENTION_WAIT || is_crowded {
        line!(
            about,
            warn,
            "lock.contention",
            wait_time_ms = millis(waited),
            queue_depth,
            lock_holder = holder,
            metadata.message = "many requests wait for one key, or wait long: a hot key",
        );
    }
}

fn refused(about: &About<'_>, reason: Reason, original: Option<&Original>, took: Duration) {
    let duration_ms = millis(took);
    match reason {
        Reason::Mismatch | Reason::OtherCredential => {
            conflict(about, reason, original, duration_ms);
        }
        Reason::MissingKey
        | Reason::BadKey
        | Reason::KeyOutOfTime
        | Reason::BadTtl
        | Reason::Unscoped
        | Reason::Unverified
        | Reason::RequestTooLarge
        | Reason::RequestUnreadable
        | Reason::RequestEncoded
        | Reason::InProgress
        | Reason::TooManyWaiters
        | Reason::OutcomeUnknown
        | Reason::TimedOut
        | Reason::NotRun
        | Reason::NotStored
        | Reason::StoreDown
        | Reason::ShuttingDown
        | Reason::Panicked
        | Reason::ResponseTooLarge
        | Reason::TooManyRunning
        | Reason::TooMuchBuffered
        | Reason::OverQuota
        | Reason::TooManyBadRequests => {
            line!(about, info, "refused", reason = reason.name(), duration_ms);
        }
    }
}

fn conflict(about: &About<'_>, reason: Reason, original: Option<&Original>, duration_ms: u64) {
    let actor = original.and_then(|it| it.actor.as_deref()).map(actor_parts);
    line!(
        about,
        error,
        "conflict",
        conflict_type = conflict_type(reason),
        original_actor.type = actor.map(|(kind, _)| kind),
        original_actor.id = actor.map(|(_, id)| id),
        original_trace_id = original
            .and_then(|it| it.trace.as_deref())
            .and_then(|it| it.get(..TRACE_ID)),
        duration_ms,
        metadata.original_hash = original.map(|it| tracing::field::display(it.fingerprint)),
        metadata.current_hash = about.fingerprint.map(tracing::field::display),
        metadata.original_timestamp = original
            .and_then(|it| it.at)
            .map(tracing::field::display),
    );
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

/// The type and the id of whoever asked.
fn actor<'a>(about: &About<'a>) -> Option<(&'a str, &'a str)> {
    about.meta.actor.as_deref().map(actor_parts)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

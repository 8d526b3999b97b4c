//! What an event says, as members of a JSON object.

use std::time::Duration;

use onlyonce_core::{Deed, Event, Operated};
use serde_json::{Map, Value, json};

/// What `event` says beyond its name. No key, token or body is in an event.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not named here has nothing to say beyond its name"
)]
pub(super) fn of(event: &Event) -> Map<String, Value> {
    let fields = match event {
        Event::Claimed {
            attempt,
            waited,
            asked,
            keep_for,
        } => json!({
            "attempt": attempt,
            "waited_ms": millis(*waited),
            "store_ms": millis(*asked),
            "keep_ms": millis(*keep_for),
        }),
        Event::TookOver { holder, age } => json!({"holder": holder, "age_ms": millis(*age)}),
        Event::Waiting { holder } => json!({"holder": holder}),
        Event::TurnedAway {
            waited,
            queue_depth,
            holder,
        } => json!({
            "waited_ms": millis(*waited),
            "queue_depth": queue_depth,
            "holder": holder,
        }),
        Event::Attached { waiters } => json!({"waiters": waiters}),
        Event::Waited {
            waited,
            queue_depth,
            holder,
            claimed,
        } => json!({
            "waited_ms": millis(*waited),
            "queue_depth": queue_depth,
            "holder": holder,
            "claimed": claimed,
        }),
        Event::GaveUp { waited, timeout } => {
            json!({"waited_ms": millis(*waited), "timeout_ms": millis(*timeout)})
        }
        Event::Stored {
            status,
            bytes,
            took,
            expires_at,
            keep_for,
            resource,
        } => json!({
            "status": status,
            "bytes": bytes,
            "took_ms": millis(*took),
            "expires_at": expires_at.to_rfc3339(),
            "keep_ms": millis(*keep_for),
            "resource": resource,
        }),
        Event::TooLarge { bytes, bytes_max } => json!({"bytes": bytes, "bytes_max": bytes_max}),
        Event::NotKept { status } => json!({"status": status}),
        Event::Ended { held } => json!({"held_ms": millis(*held)}),
        Event::Ran { took } => json!({"took_ms": millis(*took)}),
        Event::Replayed {
            status,
            original_at,
            original_trace,
            attached,
            resource,
            asked,
            took,
        } => json!({
            "status": status,
            "asked_ms": asked.map(millis),
            "original_at": original_at.to_rfc3339(),
            "original_trace": original_trace,
            "attached": attached,
            "resource": resource,
            "took_ms": millis(*took),
        }),
        Event::ReplayCounted { number, at, .. } => {
            json!({"number": number, "replayed_at": at.to_rfc3339()})
        }
        Event::Refused { reason, took, .. } => {
            json!({"reason": reason.name(), "took_ms": millis(*took)})
        }
        Event::Expired {
            keep_for,
            lifetime,
            forgotten,
            replays,
            resource,
        } => json!({
            "keep_ms": millis(*keep_for),
            "lifetime_ms": millis(*lifetime),
            "forgotten": forgotten,
            "replays": replays,
            "resource": resource,
        }),
        Event::TimedOut { after } => json!({"timeout_ms": millis(*after)}),
        Event::StoreFailed {
            verb,
            kind,
            backend,
            attempt,
            cause,
            server,
        } => json!({
            "verb": verb.name(),
            "kind": kind.to_string(),
            "backend": backend,
            "attempt": attempt,
            "cause": cause,
            "host": server.as_deref().map(|server| &server.host),
            "port": server.as_deref().map(|server| server.port),
        }),
        Event::Operated(operated) => self::operated(operated),
        _ => json!({}),
    };
    match fields {
        Value::Object(fields) => fields.into_iter().filter(|(_, it)| !it.is_null()).collect(),
        _ => Map::new(),
    }
}

fn operated(operated: &Operated) -> Value {
    let (status, longer) = match operated.deed {
        Deed::Resolved { status, keep_for } => (Some(status), Some(keep_for)),
        Deed::Extended { by } => (None, Some(by)),
        Deed::Forgot | Deed::Discarded | Deed::Read | Deed::Swept { .. } | Deed::Purged { .. } => {
            (None, None)
        }
    };
    json!({
        "action": operated.deed.name(),
        "operator": operated.by,
        "reason": operated.reason,
        "via": operated.via,
        "status": status,
        "keep_ms": longer.map(millis),
        "count": operated.deed.at_large(),
    })
}

/// The fields on one line, for people.
pub(super) fn text(fields: &Map<String, Value>) -> String {
    let words = fields.iter().map(|(name, value)| format!("{name}={value}"));
    words.collect::<Vec<_>>().join(" ")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

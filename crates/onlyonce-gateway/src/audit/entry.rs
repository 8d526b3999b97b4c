//! One line of the audit trail, by the names of D0 §9.4.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::refusal::Original;
use onlyonce_core::{About, Event, Meta, Reason, Slot, Timestamp};
use serde_json::{Value, json};

/// What happened, as far as it is audited; written out later, off the request's path.
pub(super) struct Entry {
    at: Timestamp,
    slot: Slot,
    meta: Arc<Meta>,
    intake: Option<Box<str>>,
    what: What,
}

enum What {
    Created {
        attempt: u32,
        keep_for: Duration,
    },
    Replay {
        original_at: Timestamp,
        original_trace: Option<Arc<str>>,
        replays: u64,
    },
    Conflict {
        reason: Reason,
        original: Option<Box<Original>>,
    },
    Expired {
        keep_for: Duration,
        lifetime: Duration,
        forgotten: bool,
    },
    Contention {
        waited: Option<Duration>,
        waiters: Option<usize>,
        holder: Option<Arc<str>>,
    },
    OutcomeUnknown,
    Unprotected,
}

impl Entry {
    /// The entry for an event, if it is one to keep.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what is not named here is for logs and metrics"
    )]
    pub(super) fn of(
        about: &About<'_>,
        event: &Event,
        now: impl Fn() -> Timestamp,
    ) -> Option<Self> {
        let contention = |waited, waiters, holder| What::Contention {
            waited,
            waiters,
            holder,
        };
        let what = match event {
            Event::Claimed {
                attempt, keep_for, ..
            } => What::Created {
                attempt: *attempt,
                keep_for: *keep_for,
            },
            Event::Replayed {
                original_at,
                original_trace,
                replays,
                ..
            } => What::Replay {
                original_at: *original_at,
                original_trace: original_trace.clone(),
                replays: *replays,
            },
            Event::Refused {
                reason: reason @ (Reason::Mismatch | Reason::OtherCredential),
                original,
                ..
            } => What::Conflict {
                reason: *reason,
                original: original.clone(),
            },
            Event::Expired {
                keep_for,
                lifetime,
                forgotten,
            } => What::Expired {
                keep_for: *keep_for,
                lifetime: *lifetime,
                forgotten: *forgotten,
            },
            Event::Attached { waiters } => contention(None, Some(*waiters), None),
            Event::Waiting { holder } => contention(None, None, Some(Arc::clone(holder))),
            Event::GaveUp { waited } => contention(Some(*waited), None, None),
            Event::OutcomeUnknown => What::OutcomeUnknown,
            Event::Unprotected => What::Unprotected,
            _ => return None,
        };
        Some(Self {
            at: now(),
            slot: *about.slot,
            meta: Arc::clone(about.meta),
            intake: about.intake.map(Into::into),
            what,
        })
    }

    /// Writes the line, as entry `number` of this run.
    pub(super) fn write(self, run: u64, number: u64, lines: &mut String) {
        let about = About {
            slot: &self.slot,
            meta: &self.meta,
            fingerprint: None,
            intake: None,
            route: None,
        };
        let mut metadata = json!({
            "intakeId": self.intake,
            "idempotencyKey": about.label().to_string(),
            "slot": self.slot.to_string(),
            "operation": self.meta.operation,
            "traceId": self.meta.trace,
        });
        let (event, more) = self.what.told(self.at);
        if let (Value::Object(metadata), Value::Object(more)) = (&mut metadata, more) {
            metadata.extend(more);
        }
        let entry = json!({
            "eventType": event,
            "eventId": format!("evt_{run:016x}{number:08x}"),
            "timestamp": self.at.to_rfc3339(),
            "actor": self.meta.actor.as_ref().map(|id| json!({"id": id})),
            "metadata": metadata,
        });
        lines.push_str(&entry.to_string());
        lines.push('\n');
    }
}

/// Says that entries are missing here.
pub(super) fn write_gap(lost: u64, lines: &mut String) {
    let entry = json!({"eventType": "audit.gap", "actor": null, "metadata": {"lost": lost}});
    lines.push_str(&entry.to_string());
    lines.push('\n');
}

impl What {
    /// Its name, and what only it has to say.
    fn told(&self, at: Timestamp) -> (&'static str, Value) {
        match self {
            Self::Created { attempt, keep_for } => (
                "idempotency.key.created",
                json!({
                    "attempt": attempt,
                    "ttl_ms": millis(*keep_for),
                    "expiresAt": at.plus(*keep_for).to_rfc3339(),
                }),
            ),
            Self::Replay {
                original_at,
                original_trace,
                replays,
            } => (
                "idempotency.replay",
                json!({
                    "replayCount": replays + 1,
                    "originalTimestamp": original_at.to_rfc3339(),
                    "originalTraceId": original_trace,
                    "timeSinceOriginal_ms": millis(at.since(*original_at)),
                }),
            ),
            Self::Conflict { reason, original } => {
                let kind = if *reason == Reason::OtherCredential {
                    "key_collision"
                } else {
                    "payload_mismatch"
                };
                let original = original.as_deref();
                let actor = original.and_then(|it| it.actor.as_ref());
                (
                    "idempotency.conflict",
                    json!({
                        "conflictType": kind,
                        "originalActor": actor.map(|id| json!({"id": id})),
                        "originalTraceId": original.and_then(|it| it.trace.as_ref()),
                        "originalHolder": original.map(|it| &it.holder),
                    }),
                )
            }
            Self::Expired {
                keep_for,
                lifetime,
                forgotten,
            } => (
                "idempotency.key.expired",
                json!({
                    "ttl_ms": millis(*keep_for),
                    "lifetime_ms": millis(*lifetime),
                    "reason": if *forgotten { "explicit_delete" } else { "ttl_elapsed" },
                }),
            ),
            Self::Contention {
                waited,
                waiters,
                holder,
            } => (
                "idempotency.lock.contention",
                json!({
                    "waitTime_ms": waited.map(millis),
                    "queueDepth": waiters,
                    "lockHolder": holder,
                }),
            ),
            Self::OutcomeUnknown => ("idempotency.outcome_unknown", json!({})),
            Self::Unprotected => ("idempotency.unprotected", json!({})),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

//! One line of the audit trail, by the names of D0 §9.4.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::record::actor_parts;
use onlyonce_core::refusal::Original;
use onlyonce_core::{About, Event, Fingerprint, Meta, Reason, Slot, Timestamp};
use serde_json::{Value, json};

/// What happened, as far as it is audited; written out later, off the request's path.
pub(super) struct Entry {
    at: Timestamp,
    slot: Slot,
    meta: Arc<Meta>,
    intake: Option<Box<str>>,
    /// What was made, where that is known.
    resource: Option<Arc<str>>,
    what: What,
}

enum What {
    Created {
        keep_for: Duration,
        expires_at: Timestamp,
    },
    Replay {
        original_at: Timestamp,
        original_trace: Option<Arc<str>>,
        number: Option<u64>,
    },
    Conflict {
        reason: Reason,
        fingerprint: Option<Fingerprint>,
        original: Option<Box<Original>>,
    },
    Expired {
        keep_for: Duration,
        lifetime: Duration,
        forgotten: bool,
    },
    Contention {
        waited: Duration,
        queue_depth: usize,
        holder: Arc<str>,
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
        let (mut made, mut at) = (None, None);
        let what = match event {
            Event::Stored {
                keep_for,
                expires_at,
                resource,
                ..
            } => {
                made = resource.clone();
                What::Created {
                    keep_for: *keep_for,
                    expires_at: *expires_at,
                }
            }
            Event::ReplayCounted {
                number,
                at: replayed_at,
                original_at,
                original_trace,
                resource,
                ..
            } => {
                made = resource.clone();
                at = Some(*replayed_at);
                What::Replay {
                    original_at: *original_at,
                    original_trace: original_trace.clone(),
                    number: *number,
                }
            }
            Event::Refused {
                reason: reason @ (Reason::Mismatch | Reason::OtherCredential),
                original,
                ..
            } => What::Conflict {
                reason: *reason,
                fingerprint: about.fingerprint.copied(),
                original: original.clone(),
            },
            Event::Expired {
                keep_for,
                lifetime,
                forgotten,
                resource,
            } => {
                made = resource.clone();
                What::Expired {
                    keep_for: *keep_for,
                    lifetime: *lifetime,
                    forgotten: *forgotten,
                }
            }
            Event::Waited {
                waited,
                queue_depth,
                holder,
                ..
            } => What::Contention {
                waited: *waited,
                queue_depth: *queue_depth,
                holder: Arc::clone(holder),
            },
            Event::OutcomeUnknown => What::OutcomeUnknown,
            Event::Unprotected => What::Unprotected,
            _ => return None,
        };
        Some(Self {
            at: at.unwrap_or_else(now),
            slot: *about.slot,
            meta: Arc::clone(about.meta),
            intake: about.intake.map(Into::into),
            resource: made,
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
            "submissionId": self.resource,
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
            "actor": self.meta.actor.as_deref().map(actor),
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
            Self::Created {
                keep_for,
                expires_at,
            } => (
                "idempotency.key.created",
                json!({
                    "ttl_ms": millis(*keep_for),
                    "expiresAt": expires_at.to_rfc3339(),
                }),
            ),
            Self::Replay {
                original_at,
                original_trace,
                number,
            } => (
                "idempotency.replay",
                json!({
                    "replayCount": number,
                    "originalTimestamp": original_at.to_rfc3339(),
                    "originalTraceId": original_trace,
                    "timeSinceOriginal_ms": millis(at.since(*original_at)),
                }),
            ),
            Self::Conflict {
                reason,
                fingerprint,
                original,
            } => {
                let kind = if *reason == Reason::OtherCredential {
                    "key_collision"
                } else {
                    "payload_mismatch"
                };
                let original = original.as_deref();
                (
                    "idempotency.conflict",
                    json!({
                        "conflictType": kind,
                        "originalRequestHash": original.map(|it| it.fingerprint.to_string()),
                        "conflictingRequestHash": fingerprint.map(|it| it.to_string()),
                        "originalTimestamp": original
                            .and_then(|it| it.at)
                            .map(Timestamp::to_rfc3339),
                        "originalActor": original
                            .and_then(|it| it.actor.as_deref())
                            .map(actor),
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
                queue_depth,
                holder,
            } => (
                "idempotency.lock.contention",
                json!({
                    "waitTime_ms": millis(*waited),
                    "queueDepth": queue_depth,
                    "lockHolder": holder,
                }),
            ),
            Self::OutcomeUnknown => ("idempotency.outcome_unknown", json!({})),
            Self::Unprotected => ("idempotency.unprotected", json!({})),
        }
    }
}

/// An actor as the documents write one.
fn actor(name: &str) -> Value {
    let (kind, id) = actor_parts(name);
    json!({"type": kind, "id": id})
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

//! One line of the audit trail, by the names of D0 §9.4.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::event::Found;
use onlyonce_core::record::actor_parts;
use onlyonce_core::refusal::Original;
use onlyonce_core::{About, Deed, Event, Fingerprint, Meta, Operated, Reason, Slot, Timestamp};
use serde_json::{Value, json};

/// The type of an actor who is an operator.
pub(super) const OPERATOR: &str = "operator";
/// An operator who gave no name.
const UNNAMED: &str = "unnamed";

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
        replays: u64,
    },
    Contention {
        waited: Duration,
        queue_depth: usize,
        holder: Arc<str>,
    },
    OutcomeUnknown,
    Reconciled {
        found: Found,
        attempt: u32,
        in_background: bool,
    },
    Unprotected,
    Operated(Box<Operated>),
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
                replays,
                resource,
            } => {
                made = resource.clone();
                What::Expired {
                    keep_for: *keep_for,
                    lifetime: *lifetime,
                    forgotten: *forgotten,
                    replays: *replays,
                }
            }
            Event::Waited {
                waited,
                queue_depth,
                holder,
                ..
            }
            | Event::TurnedAway {
                waited,
                queue_depth,
                holder,
            } => What::Contention {
                waited: *waited,
                queue_depth: *queue_depth,
                holder: Arc::clone(holder),
            },
            Event::OutcomeUnknown => What::OutcomeUnknown,
            Event::Reconciled {
                found,
                attempt,
                in_background,
                ..
            } => What::Reconciled {
                found: *found,
                attempt: *attempt,
                in_background: *in_background,
            },
            Event::Unprotected => What::Unprotected,
            Event::Operated(operated) => What::Operated(operated.clone()),
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
        if let What::Operated(operated) = &self.what
            && operated.deed.at_large().is_some()
        {
            metadata = json!({});
        } else if let What::Operated(_) = self.what {
            // Named like the caller of another entry, so that a purge of that caller finds it.
            metadata["originalActor"] = self.meta.actor.as_deref().map(actor).into();
        }
        if let (Value::Object(metadata), Value::Object(more)) = (&mut metadata, more) {
            metadata.extend(more);
        }
        let entry = json!({
            "eventType": event,
            "eventId": format!("evt_{run:016x}{number:08x}"),
            "timestamp": self.at.to_rfc3339(),
            "actor": self.who(),
            "metadata": metadata,
        });
        lines.push_str(&entry.to_string());
        lines.push('\n');
    }
}

impl Entry {
    /// Who did it: the caller, or an operator.
    fn who(&self) -> Option<Value> {
        match &self.what {
            What::Operated(operated) => {
                let name = operated.by.as_deref().unwrap_or(UNNAMED);
                Some(json!({"type": OPERATOR, "id": name}))
            }
            What::Created { .. }
            | What::Replay { .. }
            | What::Conflict { .. }
            | What::Expired { .. }
            | What::Contention { .. }
            | What::OutcomeUnknown
            | What::Reconciled { .. }
            | What::Unprotected => self.meta.actor.as_deref().map(actor),
        }
    }
}

/// What was done, with what belongs to it alone.
fn deed(operated: &Operated) -> (&'static str, Value) {
    let mut more = json!({"reason": operated.reason, "via": operated.via});
    let event = match operated.deed {
        Deed::Forgot => "idempotency.operator.forget",
        Deed::Discarded => "idempotency.operator.discard",
        Deed::Extended { by } => {
            more["extended_ms"] = millis(by).into();
            "idempotency.operator.extend"
        }
        Deed::Resolved { status, keep_for } => {
            more["status"] = status.into();
            more["ttl_ms"] = millis(keep_for).into();
            "idempotency.operator.resolve"
        }
        Deed::Read => "idempotency.operator.read",
        Deed::Swept { records } => {
            more["records"] = records.into();
            "idempotency.operator.sweep"
        }
        Deed::Purged { entries } => {
            more["entries"] = entries.into();
            "idempotency.operator.purge"
        }
    };
    (event, more)
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
                replays,
            } => (
                "idempotency.key.expired",
                json!({
                    "ttl_ms": millis(*keep_for),
                    "lifetime_ms": millis(*lifetime),
                    "replayCount": replays,
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
            Self::Reconciled {
                found,
                attempt,
                in_background,
            } => (
                "idempotency.reconciled",
                json!({
                    "found": found.name(),
                    "attempt": attempt,
                    "inBackground": in_background,
                }),
            ),
            Self::Unprotected => ("idempotency.unprotected", json!({})),
            Self::Operated(operated) => deed(operated),
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

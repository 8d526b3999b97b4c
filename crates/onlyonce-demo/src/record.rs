//! Writes down what the engine tells: each replay as an event of its submission, and the audit
//! events. Not on the request's path: gathered, and written in one transaction a batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce::core::{Deed, Timestamp};
use onlyonce::event::{About, Event, Subscriber};
use onlyonce::{Engine, Reason};
use tokio::sync::{mpsc, oneshot};

use self::writer::Writer;
use crate::db::Db;
use crate::ids::{Ids, now};
use crate::inbox;

mod writer;

/// What may wait to be written; more is dropped, and counted in the log.
const WAITING_MAX: usize = 10_000;

/// Where the engine's events go.
#[derive(Clone)]
pub(crate) struct Recorder {
    notes: mpsc::Sender<Note>,
    counts: Arc<Counts>,
}

/// For those who read what was written down.
#[derive(Clone)]
pub(crate) struct Noted {
    recorder: Recorder,
    engine: Engine,
}

impl Noted {
    /// What `recorder` writes down of `engine`.
    pub(crate) fn of(recorder: &Recorder, engine: &Engine) -> Self {
        Self {
            recorder: recorder.clone(),
            engine: engine.clone(),
        }
    }

    /// Returns when everything that happened so far is written: the numbers of replays too, which the
    /// engine tells a little later.
    pub(crate) async fn flush(&self) {
        self.engine.flush_replays().await;
        self.recorder.flush().await;
    }

    /// Handlers run, and answers replayed, since the start.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.recorder.counts()
    }
}

/// How often which happened, since the start.
#[derive(Default)]
struct Counts {
    runs: AtomicU64,
    replays: AtomicU64,
}

enum Note {
    Happened(Box<Happened>),
    /// Somebody wants to read what was noted so far.
    Flush(oneshot::Sender<()>),
}

struct Happened {
    slot: String,
    label: String,
    operation: Arc<str>,
    actor: Option<Arc<str>>,
    intake: Option<String>,
    /// What the operation made, where that is known.
    resource: Option<Arc<str>>,
    at: Timestamp,
    what: Told,
}

/// What is worth writing down, of all that the engine tells.
enum Told {
    Created {
        expires_at: Timestamp,
        keep_for: Duration,
    },
    Replayed {
        original_at: Timestamp,
        /// Which replay of its record it was; nothing where the store could not tell.
        number: Option<u64>,
    },
    /// An operator has forgotten the key.
    Deleted {
        keep_for: Duration,
        lifetime: Duration,
        replays: u64,
    },
    /// An operator keeps the key longer.
    Extended { by: Duration },
    Conflict {
        /// Short hashes of the original request and of this one.
        original: Option<String>,
        this: Option<String>,
    },
    Contention {
        holder: String,
        depth: usize,
        waited: Duration,
    },
}

impl Recorder {
    /// A recorder, and a task that writes; it ends when the last recorder is gone.
    /// Audit events are kept for `keep`.
    pub(crate) fn start(db: Db, ids: Ids, keep: Duration) -> Self {
        let (notes, noted) = mpsc::channel(WAITING_MAX);
        tokio::spawn(Writer::new(db, ids, keep).run(noted));
        let counts = Arc::default();
        Self { notes, counts }
    }

    /// Returns when everything noted so far is written.
    pub(crate) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.notes.send(Note::Flush(done)).await.is_ok() {
            let _ = flushed.await;
        }
    }

    /// Counts a client's request; deliveries of the services' own webhooks are none.
    fn count(&self, about: &About<'_>, which: impl FnOnce(&Counts) -> &AtomicU64) {
        if &*about.meta.operation != inbox::PATH {
            which(&self.counts).fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> (u64, u64) {
        let counts = &self.counts;
        (
            counts.runs.load(Ordering::Relaxed),
            counts.replays.load(Ordering::Relaxed),
        )
    }
}

impl Subscriber for Recorder {
    fn wants_replay_numbers(&self) -> bool {
        true
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the engine tells more than is written down, and may tell more yet"
    )]
    fn on_event(&self, about: &About<'_>, event: &Event) {
        let mut made = None;
        let mut at = None;
        let what = match event {
            Event::Claimed { .. } => {
                self.count(about, |counts| &counts.runs);
                return;
            }
            Event::Stored {
                expires_at,
                keep_for,
                resource,
                ..
            } => {
                made.clone_from(resource);
                Told::Created {
                    expires_at: *expires_at,
                    keep_for: *keep_for,
                }
            }
            Event::Replayed { .. } => {
                self.count(about, |counts| &counts.replays);
                return;
            }
            Event::ReplayCounted {
                number,
                at: given_at,
                original_at,
                resource,
                ..
            } => {
                made.clone_from(resource);
                at = Some(*given_at);
                Told::Replayed {
                    original_at: *original_at,
                    number: *number,
                }
            }
            Event::Expired {
                forgotten: true,
                keep_for,
                lifetime,
                replays,
                resource,
            } => {
                made.clone_from(resource);
                Told::Deleted {
                    keep_for: *keep_for,
                    lifetime: *lifetime,
                    replays: *replays,
                }
            }
            Event::Operated(operated) => match operated.deed {
                Deed::Extended { by } => Told::Extended { by },
                // Of what is removed its end is told as well; an answer by hand is no key made, and the rest
                // is about no key, or changes none.
                Deed::Forgot
                | Deed::Discarded
                | Deed::Resolved { .. }
                | Deed::Read
                | Deed::Swept { .. }
                | Deed::Purged { .. } => return,
            },
            Event::Refused {
                reason: Reason::Mismatch | Reason::OtherCredential,
                original,
                ..
            } => Told::Conflict {
                original: original.as_ref().map(|it| it.fingerprint.to_string()),
                this: about.fingerprint.map(ToString::to_string),
            },
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
            } => Told::Contention {
                holder: holder.to_string(),
                depth: *queue_depth,
                waited: *waited,
            },
            _ => return,
        };
        let happened = Happened {
            slot: about.slot.to_string(),
            label: about.label().to_string(),
            operation: Arc::clone(&about.meta.operation),
            actor: about.meta.actor.clone(),
            intake: about.intake.map(str::to_owned),
            resource: made,
            at: at.unwrap_or_else(now),
            what,
        };
        if self
            .notes
            .try_send(Note::Happened(Box::new(happened)))
            .is_err()
        {
            let operation = &*about.meta.operation;
            tracing::warn!(target: "onlyonce_demo", operation, "an event was not written down");
        }
    }
}

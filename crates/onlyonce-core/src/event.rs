//! Everything that happens, said once. Metrics, logs and audit are subscribers; the engine does
//! not know them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::key::Hint;
use crate::operate::Ended;
use crate::record::Meta;
use crate::refusal::{Original, Reason};
use crate::slot::Slot;
use crate::store::StoreErrorKind;

pub use self::log::TracingSubscriber;

mod log;

/// Whoever wants to know what happens. Called on the request's path: return quickly.
pub trait Subscriber: Send + Sync + 'static {
    /// Something happened to an operation.
    fn on_event(&self, about: &About<'_>, event: &Event);

    /// Whether it wants [`Event::ReplayCounted`] of each replay. Counts are then flushed more often.
    fn wants_replay_numbers(&self) -> bool {
        false
    }

    /// A sweep of this engine was handed a record whose time was over. Told only to those who
    /// [want it](Self::wants_ended): the store hands each record to one sweep.
    fn on_ended(&self, ended: &Ended) {
        let _ = ended;
    }

    /// Whether it wants to be told of ended records. Sweeps then read what they drop.
    fn wants_ended(&self) -> bool {
        false
    }
}

/// Which operation an event is about.
#[derive(Clone, Copy)]
pub struct About<'a> {
    /// Its address.
    pub slot: &'a Slot,
    /// For people.
    pub meta: &'a Arc<Meta>,
    /// What it means; nothing for an event about a record alone.
    pub fingerprint: Option<&'a Fingerprint>,
    /// The value of the path parameter in its scope, such as an intake's name.
    pub intake: Option<&'a str>,
    /// The name that its service gave the operation: a route's pattern, a job's name. Nothing where
    /// the operation is called by a path that the client chose, and for an event about a record
    /// alone.
    pub route: Option<&'a str>,
}

impl About<'_> {
    /// How logs name the key: a harmless start of it and of its digest.
    pub fn label(&self) -> impl fmt::Display {
        label(self.meta.hint, *self.slot)
    }
}

/// How people see a key.
pub(crate) fn label(hint: Hint, slot: Slot) -> impl fmt::Display {
    Label(hint, slot)
}

struct Label(Hint, Slot);

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…{}", self.0, self.1.short())
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The key looks easy to guess.
    WeakKey,
    /// The slot is ours; the handler starts.
    Claimed {
        /// 1, or more after a lapse.
        attempt: u32,
        /// How long it took to get it, waiting included.
        waited: Duration,
        /// How long the store took to grant it.
        asked: Duration,
        /// How long an answer shall be kept.
        keep_for: Duration,
    },
    /// A lapsed claim was taken over: its holder crashed, hung or was cut off.
    TookOver {
        /// The instance that held it.
        holder: Arc<str>,
        /// How long before the key was first claimed, on the store's clock.
        age: Duration,
    },
    /// A duplicate joined the attempt that runs in this process.
    Attached {
        /// How many wait with it.
        waiters: usize,
    },
    /// An attempt waits for another process.
    Waiting {
        /// The instance that holds the slot.
        holder: Arc<str>,
    },
    /// The wait of one caller for a slot is over, however it ended.
    Waited {
        /// How long.
        waited: Duration,
        /// How many waited when it came, itself included.
        queue_depth: usize,
        /// The instance that held the slot.
        holder: Arc<str>,
        /// Whether it got the slot: then [`Claimed`](Self::Claimed) tells of its wait too.
        claimed: bool,
    },
    /// As many callers waited for a slot as may; a refusal follows.
    TurnedAway {
        /// How long this one had waited until then.
        waited: Duration,
        /// How many wait, this one included.
        queue_depth: usize,
        /// The instance that holds the slot.
        holder: Arc<str>,
    },
    /// A duplicate waited as long as its policy allows; a refusal follows.
    GaveUp {
        /// How long.
        waited: Duration,
        /// How long its policy allows.
        timeout: Duration,
    },
    /// The handler's answer is stored.
    Stored {
        /// Its status.
        status: u16,
        /// Its size.
        bytes: usize,
        /// How long the handler ran.
        took: Duration,
        /// Until when it is kept, on the store's clock.
        expires_at: Timestamp,
        /// How long that is.
        keep_for: Duration,
        /// What was made, where the handler said so.
        resource: Option<Arc<str>>,
    },
    /// The handler's answer was over the policy's bound or the store's; a marker is stored in its
    /// stead.
    TooLarge {
        /// Its size, where that is known.
        bytes: Option<usize>,
        /// The bound on its size.
        bytes_max: usize,
    },
    /// The handler's answer is not one to store; the slot is free again.
    NotKept {
        /// Its status.
        status: u16,
    },
    /// Our claim is over, whatever came of it.
    Ended {
        /// How long we had the slot.
        held: Duration,
    },
    /// The caller got the answer of its own execution.
    Ran {
        /// How long the caller waited for it.
        took: Duration,
    },
    /// A stored or shared answer was given.
    Replayed {
        /// Its status.
        status: u16,
        /// When the original came.
        original_at: Timestamp,
        /// The trace of the original.
        original_trace: Option<Arc<str>>,
        /// Whether it came from this process's running attempt rather than from the store.
        attached: bool,
        /// What the original made, where its handler said so.
        resource: Option<Arc<str>>,
        /// How long the store took to tell it; nothing if it was not asked, as it was at hand or shared.
        asked: Option<Duration>,
        /// How long the caller waited for it.
        took: Duration,
    },
    /// The store has counted a replay, a little after it was given. Told only to those who
    /// [want it](Subscriber::wants_replay_numbers).
    ReplayCounted {
        /// Which replay of its record it was, over all processes; nothing where the store could not
        /// tell.
        number: Option<u64>,
        /// When it was given.
        at: Timestamp,
        /// The status of the answer.
        status: u16,
        /// When the original came.
        original_at: Timestamp,
        /// The trace of the original.
        original_trace: Option<Arc<str>>,
        /// Whether it came from this process's running attempt rather than from the store.
        attached: bool,
        /// What the original made, where its handler said so.
        resource: Option<Arc<str>>,
        /// How long the caller waited for it.
        took: Duration,
    },
    /// A caller was refused.
    Refused {
        /// Why.
        reason: Reason,
        /// The operation in its way, where its key was used for something else.
        original: Option<Box<Original>>,
        /// How long the caller waited for it.
        took: Duration,
    },
    /// The caller went away before its answer; what runs goes on.
    HungUp,
    /// The record is gone: its time is over, or an operator has forgotten it.
    Expired {
        /// How long it was to be kept.
        keep_for: Duration,
        /// How long it was there.
        lifetime: Duration,
        /// Whether an operator has forgotten it.
        forgotten: bool,
        /// How often it was replayed, as far as the store has counted and this process was told.
        replays: u64,
        /// What was made, where the handler said so.
        resource: Option<Arc<str>>,
    },
    /// A lease was renewed.
    Renewed,
    /// Our lease was overtaken while the handler ran.
    LeaseLost,
    /// The handler panicked.
    Panicked,
    /// The handler did not finish in its time.
    TimedOut {
        /// The bound.
        after: Duration,
    },
    /// The outcome is unknown.
    OutcomeUnknown,
    /// It was looked whether an attempt with an unknown outcome happened.
    Reconciled {
        /// What was found.
        found: Found,
        /// The attempt that looked.
        attempt: u32,
        /// How long that took.
        took: Duration,
        /// Whether nobody had retried it: then nothing is run after it either.
        in_background: bool,
    },
    /// The claim was given back; nothing ran.
    NotRun,
    /// An overtaken holder answered with the stored result instead of its own.
    Overtaken,
    /// The store failed.
    StoreFailed {
        /// At which verb.
        verb: Verb,
        /// How.
        kind: StoreErrorKind,
        /// Which store: its kind.
        backend: &'static str,
        /// Which try it was: 1, or more where it was repeated.
        attempt: u32,
        /// What lies behind it, as the store says it.
        cause: Arc<str>,
        /// Where the store's server is, where that is known.
        server: Option<Arc<ServerAddress>>,
    },
    /// The handler ran without protection, because the store is down and the policy is open.
    Unprotected,
    /// The result could not be stored yet; it is tried on in the background.
    Stalled,
    /// The result will not be stored: the background is full, or the record is long gone.
    Abandoned,
    /// An operator has changed the record, or done something else that is to be accounted for.
    Operated(Box<Operated>),
}

/// What an operator did, who it was, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operated {
    /// What was done.
    pub deed: Deed,
    /// Who did it, by the name that they gave; nothing if they gave none.
    pub by: Option<Arc<str>>,
    /// Why, in their words.
    pub reason: Option<Arc<str>>,
    /// Where it came in: `api`, `cli` or `console`.
    pub via: &'static str,
}

/// What operators can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It was forgotten, whatever its state.
    Forgot,
    /// It is kept longer.
    Extended {
        /// How much longer.
        by: Duration,
    },
    /// The outcome was in doubt, and happened: retries get this answer.
    Resolved {
        /// The status of the answer.
        status: u16,
        /// How long it is kept, or longer: at least as long as the record would have been.
        keep_for: Duration,
    },
    /// The outcome was in doubt, and did not happen: the next request with the key runs it.
    Discarded,
    /// The body of its stored answer was read.
    Read,
    /// Expired records were dropped at once, whosever they were.
    Swept {
        /// How many.
        records: u64,
    },
    /// An actor was taken out of the audit trail. Who that was is told nowhere.
    Purged {
        /// How many entries were removed.
        entries: u64,
    },
}

impl Deed {
    /// The deed as one word that does not change: for filters and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forgot => "forget",
            Self::Extended { .. } => "extend",
            Self::Resolved { .. } => "resolve",
            Self::Discarded => "discard",
            Self::Read => "read",
            Self::Swept { .. } => "sweep",
            Self::Purged { .. } => "purge",
        }
    }

    /// How many records or entries it was about, where it was not about one record.
    pub const fn at_large(self) -> Option<u64> {
        match self {
            Self::Swept { records } => Some(records),
            Self::Purged { entries } => Some(entries),
            Self::Forgot
            | Self::Extended { .. }
            | Self::Resolved { .. }
            | Self::Discarded
            | Self::Read => None,
        }
    }
}

impl Event {
    /// What happened, as one word that does not change: for filters and labels.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::WeakKey => "weak_key",
            Self::Claimed { .. } => "claimed",
            Self::TookOver { .. } => "took_over",
            Self::Attached { .. } => "attached",
            Self::Waiting { .. } => "waiting",
            Self::Waited { .. } => "waited",
            Self::TurnedAway { .. } => "turned_away",
            Self::GaveUp { .. } => "gave_up",
            Self::Stored { .. } => "stored",
            Self::TooLarge { .. } => "too_large",
            Self::NotKept { .. } => "not_kept",
            Self::Ended { .. } => "ended",
            Self::Ran { .. } => "ran",
            Self::Replayed { .. } => "replayed",
            Self::ReplayCounted { .. } => "replay_counted",
            Self::Refused { .. } => "refused",
            Self::HungUp => "hung_up",
            Self::Expired { .. } => "expired",
            Self::Renewed => "renewed",
            Self::LeaseLost => "lease_lost",
            Self::Panicked => "panicked",
            Self::TimedOut { .. } => "timed_out",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Reconciled {
                found,
                in_background,
                ..
            } => found.event(*in_background),
            Self::NotRun => "not_run",
            Self::Overtaken => "overtaken",
            Self::StoreFailed { .. } => "store_failed",
            Self::Unprotected => "unprotected",
            Self::Stalled => "stalled",
            Self::Abandoned => "abandoned",
            Self::Operated(_) => "operated",
        }
    }
}

/// Where a store's server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Its name or number.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// What was found out about an attempt with an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Found {
    /// It happened; its answer is stored now.
    Happened,
    /// It did not happen: it is run, at once or by the next retry.
    DidNot,
    /// Neither is known; nothing is run.
    CannotTell,
}

impl Found {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Happened => "happened",
            Self::DidNot => "did_not",
            Self::CannotTell => "cannot_tell",
        }
    }

    const fn event(self, in_background: bool) -> &'static str {
        match (self, in_background) {
            (Self::Happened, false) => "reconciled_happened",
            (Self::DidNot, false) => "reconciled_did_not",
            (Self::CannotTell, false) => "reconciled_cannot_tell",
            (Self::Happened, true) => "background_reconciled_happened",
            (Self::DidNot, true) => "background_reconciled_did_not",
            (Self::CannotTell, true) => "background_reconciled_cannot_tell",
        }
    }
}

/// What can be asked of a store: the five verbs of [`Store`](crate::Store), and those of operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// [`Store::claim`](crate::Store::claim)
    Claim,
    /// [`Store::renew`](crate::Store::renew)
    Renew,
    /// [`Store::complete`](crate::Store::complete)
    Complete,
    /// [`Store::release`](crate::Store::release)
    Release,
    /// [`Store::settled`](crate::Store::settled); its time is mostly waiting
    Settled,
    /// [`Operate::get`](crate::Operate::get)
    Get,
    /// [`Operate::list`](crate::Operate::list)
    List,
    /// [`Operate::forget`](crate::Operate::forget)
    Forget,
    /// [`Operate::extend`](crate::Operate::extend)
    Extend,
    /// [`Operate::resolve`](crate::Operate::resolve)
    Resolve,
    /// [`Operate::sweep`](crate::Operate::sweep)
    Sweep,
    /// [`Operate::stats`](crate::Operate::stats)
    Stats,
    /// [`Operate::ping`](crate::Operate::ping)
    Ping,
    /// [`Operate::recheck`](crate::Operate::recheck)
    Recheck,
    /// [`Operate::count_replays`](crate::Operate::count_replays)
    CountReplays,
    /// [`Operate::agree`](crate::Operate::agree) and [`Operate::agreed`](crate::Operate::agreed)
    Agree,
}

impl Verb {
    /// Every verb, in the order of their numbers.
    pub const ALL: [Self; 16] = [
        Self::Claim,
        Self::Renew,
        Self::Complete,
        Self::Release,
        Self::Settled,
        Self::Get,
        Self::List,
        Self::Forget,
        Self::Extend,
        Self::Resolve,
        Self::Sweep,
        Self::Stats,
        Self::Ping,
        Self::Recheck,
        Self::CountReplays,
        Self::Agree,
    ];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::Complete => "complete",
            Self::Release => "release",
            Self::Settled => "settled",
            Self::Get => "get",
            Self::List => "list",
            Self::Forget => "forget",
            Self::Extend => "extend",
            Self::Resolve => "resolve",
            Self::Sweep => "sweep",
            Self::Stats => "stats",
            Self::Ping => "ping",
            Self::Recheck => "recheck",
            Self::CountReplays => "count_replays",
            Self::Agree => "agree",
        }
    }
}

//! The store: five verbs, each one atomic step and at most one round trip. Stores report facts;
//! what to do about them is the engine's business alone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;

use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::operate::Operate;
use crate::record::{Meta, OnLapse, Record, Replay, Token};
use crate::response::Response;
use crate::slot::Slot;

/// How much of an error's cause is told.
const CAUSE_BYTES_MAX: usize = 500;

/// Where records live. Every verb may be repeated after a lost reply: the caller made the token,
/// so the protocol is idempotent itself.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Asks for the slot: check, lock and double-check in one step.
    ///
    /// Granted iff the slot is empty or expired, or holds a pending claim of this very token, or
    /// is lapsed where both sides re-run and the fingerprint is equal. All of it is one atomic
    /// condition on the store's clock.
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError>;

    /// Keeps a slow handler's claim: its lease lasts `lease_for` from now.
    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError>;

    /// Stores the answer; retention starts now, on the store's clock, and is `keep_for` and what the
    /// pending record was [extended](Operate::extend) by. Changes only a pending record with this
    /// token: a late complete that nobody overtook is welcome.
    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError>;

    /// Ends the claim without an answer. Changes only a pending record with this token, and a
    /// token released as [`Release::NotRun`] stays dead for one lease, even if its claim had not
    /// arrived yet.
    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError>;

    /// Returns when the slot may no longer hold the pending claim `seen`, or that claim lapsed,
    /// or after `at_most`. A change before the call is not missed.
    async fn settled(&self, slot: &Slot, seen: &Token, at_most: Duration)
    -> Result<(), StoreError>;

    /// The answer that is stored in the slot for this meaning, if it is at hand: in the memory of
    /// this process, without waiting. That there is none says nothing; then [`claim`](Self::claim)
    /// tells.
    fn recall(&self, _slot: &Slot, _fingerprint: &Fingerprint) -> Option<Replay> {
        None
    }

    /// Whether the store still stands by what it has said: an error once it has ended for this process, as
    /// after a failed fsync. Known without waiting; what remembers a store's answers asks this before
    /// it shows one in the store's stead. That it stands says nothing of whether it can be reached.
    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The largest answer that this store takes, in bytes of [`Response::bytes`], where it knows its
    /// bound: completing with a larger one is [`StoreErrorKind::TooLarge`].
    fn response_bytes_max(&self) -> Option<usize> {
        None
    }

    /// The operators' side of this store, where it has one.
    fn operate(&self) -> Option<&dyn Operate> {
        None
    }
}

/// What we ask of the store.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Where.
    pub slot: Slot,
    /// For what.
    pub fingerprint: Fingerprint,
    /// As whom.
    pub token: Token,
    /// What to do if our lease lapses.
    pub on_lapse: OnLapse,
    /// Whether it has to be durable before it is granted: what is held, and what is looked into before it runs
    /// again, must be found after a power cut. Else that may come later, with the next write that must be.
    pub must_last: bool,
    /// How long the lease lasts unless renewed.
    pub lease_for: Duration,
    /// How long a lapsed or finished record is kept.
    pub keep_for: Duration,
    /// For people.
    pub meta: Arc<Meta>,
}

impl Claim {
    /// The lease this claim would be granted: enough to release or complete it even if the
    /// reply to the claim was lost.
    pub fn lease(&self) -> Lease {
        Lease {
            slot: self.slot,
            token: self.token,
            fingerprint: self.fingerprint,
            lease_for: self.lease_for,
            keep_for: self.keep_for,
            attempt: 1,
        }
    }
}

/// The store's answer to a claim.
#[derive(Clone, Debug)]
pub enum Claimed {
    /// The slot is ours; run.
    Granted {
        /// Proof that we may execute.
        lease: Lease,
        /// The lapsed claim that this took over, if it did.
        overtook: Option<Overtaken>,
    },
    /// Somebody has it: this is what is there.
    Taken(Record),
    /// This token was released before; it cannot be revived. Make a new one.
    Dead,
}

/// A lapsed claim that another took over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overtaken {
    /// Whose it was.
    pub meta: Arc<Meta>,
    /// How long before the slot was first claimed, on the store's clock.
    pub age: Duration,
}

/// Proof that we may execute, until it ends or is overtaken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Where.
    pub slot: Slot,
    /// Our fencing identity.
    pub token: Token,
    /// What was claimed. Not for stores to go by: one inside of a wrapper may get another in its place.
    pub fingerprint: Fingerprint,
    /// How long it lasts from the claim or the last renewal.
    pub lease_for: Duration,
    /// How long the record is kept after the lease.
    pub keep_for: Duration,
    /// 1, or more after a lapse.
    pub attempt: u32,
}

impl Lease {
    /// How a claim ends of which no use was made: the slot is given back, unless an earlier attempt
    /// may have taken effect. That is not forgotten, and stays as much in doubt as before.
    pub fn unused(&self) -> Release {
        if self.attempt > 1 {
            Release::Unknown
        } else {
            Release::NotRun
        }
    }
}

/// The store's answer to a renewal.
#[derive(Clone, Debug)]
pub enum Renewed {
    /// The lease goes on.
    Kept,
    /// It is no longer ours.
    Lost,
    /// Nothing was changed: somebody's transaction has the record. As long as it has, nobody takes
    /// the claim over; ask again soon.
    Busy,
}

/// The store's answer to a completion.
#[derive(Clone, Debug)]
pub enum Completed {
    /// Stored by this call.
    Stored(Receipt),
    /// Nothing was changed: this is what is there. Finished with our own token, it is the trace
    /// of an earlier complete; with another, we were overtaken.
    Found(Record),
    /// Nothing is there: forgotten or expired.
    Absent,
}

/// When a response was stored and until when it is kept, on the store's clock; to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// When the slot was first claimed.
    pub created_at: Timestamp,
    /// When the answer was stored.
    pub completed_at: Timestamp,
    /// When it will be forgotten.
    pub expires_at: Timestamp,
}

/// Why a claim is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Nothing ran: the slot is free again, unless the claim took over from an attempt that may have
    /// happened. That stays as it was, lapsed: who gives back a claim whose reply it never heard does
    /// not know of it.
    NotRun,
    /// Something may have happened: the lease ends at once, and `on_lapse` says what follows.
    Unknown,
}

/// The store's answer to a release.
#[derive(Clone, Debug)]
pub enum Released {
    /// The claim is over, by this call or an earlier one.
    Ended,
    /// Nothing was changed: the slot is not, or no longer, ours.
    Found(Record),
}

/// A store that could not do what it was asked. Losing a race is not an error.
#[derive(Debug, Error)]
#[error("{store} store: {kind}")]
pub struct StoreError {
    /// Which store: its kind, never its address or credentials.
    pub store: &'static str,
    /// What happened.
    pub kind: StoreErrorKind,
    /// The cause.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// The store was never asked: there is nothing to take back.
    is_unsent: bool,
    /// Others were faster, time and again: the store itself is well.
    is_contested: bool,
}

/// What kind of trouble a store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Not reachable, or no answer in time: whether it acted is unknown. Repeating is safe.
    Unavailable,
    /// At its bound: no new key is taken rather than a live one forgotten.
    Full,
    /// This answer is larger than any that the store takes. Repeating changes nothing; a smaller
    /// one is taken.
    TooLarge,
    /// What is stored cannot be read.
    Corrupt,
    /// Something that every promise rests on has changed: the slot secret in the store is another
    /// one, or its server may drop live records. Nothing runs until that is put right, also where
    /// the policy is to run without a store.
    Unsafe,
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "unavailable",
            Self::Full => "full: raise its bound or shorten the time records are kept",
            Self::TooLarge => "the answer is larger than this store takes",
            Self::Corrupt => "a stored record cannot be read",
            Self::Unsafe => "not safe to use: see the cause",
        })
    }
}

impl StoreError {
    /// An error of the store called `store`.
    pub fn new(store: &'static str, kind: StoreErrorKind) -> Self {
        Self {
            store,
            kind,
            source: None,
            is_unsent: false,
            is_contested: false,
        }
    }

    /// The same of a store that was never asked, as by an open circuit breaker.
    #[must_use]
    pub fn unsent(mut self) -> Self {
        self.is_unsent = true;
        self
    }

    /// What lies behind it, in the words of whatever failed: for logs. Never a key or a body.
    pub fn cause(&self) -> String {
        let mut said = Vec::new();
        let mut next = std::error::Error::source(self);
        while let Some(error) = next {
            let words = error.to_string();
            if said.last() != Some(&words) {
                said.push(words);
            }
            next = error.source();
        }
        let mut cause = if said.is_empty() {
            self.kind.to_string()
        } else {
            said.join(": ")
        };
        cause.truncate(cause.floor_char_boundary(CAUSE_BYTES_MAX));
        cause
    }

    /// Whether the store was never asked, so that it cannot have acted.
    pub fn is_unsent(&self) -> bool {
        self.is_unsent
    }

    /// The same of a store that is well, but in which others were faster time and again: a race that
    /// was not decided in time is no reason to take the store for broken.
    #[must_use]
    pub fn contested(mut self) -> Self {
        self.is_contested = true;
        self
    }

    /// Whether the store answered, and others were faster each time.
    pub fn is_contested(&self) -> bool {
        self.is_contested
    }

    /// The same with its cause.
    #[must_use]
    pub fn caused_by(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }
}

//! One slot as a store that decides in its own process keeps it: the atomic steps of such a store,
//! without time or locks of their own. `now` is the store's clock, counted from 1970.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Timestamp};
use crate::fingerprint::Fingerprint;
use crate::operate::Resolved;
use crate::record::{Meta, OnLapse, Record, State, Token};
use crate::response::Response;
use crate::store::{
    Claim, Claimed, Completed, Lease, Overtaken, Receipt, Release, Released, Renewed,
};

pub use released::ReleasedTokens;
pub use waiters::Waiters;

mod released;
mod waiters;

/// What a store keeps of one slot. That a released token stays dead is for [`ReleasedTokens`], or for a
/// table beside this one, to see to.
///
/// ```
/// use onlyonce_core::entry::{Change, Entry};
/// use onlyonce_core::{Claim, Claimed};
/// use std::time::Duration;
///
/// fn first(entry: &mut Entry, claim: &Claim, now: Duration) -> bool {
///     let (claimed, change) = entry.claim(claim, now);
///     matches!(claimed, Claimed::Granted { .. }) && change != Change::Nothing
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The record; expired, it counts as absent.
    pub kept: Option<Kept>,
}

/// A record with its deadlines as moments on the store's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Whose claim it is or was.
    pub token: Token,
    /// What the operation meant.
    pub fingerprint: Fingerprint,
    /// What the claimant wants done if its lease lapses.
    pub on_lapse: OnLapse,
    /// Which attempt this is.
    pub attempt: u32,
    /// For people.
    pub meta: Arc<Meta>,
    /// When the slot was first claimed.
    pub created_at: Timestamp,
    /// When it was finished.
    pub completed_at: Option<Timestamp>,
    /// When it is forgotten.
    pub expires: Duration,
    /// How long the record outlives its lease, as the claim asked, and what it was extended by since.
    pub tail: Duration,
    /// Replays counted so far.
    pub replays: u64,
    /// Where it stands.
    pub phase: Phase,
}

/// Where a kept record stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Claimed, until this moment unless renewed.
    Pending {
        /// When the lease ends.
        lease_until: Duration,
    },
    /// Finished with this answer, well or badly.
    Finished(Arc<Response>),
    /// Nobody knows whether it happened.
    Unknown,
}

/// What a step did to the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: there is nothing to write.
    Nothing,
    /// It must be written.
    Written,
    /// It must be written, and who waits for the claim that was there must be woken.
    Settled,
}

/// A moment on the store's clock, to show.
pub fn timestamp(moment: Duration) -> Timestamp {
    Timestamp::from_millis(u64::try_from(moment.as_millis()).unwrap_or(u64::MAX))
}

/// A process's clock as a store's: counted from 1970, but steady. The machine's date is read
/// once, so setting it later moves no deadline.
pub struct StoreClock {
    clock: Arc<dyn Clock>,
    origin: Duration,
}

impl StoreClock {
    /// `clock`, from now on.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let wall = Duration::from_millis(clock.wall().as_millis());
        let origin = wall.saturating_sub(clock.now());
        Self { clock, origin }
    }

    /// The time since 1970.
    pub fn now(&self) -> Duration {
        self.origin.saturating_add(self.clock.now())
    }
}

impl Entry {
    /// [`Store::claim`](crate::Store::claim), for a token that is not dead.
    pub fn claim(&mut self, claim: &Claim, now: Duration) -> (Claimed, Change) {
        self.tidy(now);
        let Some(kept) = &mut self.kept else {
            self.kept = Some(Kept::claimed(claim, now));
            return (granted(claim, 1, None), Change::Written);
        };
        if !kept.yields_to(claim, now) {
            return (Claimed::Taken(kept.to_record(now)), Change::Nothing);
        }
        if kept.token == claim.token {
            // A repeated claim whose reply was lost: the same attempt, with a whole lease again.
            kept.renew(claim.lease_for, now);
            return (granted(claim, kept.attempt, None), Change::Written);
        }
        let overtaken = std::mem::replace(kept, Kept::claimed(claim, now));
        kept.attempt = overtaken.attempt.saturating_add(1);
        kept.created_at = overtaken.created_at;
        let overtook = Overtaken {
            meta: overtaken.meta,
            age: timestamp(now).since(overtaken.created_at),
        };
        let claimed = granted(claim, kept.attempt, Some(overtook));
        (claimed, Change::Settled)
    }

    /// [`Store::renew`](crate::Store::renew).
    pub fn renew(
        &mut self,
        lease: &Lease,
        lease_for: Duration,
        now: Duration,
    ) -> (Renewed, Change) {
        self.tidy(now);
        match self.held_by(lease) {
            Some(kept) => {
                kept.renew(lease_for, now);
                (Renewed::Kept, Change::Written)
            }
            None => (Renewed::Lost, Change::Nothing),
        }
    }

    /// [`Store::complete`](crate::Store::complete).
    pub fn complete(
        &mut self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
        now: Duration,
    ) -> (Completed, Change) {
        self.tidy(now);
        if let Some(kept) = self.held_by(lease) {
            // What an operator has added while it ran.
            let extra = kept.tail.saturating_sub(lease.keep_for);
            let receipt = kept.finish(response, keep_for.saturating_add(extra), now);
            return (Completed::Stored(receipt), Change::Settled);
        }
        let found = match &self.kept {
            Some(kept) => Completed::Found(kept.to_record(now)),
            None => Completed::Absent,
        };
        (found, Change::Nothing)
    }

    /// [`Store::release`](crate::Store::release).
    pub fn release(&mut self, lease: &Lease, why: Release, now: Duration) -> (Released, Change) {
        self.tidy(now);
        let held = self.held_by(lease);
        let was_held = held.is_some();
        match (why, held) {
            (Release::Unknown, Some(kept)) => kept.end_unknown(now),
            // Whose lapsed attempt it took over, that may have happened: it is not forgotten.
            (Release::NotRun, Some(kept)) if kept.attempt > 1 => kept.end_unknown(now),
            (Release::NotRun, Some(_)) => self.kept = None,
            (Release::Unknown | Release::NotRun, None) => {}
        }
        let change = if was_held {
            Change::Settled
        } else {
            Change::Nothing
        };
        match &self.kept {
            Some(kept) if !was_held => (Released::Found(kept.to_record(now)), change),
            Some(_) | None => (Released::Ended, change),
        }
    }

    /// What is left of the lease, if this is a pending claim of `token` that has not lapsed: how
    /// long to wait for it at most.
    pub fn lease_left_of(&self, token: &Token, now: Duration) -> Option<Duration> {
        let kept = self.live(now)?;
        match kept.phase {
            Phase::Pending { lease_until } if kept.token == *token && lease_until > now => {
                Some(lease_until - now)
            }
            Phase::Pending { .. } | Phase::Finished(_) | Phase::Unknown => None,
        }
    }

    /// The record as of now, unless it has expired.
    pub fn get(&self, now: Duration) -> Option<Record> {
        Some(self.live(now)?.to_record(now))
    }

    /// [`Operate::forget`](crate::Operate::forget). Dead tokens stay dead.
    pub fn forget(&mut self, now: Duration) -> (bool, Change) {
        self.tidy(now);
        match self.kept.take() {
            Some(_) => (true, Change::Settled),
            None => (false, Change::Nothing),
        }
    }

    /// [`Operate::extend`](crate::Operate::extend).
    pub fn extend(&mut self, extra: Duration, now: Duration) -> (bool, Change) {
        self.tidy(now);
        match &mut self.kept {
            Some(kept) => {
                kept.tail = kept.tail.saturating_add(extra);
                kept.expires = kept.expires.saturating_add(extra);
                (true, Change::Written)
            }
            None => (false, Change::Nothing),
        }
    }

    /// [`Operate::resolve`](crate::Operate::resolve).
    pub fn resolve(
        &mut self,
        response: &Arc<Response>,
        keep_for: Duration,
        now: Duration,
    ) -> (Resolved, Change) {
        self.tidy(now);
        match &mut self.kept {
            None => (Resolved::Absent, Change::Nothing),
            Some(kept) if !kept.is_resolvable(now) => {
                (Resolved::Found(kept.to_record(now)), Change::Nothing)
            }
            Some(kept) => {
                let promised = kept.expires.saturating_sub(now);
                kept.finish(response, keep_for.max(promised), now);
                (Resolved::Stored, Change::Settled)
            }
        }
    }

    /// [`Operate::discard`](crate::Operate::discard). Dead tokens stay dead.
    pub fn discard(&mut self, now: Duration) -> (Resolved, Change) {
        self.tidy(now);
        match &self.kept {
            None => (Resolved::Absent, Change::Nothing),
            Some(kept) if !kept.is_resolvable(now) => {
                (Resolved::Found(kept.to_record(now)), Change::Nothing)
            }
            Some(_) => {
                self.kept = None;
                (Resolved::Stored, Change::Settled)
            }
        }
    }

    /// Adds replays to the record's count.
    pub fn count_replays(&mut self, count: u64, now: Duration) -> Change {
        self.tidy(now);
        match &mut self.kept {
            Some(kept) => {
                kept.replays = kept.replays.saturating_add(count);
                Change::Written
            }
            None => Change::Nothing,
        }
    }

    /// The record, unless it has expired.
    pub fn live(&self, now: Duration) -> Option<&Kept> {
        self.kept.as_ref().filter(|kept| !kept.is_expired(now))
    }

    /// Drops what has expired.
    fn tidy(&mut self, now: Duration) {
        if self.kept.as_ref().is_some_and(|kept| kept.is_expired(now)) {
            self.kept = None;
        }
    }

    /// The record, if it is a pending claim of this lease: lapsed or not, as long as it is ours.
    fn held_by(&mut self, lease: &Lease) -> Option<&mut Kept> {
        self.kept
            .as_mut()
            .filter(|kept| kept.token == lease.token && matches!(kept.phase, Phase::Pending { .. }))
    }
}

impl Kept {
    fn claimed(claim: &Claim, now: Duration) -> Self {
        let lease_until = now.saturating_add(claim.lease_for);
        Self {
            token: claim.token,
            fingerprint: claim.fingerprint,
            on_lapse: claim.on_lapse,
            attempt: 1,
            meta: Arc::clone(&claim.meta),
            created_at: timestamp(now),
            completed_at: None,
            expires: lease_until.saturating_add(claim.keep_for),
            tail: claim.keep_for,
            replays: 0,
            phase: Phase::Pending { lease_until },
        }
    }

    /// Whether it counts as absent.
    pub fn is_expired(&self, now: Duration) -> bool {
        self.expires <= now
    }

    /// The one condition under which a claim may take a live record.
    fn yields_to(&self, claim: &Claim, now: Duration) -> bool {
        match self.phase {
            Phase::Finished(_) | Phase::Unknown => false,
            Phase::Pending { lease_until } => {
                self.token == claim.token
                    || (lease_until <= now
                        && self.on_lapse.both_rerun(claim.on_lapse)
                        && self.fingerprint == claim.fingerprint)
            }
        }
    }

    fn renew(&mut self, lease_for: Duration, now: Duration) {
        let lease_until = now.saturating_add(lease_for);
        self.phase = Phase::Pending { lease_until };
        self.expires = lease_until.saturating_add(self.tail);
    }

    fn finish(&mut self, response: &Arc<Response>, keep_for: Duration, now: Duration) -> Receipt {
        self.phase = Phase::Finished(Arc::clone(response));
        self.completed_at = Some(timestamp(now));
        self.expires = now.saturating_add(keep_for);
        Receipt {
            created_at: self.created_at,
            completed_at: timestamp(now),
            expires_at: timestamp(self.expires),
        }
    }

    /// Ends the lease at once; the claimant's `on_lapse` says what that means. How long the record
    /// is kept was promised with the lease, and does not get shorter.
    fn end_unknown(&mut self, now: Duration) {
        self.phase = match self.on_lapse {
            OnLapse::Rerun => Phase::Pending { lease_until: now },
            OnLapse::Hold => Phase::Unknown,
        };
    }

    fn is_resolvable(&self, now: Duration) -> bool {
        match self.phase {
            Phase::Pending { lease_until } => lease_until <= now,
            Phase::Unknown => true,
            Phase::Finished(_) => false,
        }
    }

    /// How much room its answer takes, near enough for bounds.
    pub fn bytes(&self) -> usize {
        match &self.phase {
            Phase::Finished(response) => response.bytes(),
            Phase::Pending { .. } | Phase::Unknown => 0,
        }
    }

    /// What is told of it at this moment.
    pub fn to_record(&self, now: Duration) -> Record {
        Record {
            token: self.token,
            fingerprint: self.fingerprint,
            on_lapse: self.on_lapse,
            attempt: self.attempt,
            meta: Arc::clone(&self.meta),
            created_at: self.created_at,
            completed_at: self.completed_at,
            expires_at: timestamp(self.expires),
            keep_left: self.expires.saturating_sub(now),
            replays: self.replays,
            state: match &self.phase {
                Phase::Pending { lease_until } => State::Pending {
                    lease_left: lease_until.saturating_sub(now),
                },
                Phase::Finished(response) => State::finished(Arc::clone(response)),
                Phase::Unknown => State::Unknown,
            },
        }
    }
}

fn granted(claim: &Claim, attempt: u32, overtook: Option<Overtaken>) -> Claimed {
    Claimed::Granted {
        lease: Lease {
            attempt,
            ..claim.lease()
        },
        overtook,
    }
}

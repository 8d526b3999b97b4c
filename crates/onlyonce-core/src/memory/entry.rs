//! One slot's record as the memory store keeps it: deadlines as moments on its own clock.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::record::{Meta, OnLapse, Record, State, Token};
use crate::response::Response;
use crate::store::{Claim, Receipt};

pub(super) struct Entry {
    pub(super) token: Token,
    pub(super) fingerprint: Fingerprint,
    pub(super) on_lapse: OnLapse,
    pub(super) attempt: u32,
    pub(super) meta: Arc<Meta>,
    pub(super) created_at: Timestamp,
    pub(super) completed_at: Option<Timestamp>,
    pub(super) expires: Duration,
    /// The same moment to show, fixed when it is set: every replay names the same one.
    pub(super) expires_at: Timestamp,
    /// When the expiry queue will look at this record: not after it expires.
    pub(super) queued: Duration,
    /// How long the record outlives its lease, as the claim asked.
    pub(super) tail: Duration,
    pub(super) replays: u64,
    pub(super) phase: Phase,
}

pub(super) enum Phase {
    Pending { lease_until: Duration },
    Finished(Arc<Response>),
    Unknown,
}

impl Entry {
    pub(super) fn claimed(claim: &Claim, attempt: u32, now: Duration, wall: Timestamp) -> Self {
        let lease_until = now.saturating_add(claim.lease_for);
        let expires_at = wall.plus(claim.lease_for.saturating_add(claim.keep_for));
        Self {
            token: claim.token,
            fingerprint: claim.fingerprint,
            on_lapse: claim.on_lapse,
            attempt,
            meta: Arc::clone(&claim.meta),
            created_at: wall,
            completed_at: None,
            expires: lease_until.saturating_add(claim.keep_for),
            expires_at,
            queued: lease_until,
            tail: claim.keep_for,
            replays: 0,
            phase: Phase::Pending { lease_until },
        }
    }

    pub(super) fn is_expired(&self, now: Duration) -> bool {
        self.expires <= now
    }

    /// The one condition under which a claim may take a live entry.
    pub(super) fn yields_to(&self, claim: &Claim, now: Duration) -> bool {
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

    /// What is left of the lease, if this is a pending claim of `token`.
    pub(super) fn lease_left_of(&self, token: &Token, now: Duration) -> Option<Duration> {
        match self.phase {
            Phase::Pending { lease_until } if self.token == *token => {
                Some(lease_until.saturating_sub(now))
            }
            Phase::Pending { .. } | Phase::Finished(_) | Phase::Unknown => None,
        }
    }

    pub(super) fn renew(&mut self, lease_for: Duration, now: Duration, wall: Timestamp) {
        let lease_until = now.saturating_add(lease_for);
        self.phase = Phase::Pending { lease_until };
        self.expires = lease_until.saturating_add(self.tail);
        self.expires_at = wall.plus(lease_for.saturating_add(self.tail));
    }

    pub(super) fn extend(&mut self, extra: Duration) {
        self.tail = self.tail.saturating_add(extra);
        self.expires = self.expires.saturating_add(extra);
        self.expires_at = self.expires_at.plus(extra);
    }

    pub(super) fn finish(
        &mut self,
        response: &Arc<Response>,
        keep_for: Duration,
        now: Duration,
        wall: Timestamp,
    ) -> Receipt {
        self.phase = Phase::Finished(Arc::clone(response));
        self.completed_at = Some(wall);
        self.expires = now.saturating_add(keep_for);
        self.expires_at = wall.plus(keep_for);
        Receipt {
            created_at: self.created_at,
            completed_at: wall,
            expires_at: self.expires_at,
        }
    }

    /// Ends the lease at once; the claimant's `on_lapse` says what that means. How long the record
    /// is kept was promised with the lease, and does not get shorter.
    pub(super) fn end_unknown(&mut self, now: Duration) {
        self.phase = match self.on_lapse {
            OnLapse::Rerun => Phase::Pending { lease_until: now },
            OnLapse::Hold => Phase::Unknown,
        };
    }

    pub(super) fn is_resolvable(&self, now: Duration) -> bool {
        match self.phase {
            Phase::Pending { lease_until } => lease_until <= now,
            Phase::Unknown => true,
            Phase::Finished(_) => false,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match &self.phase {
            Phase::Finished(response) => response.bytes(),
            Phase::Pending { .. } | Phase::Unknown => 0,
        }
    }

    pub(super) fn to_record(&self, now: Duration) -> Record {
        Record {
            token: self.token,
            fingerprint: self.fingerprint,
            on_lapse: self.on_lapse,
            attempt: self.attempt,
            meta: Arc::clone(&self.meta),
            created_at: self.created_at,
            completed_at: self.completed_at,
            expires_at: self.expires_at,
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

//! The store: for each key [`Entry`] and [`ReleasedTokens`], put together as the stores do that decide in their
//! own process.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::codec;
use onlyonce_core::entry::{Entry, ReleasedTokens};
use onlyonce_core::{
    Claim, Claimed, Completed, Lease, Record, Release, Released, Renewed, Response, Token,
};

use super::scenario::moment;
use super::{Bug, Tick};

/// What the store keeps of one key.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelf {
    entry: Entry,
    released: ReleasedTokens,
}

impl Shelf {
    pub(super) fn claim(&mut self, claim: &Claim, now: Tick) -> Claimed {
        let now = moment(now);
        if self.released.is_dead(&claim.slot, &claim.token, now) {
            return Claimed::Dead;
        }
        self.entry.claim(claim, now).0
    }

    pub(super) fn renew(&mut self, lease: &Lease, now: Tick) -> Renewed {
        self.entry.renew(lease, lease.lease_for, moment(now)).0
    }

    pub(super) fn complete(
        &mut self,
        lease: &Lease,
        response: &Arc<Response>,
        bug: Option<Bug>,
        now: Tick,
    ) -> Completed {
        let mut lease = lease.clone();
        if bug == Some(Bug::FencingOff)
            && let Some(kept) = &self.entry.kept
        {
            lease.token = kept.token;
        }
        let keep_for = lease.keep_for;
        let now = moment(now);
        self.entry.complete(&lease, response, keep_for, now).0
    }

    pub(super) fn release(
        &mut self,
        lease: &Lease,
        why: Release,
        bug: Option<Bug>,
        now: Tick,
    ) -> Released {
        let now = moment(now);
        let (released, change) = self.entry.release(lease, why, now);
        if bug != Some(Bug::ForgetsReleases) {
            self.released.add(lease, why, change, now);
        }
        released
    }

    pub(super) fn forget(&mut self, now: Tick) -> bool {
        self.entry.forget(moment(now)).0
    }

    pub(super) fn record(&self, now: Tick) -> Option<Record> {
        self.entry.get(moment(now))
    }

    /// Forgets the tokens that have been dead long enough.
    pub(super) fn tidy(&mut self, now: Tick) {
        self.released.tidy(usize::MAX, moment(now));
    }

    /// All of it, to compare: a record is what the codec makes of it.
    fn image(&self) -> (Option<Bytes>, Vec<(Token, Duration)>) {
        let released = self.released.iter();
        let mut released: Vec<_> = released.map(|(_, token, until)| (*token, until)).collect();
        released.sort_unstable();
        (self.entry.kept.as_ref().map(codec::encode), released)
    }
}

impl PartialEq for Shelf {
    fn eq(&self, other: &Self) -> bool {
        self.image() == other.image()
    }
}

impl Hash for Shelf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.image().hash(state);
    }
}

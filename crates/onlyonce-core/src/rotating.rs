//! While the slot secret is rotated, an operation has two addresses: one under the former secret,
//! where processes that know only that one look, and one under the secret in force. This store keeps
//! every claim in both, so that whoever claims and completes sees one.
//!
//! The former half is claimed first and ended last, as the current one ended. Where the former one was
//! overtaken, resolved or forgotten meanwhile, what is stored there is the answer for both.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, select};

use crate::fingerprint::Fingerprint;
use crate::operate::Operate;
use crate::record::{Record, Replay, State, Token};
use crate::response::Response;
use crate::slot::Slot;
use crate::store::{
    Claim, Claimed, Completed, Former, Lease, Release, Released, Renewed, Store, StoreError,
};

mod operate;
#[cfg(test)]
mod tests;

/// A store in which claims that have a [former address](Claim::former) are kept under both. An engine
/// that [rotates](crate::engine::Builder::rotate_from) its secret puts it around its own store.
pub struct Rotating {
    inner: Arc<dyn Store>,
}

impl Rotating {
    /// Keeps claims with a former address in `store` twice.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { inner: store }
    }

    /// Ends the former half of a claim whose current half is somebody else's: like that one, if its
    /// answer or its doubt is ours to take over, else as if nothing had been asked.
    async fn give_way(
        &self,
        claim: &Claim,
        former: &Former,
        held: &Lease,
        record: Record,
    ) -> Result<Claimed, StoreError> {
        let is_same = record.fingerprint == claim.fingerprint;
        let found = match record.response() {
            // An earlier attempt may have taken effect here: now it is known how it ended.
            Some(response) if is_same && held.attempt > 1 => {
                let keep_for = record.keep_left;
                match self.inner.complete(held, response, keep_for).await? {
                    Completed::Found(found) => Some(found),
                    Completed::Stored(_) | Completed::Absent => None,
                }
            }
            Some(_) | None => {
                let why = match is_same && is_in_doubt(&record) {
                    true => Release::Unknown,
                    false => held.unused(),
                };
                match self.inner.release(held, why).await? {
                    Released::Found(found) => Some(found),
                    Released::Ended => None,
                }
            }
        };
        Ok(Claimed::Taken(match found {
            Some(found) => former.seen_now(claim.fingerprint, found),
            None => record,
        }))
    }

    /// How to release a half whose other is in doubt. A claim that was never granted is only given back:
    /// so its token is dead, should it still be under way.
    async fn doubt_if_held(&self, half: &Lease, why: Release) -> Result<Release, StoreError> {
        Ok(match self.inner.renew(half, half.lease_for).await? {
            Renewed::Kept | Renewed::Busy => Release::Unknown,
            Renewed::Lost => why,
        })
    }

    /// The former half is not ours any more: the current one ends as it did.
    async fn end_as_former(
        &self,
        ours: &Ours<'_>,
        found: Record,
        response: &Response,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        if let Some(stored) = found.response() {
            let keep_for = kept_like(&found, response, keep_for);
            self.inner.complete(&ours.current, stored, keep_for).await?;
        } else if is_in_doubt(&found) {
            self.inner.release(&ours.current, Release::Unknown).await?;
        }
        Ok(Completed::Found(ours.seen_now(found)))
    }

    /// The current half is not ours any more, or was completed before: the former one ends as it did.
    /// Says what is found there instead, if that is not ours either.
    async fn end_as_current(
        &self,
        ours: &Ours<'_>,
        found: &Record,
        response: &Response,
        keep_for: Duration,
    ) -> Result<Option<Record>, StoreError> {
        let is_same = found.fingerprint == ours.current.fingerprint;
        let why = match found.response() {
            Some(stored) if is_same => {
                let keep_for = kept_like(found, response, keep_for);
                let completed = self.inner.complete(&ours.former, stored, keep_for).await?;
                return Ok(ours.another(completed, stored));
            }
            _ if !is_same => ours.former.unused(),
            _ if is_in_doubt(found) => Release::Unknown,
            // Somebody else is at it: who waits for its end asks again.
            _ => return Ok(None),
        };
        self.inner.release(&ours.former, why).await?;
        Ok(None)
    }
}

/// Whether nobody can say if it has happened.
fn is_in_doubt(record: &Record) -> bool {
    matches!(record.state, State::Unknown) || record.is_lapsed()
}

/// How long one half keeps what the other has: our own answer as long as was asked, with what the
/// record was extended by; any other until it is forgotten there.
fn kept_like(other: &Record, response: &Response, keep_for: Duration) -> Duration {
    match other.response() {
        Some(stored) if **stored == *response => keep_for,
        Some(_) | None => other.keep_left,
    }
}

impl Former {
    /// A record of the former half as it would be in the current one.
    pub(crate) fn seen_now(&self, fingerprint: Fingerprint, mut record: Record) -> Record {
        if record.fingerprint == self.fingerprint {
            record.fingerprint = fingerprint;
        }
        if record.meta.credential == self.meta.credential && self.credential.is_some() {
            Arc::make_mut(&mut record.meta).credential = self.credential;
        }
        record
    }
}

/// A lease and its two halves.
struct Ours<'a> {
    address: &'a Former,
    former: Lease,
    current: Lease,
}

impl<'a> Ours<'a> {
    /// Nothing, if it has only one.
    fn of(lease: &'a Lease) -> Option<Self> {
        let address = lease.former.as_deref()?;
        let [former, current] = lease.halves()?;
        Some(Self {
            address,
            former,
            current,
        })
    }

    fn seen_now(&self, record: Record) -> Record {
        self.address.seen_now(self.current.fingerprint, record)
    }

    /// What the former half has of the same meaning instead of `response`, if it has something.
    fn another(&self, completed: Completed, response: &Response) -> Option<Record> {
        match completed {
            Completed::Found(record) if record.fingerprint == self.former.fingerprint => {
                let is_other = record.response().is_none_or(|stored| **stored != *response);
                is_other.then(|| self.seen_now(record))
            }
            Completed::Found(_) | Completed::Stored(_) | Completed::Absent => None,
        }
    }
}

#[async_trait]
impl Store for Rotating {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let Some(former) = &claim.former else {
            return self.inner.claim(claim).await;
        };
        let first = Claim {
            slot: former.slot,
            fingerprint: former.fingerprint,
            meta: Arc::clone(&former.meta),
            former: None,
            ..claim.clone()
        };
        let (held, before) = match self.inner.claim(&first).await? {
            Claimed::Granted { lease, overtook } => (lease, overtook),
            Claimed::Taken(record) => {
                return Ok(Claimed::Taken(former.seen_now(claim.fingerprint, record)));
            }
            Claimed::Dead => return Ok(Claimed::Dead),
        };
        let second = Claim {
            former: None,
            ..claim.clone()
        };
        match self.inner.claim(&second).await? {
            Claimed::Granted { lease, overtook } => Ok(Claimed::Granted {
                lease: Lease {
                    attempt: lease.attempt.max(held.attempt),
                    former: Some(Arc::clone(former)),
                    ..lease
                },
                overtook: before.or(overtook),
            }),
            Claimed::Taken(record) => self.give_way(claim, former, &held, record).await,
            Claimed::Dead => {
                self.inner.release(&held, held.unused()).await?;
                Ok(Claimed::Dead)
            }
        }
    }

    /// Kept as long as both are.
    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        let Some(ours) = Ours::of(lease) else {
            return self.inner.renew(lease, lease_for).await;
        };
        let former = self.inner.renew(&ours.former, lease_for);
        let current = self.inner.renew(&ours.current, lease_for);
        let (first, second) = match select(former, current).await {
            Either::Left((first, second)) | Either::Right((first, second)) => (first, second),
        };
        // Said as soon as it is known, however long the other takes.
        if let Ok(Renewed::Lost) = first {
            return Ok(Renewed::Lost);
        }
        match (first?, second.await?) {
            (Renewed::Lost, _) | (_, Renewed::Lost) => Ok(Renewed::Lost),
            (Renewed::Busy, _) | (_, Renewed::Busy) => Ok(Renewed::Busy),
            (Renewed::Kept, Renewed::Kept) => Ok(Renewed::Kept),
        }
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let Some(ours) = Ours::of(lease) else {
            return self.inner.complete(lease, response, keep_for).await;
        };
        let complete = |half| self.inner.complete(half, response, keep_for);
        // With a fresh lease, nobody takes the former half over while the current one is completed.
        if let Renewed::Lost = self.inner.renew(&ours.former, lease.lease_for).await? {
            // With a lost one this only reads.
            return match complete(&ours.former).await? {
                Completed::Found(found) if found.fingerprint == ours.former.fingerprint => {
                    self.end_as_former(&ours, found, response, keep_for).await
                }
                // Forgotten: the current half is all there is.
                Completed::Found(_) | Completed::Stored(_) | Completed::Absent => {
                    complete(&ours.current).await
                }
            };
        }
        let completed = complete(&ours.current).await?;
        let other = match &completed {
            Completed::Stored(_) => ours.another(complete(&ours.former).await?, response),
            Completed::Found(found) => {
                let ending = self.end_as_current(&ours, found, response, keep_for);
                ending.await?
            }
            Completed::Absent => {
                let why = ours.former.unused();
                self.inner.release(&ours.former, why).await?;
                None
            }
        };
        Ok(other.map_or(completed, Completed::Found))
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        let Some(ours) = Ours::of(lease) else {
            return self.inner.release(lease, why).await;
        };
        let found = match self.inner.release(&ours.current, why).await? {
            Released::Ended => None,
            Released::Found(record) => Some(record),
        };
        let same = found
            .as_ref()
            .filter(|found| found.fingerprint == ours.current.fingerprint);
        let answer = same.and_then(|found| Some((found, found.response()?)));
        let other = match answer {
            // Completed by the handler itself, resolved, or overtaken by one that knows better.
            Some((found, stored)) if found.token == lease.token || why == Release::Unknown => {
                let keep_for = found.keep_left;
                let completed = self.inner.complete(&ours.former, stored, keep_for).await?;
                ours.another(completed, stored)
            }
            Some(_) | None => {
                let why = match same.is_some_and(is_in_doubt) {
                    true => self.doubt_if_held(&ours.former, why).await?,
                    false => why,
                };
                match self.inner.release(&ours.former, why).await? {
                    Released::Found(record) => Some(ours.seen_now(record)),
                    Released::Ended => None,
                }
            }
        };
        Ok(other.or(found).map_or(Released::Ended, Released::Found))
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.inner.settled(slot, seen, at_most).await
    }

    fn recall(&self, slot: &Slot, fingerprint: &Fingerprint) -> Option<Replay> {
        self.inner.recall(slot, fingerprint)
    }

    fn response_bytes_max(&self) -> Option<usize> {
        self.inner.response_bytes_max()
    }

    fn operate(&self) -> Option<&dyn Operate> {
        self.inner.operate().map(|_| self as &dyn Operate)
    }
}

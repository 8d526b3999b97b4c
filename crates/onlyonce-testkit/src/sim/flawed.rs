//! Stores with a planted bug each, on top of a sound one.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::Operate;
use onlyonce_core::store::Receipt;
use onlyonce_core::{
    Claim, Claimed, Clock, Completed, Lease, MemoryStore, Record, Release, Released, Renewed,
    Response, Slot, State, Store, StoreError, Token, async_trait,
};

use super::bug::Bug;
use super::clock::{StoreClock, millis, wall};

/// Between the reading and the writing half of a split step.
const GAP_MS: u64 = 2;

pub(super) struct Flawed {
    pub(super) sound: Arc<MemoryStore>,
    pub(super) clock: Arc<StoreClock>,
    pub(super) bug: Bug,
}

impl Flawed {
    async fn read(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.sound.get(slot).await
    }

    /// Any token passes: the lease of whoever holds the slot is used.
    async fn unfenced(&self, lease: &Lease) -> Result<Lease, StoreError> {
        let record = self.read(&lease.slot).await?;
        Ok(Lease {
            token: record.map_or(lease.token, |record| record.token),
            ..lease.clone()
        })
    }

    /// Whatever is there is overwritten.
    async fn split_claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let seen = self.read(&claim.slot).await?;
        let taken = seen.is_some_and(|record| !record.is_lapsed() && record.token != claim.token);
        tokio::time::sleep(millis(GAP_MS)).await;
        if !taken {
            self.sound.forget(&claim.slot).await?;
        }
        self.sound.claim(claim).await
    }

    async fn complete_late(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let other = self.read(&lease.slot).await?.filter(|record| {
            record.token != lease.token && matches!(record.state, State::Pending { .. })
        });
        let lease = match other {
            Some(record) => &Lease {
                token: record.token,
                ..lease.clone()
            },
            None => lease,
        };
        self.sound.complete(lease, response, keep_for).await
    }

    async fn keep_from_claim(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let record = self.read(&lease.slot).await?;
        let claimed = record.map_or(0, |record| record.created_at.as_millis());
        let since = self.clock.wall().as_millis().saturating_sub(claimed);
        let keep_for = keep_for.saturating_sub(millis(since)).max(millis(1));
        self.sound.complete(lease, response, keep_for).await
    }

    async fn acknowledge_first(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let holds = |record: &Record| {
            record.token == lease.token && matches!(record.state, State::Pending { .. })
        };
        let Some(record) = self.read(&lease.slot).await?.filter(holds) else {
            return self.sound.complete(lease, response, keep_for).await;
        };
        let (sound, lease) = (Arc::clone(&self.sound), lease.clone());
        let response = Arc::clone(response);
        tokio::spawn(async move {
            tokio::time::sleep(millis(GAP_MS)).await;
            drop(sound.complete(&lease, &response, keep_for).await);
        });
        let now = wall(self.clock.ms());
        Ok(Completed::Stored(Receipt {
            created_at: record.created_at,
            completed_at: now,
            expires_at: now.plus(keep_for),
        }))
    }
}

#[async_trait]
impl Store for Flawed {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        if self.bug == Bug::SplitClaim {
            return self.split_claim(claim).await;
        }
        self.sound.claim(claim).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        match self.bug {
            Bug::NoRenewal => Ok(Renewed::Kept),
            Bug::FencingOff => {
                self.sound
                    .renew(&self.unfenced(lease).await?, lease_for)
                    .await
            }
            Bug::SplitClaim
            | Bug::RetentionFromClaim
            | Bug::LateCompleteAfterTakeover
            | Bug::HangupCancels
            | Bug::AnswerBeforeStored
            | Bug::FormerIgnored => self.sound.renew(lease, lease_for).await,
        }
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        match self.bug {
            Bug::FencingOff => {
                let lease = self.unfenced(lease).await?;
                self.sound.complete(&lease, response, keep_for).await
            }
            Bug::RetentionFromClaim => self.keep_from_claim(lease, response, keep_for).await,
            Bug::LateCompleteAfterTakeover => self.complete_late(lease, response, keep_for).await,
            Bug::AnswerBeforeStored => self.acknowledge_first(lease, response, keep_for).await,
            Bug::SplitClaim | Bug::NoRenewal | Bug::HangupCancels | Bug::FormerIgnored => {
                self.sound.complete(lease, response, keep_for).await
            }
        }
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        if self.bug == Bug::FencingOff {
            return self.sound.release(&self.unfenced(lease).await?, why).await;
        }
        self.sound.release(lease, why).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.sound.settled(slot, seen, at_most).await
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(&*self.sound)
    }
}

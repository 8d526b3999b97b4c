//! The memory store with one thing wrong with it, in real time: what the checker must find by
//! the logs alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onlyonce_core::store::Receipt;
use onlyonce_core::{
    Claim, Claimed, Clock, Completed, Lease, MemoryStore, OnLapse, Operate, Record, Release,
    Released, Renewed, Response, Slot, State, Store, StoreError, SystemClock, Token, async_trait,
};
use tokio::time::sleep;

/// Between the two halves of what should be one step.
const GAP: Duration = Duration::from_millis(2);
/// One finished record in so many is lost, by a store that loses them.
const LOST_EVERY: u32 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    FencingOff,
    SplitClaim,
    NoRenewal,
    RetentionFromClaim,
    LateCompleteAfterTakeover,
    AnswerBeforeStored,
    IgnoresFingerprint,
    IgnoresHold,
    LosesAnswers,
}

pub(super) struct Flawed {
    sound: Arc<MemoryStore>,
    flaw: Flaw,
    completed: AtomicU32,
}

impl Flawed {
    pub(super) fn new(flaw: Flaw) -> Self {
        Self {
            sound: Arc::new(MemoryStore::new()),
            flaw,
            completed: AtomicU32::new(0),
        }
    }

    async fn read(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.sound.get(slot).await
    }

    /// The lease of whoever holds the slot.
    async fn unfenced(&self, lease: &Lease) -> Result<Lease, StoreError> {
        let record = self.read(&lease.slot).await?;
        Ok(Lease {
            token: record.map_or(lease.token, |record| record.token),
            ..lease.clone()
        })
    }

    async fn split_claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let seen = self.read(&claim.slot).await?;
        let taken = seen.is_some_and(|record| !record.is_lapsed() && record.token != claim.token);
        sleep(GAP).await;
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
        let pending = |record: &Record| matches!(record.state, State::Pending { .. });
        let lease = match self.read(&lease.slot).await?.filter(pending) {
            Some(record) => Lease {
                token: record.token,
                ..lease.clone()
            },
            None => lease.clone(),
        };
        self.sound.complete(&lease, response, keep_for).await
    }

    async fn keep_from_claim(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let record = self.read(&lease.slot).await?;
        let now = SystemClock::new().wall().as_millis();
        let claimed = record.map_or(now, |record| record.created_at.as_millis());
        let since = Duration::from_millis(now.saturating_sub(claimed));
        let left = keep_for.saturating_sub(since).max(GAP);
        self.sound.complete(lease, response, left).await
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
            sleep(GAP).await;
            drop(sound.complete(&lease, &response, keep_for).await);
        });
        Ok(Completed::Stored(Receipt {
            created_at: record.created_at,
            completed_at: record.created_at,
            expires_at: record.created_at.plus(keep_for),
        }))
    }

    async fn lose_some(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let completed = self.sound.complete(lease, response, keep_for).await;
        let count = self.completed.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(LOST_EVERY) {
            let (sound, slot) = (Arc::clone(&self.sound), lease.slot);
            tokio::spawn(async move {
                sleep(GAP * 10).await;
                drop(sound.forget(&slot).await);
            });
        }
        completed
    }
}

#[async_trait]
impl Store for Flawed {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        match self.flaw {
            Flaw::SplitClaim => self.split_claim(claim).await,
            Flaw::IgnoresHold => {
                let claim = Claim {
                    on_lapse: OnLapse::Rerun,
                    ..claim.clone()
                };
                self.sound.claim(&claim).await
            }
            Flaw::IgnoresFingerprint => {
                let mut claimed = self.sound.claim(claim).await?;
                if let Claimed::Taken(record) = &mut claimed {
                    record.fingerprint = claim.fingerprint;
                }
                Ok(claimed)
            }
            Flaw::FencingOff
            | Flaw::NoRenewal
            | Flaw::RetentionFromClaim
            | Flaw::LateCompleteAfterTakeover
            | Flaw::AnswerBeforeStored
            | Flaw::LosesAnswers => self.sound.claim(claim).await,
        }
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        match self.flaw {
            Flaw::NoRenewal => Ok(Renewed::Kept),
            Flaw::FencingOff => {
                let lease = self.unfenced(lease).await?;
                self.sound.renew(&lease, lease_for).await
            }
            Flaw::SplitClaim
            | Flaw::RetentionFromClaim
            | Flaw::LateCompleteAfterTakeover
            | Flaw::AnswerBeforeStored
            | Flaw::IgnoresFingerprint
            | Flaw::IgnoresHold
            | Flaw::LosesAnswers => self.sound.renew(lease, lease_for).await,
        }
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        match self.flaw {
            Flaw::FencingOff => {
                let lease = self.unfenced(lease).await?;
                self.sound.complete(&lease, response, keep_for).await
            }
            Flaw::RetentionFromClaim => self.keep_from_claim(lease, response, keep_for).await,
            Flaw::LateCompleteAfterTakeover => self.complete_late(lease, response, keep_for).await,
            Flaw::AnswerBeforeStored => self.acknowledge_first(lease, response, keep_for).await,
            Flaw::LosesAnswers => self.lose_some(lease, response, keep_for).await,
            Flaw::SplitClaim | Flaw::NoRenewal | Flaw::IgnoresFingerprint | Flaw::IgnoresHold => {
                self.sound.complete(lease, response, keep_for).await
            }
        }
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        if self.flaw == Flaw::FencingOff {
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

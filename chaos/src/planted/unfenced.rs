//! A store with a planted bug: it takes the answer of a holder that lost its lease, over whatever is
//! there.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::Operate;
use onlyonce_core::{
    Claim, Claimed, Completed, Lease, OnLapse, Release, Released, Renewed, Response, Slot, Store,
    StoreError, Token, async_trait,
};

pub(super) struct Unfenced {
    pub(super) sound: Arc<dyn Store>,
}

#[async_trait]
impl Store for Unfenced {
    /// Tokens are not compared: the last one to complete wins.
    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let completed = self.sound.complete(lease, response, keep_for).await?;
        let (Completed::Found(record), Some(operate)) = (&completed, self.sound.operate()) else {
            return Ok(completed);
        };
        if record.token == lease.token {
            return Ok(completed);
        }
        operate.forget(&lease.slot).await?;
        let claim = Claim {
            slot: lease.slot,
            fingerprint: lease.fingerprint,
            token: lease.token,
            on_lapse: OnLapse::Rerun,
            must_last: false,
            lease_for: lease.lease_for,
            keep_for: lease.keep_for,
            meta: Arc::clone(&record.meta),
        };
        self.sound.claim(&claim).await?;
        self.sound.complete(lease, response, keep_for).await
    }

    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.sound.claim(claim).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        self.sound.renew(lease, lease_for).await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
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
        self.sound.operate()
    }
}

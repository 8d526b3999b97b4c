//! A memory store whose operators' side fails where a test says so.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::operate::{Filter, Page, Resolved, Stats};
use onlyonce_core::{
    Claim, Claimed, Completed, Lease, MemoryStore, Operate, Record, Release, Released, Renewed,
    Response, Slot, Store, StoreError, StoreErrorKind, Token, async_trait,
};

/// What can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Forget,
    Resolve,
    /// It is stored, and the reply is lost.
    ResolveReply,
}

#[derive(Default)]
pub(crate) struct Flaky {
    inner: MemoryStore,
    failing: Mutex<Vec<(Act, Slot)>>,
}

impl Flaky {
    /// From now on this fails.
    pub(crate) fn fail(&self, act: Act, slot: &str) {
        let slot = Slot::from_hex(slot).unwrap();
        self.failing.lock().unwrap().push((act, slot));
    }

    fn try_to(&self, act: Act, slot: &Slot) -> Result<(), StoreError> {
        if self.failing.lock().unwrap().contains(&(act, *slot)) {
            return Err(StoreError::new("flaky", StoreErrorKind::Unavailable));
        }
        Ok(())
    }
}

/// The store as a gateway takes it, which the test keeps too.
pub(crate) struct Shared(pub(crate) Arc<Flaky>);

#[async_trait]
impl Store for Shared {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.0.inner.claim(claim).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        self.0.inner.renew(lease, lease_for).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        self.0.inner.complete(lease, response, keep_for).await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        self.0.inner.release(lease, why).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.0.inner.settled(slot, seen, at_most).await
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(&*self.0)
    }
}

#[async_trait]
impl Operate for Flaky {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.inner.get(slot).await
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        self.inner.list(filter, page).await
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        self.try_to(Act::Forget, slot)?;
        self.inner.forget(slot).await
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        self.inner.extend(slot, extra).await
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        self.try_to(Act::Resolve, slot)?;
        let resolved = self.inner.resolve(slot, response, keep_for).await?;
        self.try_to(Act::ResolveReply, slot)?;
        Ok(resolved)
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        self.inner.sweep(records_max).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.inner.stats().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.inner.ping().await
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        self.inner.count_replays(replays).await
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.inner.agree(name, offer).await
    }
}

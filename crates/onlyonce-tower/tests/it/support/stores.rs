//! A memory store that can be cut off, for one process or for all who share it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::{
    Claim, Claimed, Completed, Lease, MemoryStore, Operate, Release, Released, Renewed, Response,
    Slot, Store, StoreError, StoreErrorKind, Token, async_trait,
};

/// One process's way to a store, with a fault on it or not.
pub(crate) struct Faulty {
    store: Arc<MemoryStore>,
    fault: Mutex<Option<StoreErrorKind>>,
}

impl Faulty {
    /// A way to `store`, without a fault.
    pub(crate) fn to(store: &Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::clone(store),
            fault: Mutex::new(None),
        })
    }

    /// A way to nowhere: every verb fails.
    pub(crate) fn always(kind: StoreErrorKind) -> Arc<Self> {
        let faulty = Self::to(&Arc::default());
        faulty.fail(Some(kind));
        faulty
    }

    /// Fails every verb from now on, or none.
    pub(crate) fn fail(&self, kind: Option<StoreErrorKind>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = kind;
    }

    fn reach(&self) -> Result<&MemoryStore, StoreError> {
        match *self.fault.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(kind) => Err(StoreError::new("faulty", kind).caused_by("cut off by the test")),
            None => Ok(&self.store),
        }
    }
}

#[async_trait]
impl Store for Faulty {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.reach()?.claim(claim).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        self.reach()?.renew(lease, lease_for).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        self.reach()?.complete(lease, response, keep_for).await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        self.reach()?.release(lease, why).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.reach()?.settled(slot, seen, at_most).await
    }

    fn operate(&self) -> Option<&dyn Operate> {
        self.store.operate()
    }
}

//! The conformance suite against the custom store: all of it that five verbs can answer. A store
//! with an operators' side runs the whole of it by `onlyonce_conformance::conformance_suite!`.

use std::sync::Arc;
use std::time::Duration;

use onlyonce::core::operate::{Filter, Page, Resolved, Stats};
use onlyonce::core::{
    Claim, Claimed, Clock, Completed, Fingerprint, Lease, Operate, OsEntropy, Record, Release,
    Released, Renewed, Response, Slot, Store, StoreError, StoreErrorKind, SystemClock, Timestamp,
    Token, async_trait,
};
use onlyonce_conformance::TestBed;
use tokio::runtime::{Handle, RuntimeFlavor};

use example::MapStore;

#[path = "../../custom_store.rs"]
#[expect(dead_code, reason = "its main is for `cargo run`")]
mod example;

onlyonce_conformance::conformance_suite!(verbs: Bed::new());

/// The store on tokio's clock: paused on a runtime of one thread, real where tests race.
struct Bed {
    store: Arc<Readable>,
}

impl Bed {
    fn new() -> Self {
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            tokio::time::pause();
        }
        let store = MapStore::new(Arc::new(BedClock(SystemClock::new())));
        Self {
            store: Arc::new(Readable(store)),
        }
    }
}

#[async_trait]
impl TestBed for Bed {
    fn name(&self) -> &str {
        NAME
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }
}

/// Shows the time that passes, also when it is paused.
struct BedClock(SystemClock);

impl Clock for BedClock {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(1_735_689_600_000).plus(self.now())
    }
}

const NAME: &str = "map";

/// The store with as much of an operators' side as the suite needs to look at records.
struct Readable(MapStore);

#[async_trait]
impl Store for Readable {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.0.claim(claim).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        self.0.renew(lease, lease_for).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        self.0.complete(lease, response, keep_for).await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        self.0.release(lease, why).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.0.settled(slot, seen, at_most).await
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

#[async_trait]
impl Operate for Readable {
    /// Completes under a token that nobody has: fenced, that only reads.
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        let nobody = Lease {
            slot: *slot,
            token: Token::generate(&OsEntropy::new()),
            fingerprint: Fingerprint::new(Fingerprint::RECIPE, [0; 32]),
            lease_for: Duration::ZERO,
            keep_for: Duration::ZERO,
            attempt: 1,
        };
        let nothing = Arc::new(Response::panicked());
        match self.0.complete(&nobody, &nothing, Duration::ZERO).await? {
            Completed::Found(record) => Ok(Some(record)),
            Completed::Absent => Ok(None),
            Completed::Stored(_) => panic!("a token that nobody has completed a claim"),
        }
    }

    async fn list(&self, _: &Filter, _: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        Err(beyond_five_verbs())
    }

    async fn forget(&self, _: &Slot) -> Result<bool, StoreError> {
        Err(beyond_five_verbs())
    }

    async fn extend(&self, _: &Slot, _: Duration) -> Result<bool, StoreError> {
        Err(beyond_five_verbs())
    }

    async fn resolve(
        &self,
        _: &Slot,
        _: &Arc<Response>,
        _: Duration,
    ) -> Result<Resolved, StoreError> {
        Err(beyond_five_verbs())
    }

    async fn sweep(&self, _: usize) -> Result<usize, StoreError> {
        Err(beyond_five_verbs())
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        Err(beyond_five_verbs())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Err(beyond_five_verbs())
    }

    async fn count_replays(&self, _: &[(Slot, u64)]) -> Result<(), StoreError> {
        Err(beyond_five_verbs())
    }

    async fn agree(&self, _: &str, _: &[u8]) -> Result<Vec<u8>, StoreError> {
        Err(beyond_five_verbs())
    }
}

fn beyond_five_verbs() -> StoreError {
    StoreError::new(NAME, StoreErrorKind::Unavailable)
}

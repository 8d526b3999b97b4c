//! No wrapper forgets a verb: whatever the store inside says reaches who asks the wrapper.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Connections, Filter, Newest, Page, Resolved, Stats, Swept};
use onlyonce_core::{
    Claim, Claimed, Completed, Fingerprint, Lease, MemoryStore, Operate, OsEntropy, Record,
    Release, Released, Renewed, Replay, Response, Slot, Store, StoreError, StoreErrorKind, Token,
    async_trait,
};
use onlyonce_stores::{Cached, Guarded, KeyRing, Metered, Sealed};

use crate::rough::{LONG, done, fingerprint, replayed};

const CONNECTED: u64 = 7;
const CONNECTIONS: Connections = Connections {
    active: 3,
    exhausted: 5,
};
const BYTES_MAX: usize = 1 << 20;
/// More than there is to sweep.
const SWEPT_MORE: usize = 11;
/// Replays of a record that was asked for as one that callers are told of.
const DURABLE: u64 = 13;

/// The memory store, with what only stores on servers have.
struct Server(MemoryStore, Stands);

#[derive(Clone, Copy)]
enum Stands {
    Yes,
    HasEnded,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Server {
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

    fn recall(&self, slot: &Slot, fingerprint: &Fingerprint) -> Option<Replay> {
        self.0.recall(slot, fingerprint)
    }

    fn check(&self) -> Result<(), StoreError> {
        match self.1 {
            Stands::Yes => Ok(()),
            Stands::HasEnded => Err(StoreError::new("server", StoreErrorKind::Unavailable)),
        }
    }

    fn response_bytes_max(&self) -> Option<usize> {
        Some(BYTES_MAX)
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Operate for Server {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.0.get(slot).await
    }

    /// Whatever is told to callers was asked for as such.
    async fn get_durable(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        let found = self.0.get(slot).await?;
        Ok(found.map(|record| Record {
            replays: DURABLE,
            ..record
        }))
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        self.0.list(filter, page).await
    }

    async fn newest(
        &self,
        filter: &Filter,
        page: &Newest,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        self.0.newest(filter, page).await
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        self.0.forget(slot).await
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        self.0.extend(slot, extra).await
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        self.0.resolve(slot, response, keep_for).await
    }

    async fn discard(&self, slot: &Slot) -> Result<Resolved, StoreError> {
        self.0.discard(slot).await
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        self.0.sweep(records_max).await
    }

    async fn sweep_ended(&self, records_max: usize) -> Result<Swept, StoreError> {
        let swept = self.0.sweep_ended(records_max).await?;
        Ok(Swept {
            records: swept.records + SWEPT_MORE,
            ..swept
        })
    }

    fn hands_over_ended(&self) -> bool {
        true
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.0.stats().await
    }

    fn connections(&self) -> Option<Connections> {
        Some(CONNECTIONS)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.0.ping().await
    }

    async fn recheck(&self) -> Result<(), StoreError> {
        self.0.recheck().await
    }

    fn connected(&self) -> u64 {
        CONNECTED
    }

    fn is_on_a_server(&self) -> bool {
        true
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        self.0.count_replays(replays).await
    }

    async fn number_replays(
        &self,
        replays: &[(Slot, u64)],
    ) -> Result<Vec<(Slot, u64)>, StoreError> {
        self.0.number_replays(replays).await
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.0.agree(name, offer).await
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.agreed(name).await
    }
}

fn server(stands: Stands) -> Arc<dyn Store> {
    Arc::new(Server(MemoryStore::new(), stands))
}

async fn wrappers() -> [(&'static str, Arc<dyn Store>); 4] {
    wrappers_of_one_that(Stands::Yes).await
}

async fn wrappers_of_one_that(stands: Stands) -> [(&'static str, Arc<dyn Store>); 4] {
    let server = || server(stands);
    let ring = KeyRing::generate(&OsEntropy::new());
    [
        ("cached", Arc::new(Cached::new(server()))),
        ("guarded", Arc::new(Guarded::new(server()))),
        ("metered", Arc::new(Metered::new(server()))),
        (
            "sealed",
            Arc::new(Sealed::open(server(), ring).await.unwrap()),
        ),
    ]
}

#[tokio::test]
async fn every_wrapper_tells_of_the_connections_inside() {
    for (name, store) in wrappers().await {
        let operate = store.operate().unwrap();

        assert_eq!(operate.connections(), Some(CONNECTIONS), "{name}");
        assert_eq!(operate.connected(), CONNECTED, "{name}");
        assert!(operate.is_on_a_server(), "{name}");
    }
}

#[tokio::test]
async fn every_wrapper_hands_over_what_the_store_inside_does() {
    for (name, store) in wrappers().await {
        let operate = store.operate().unwrap();

        assert!(operate.hands_over_ended(), "{name}");
        let swept = operate.sweep_ended(10).await.unwrap();
        assert_eq!(swept.records, SWEPT_MORE, "{name}");
    }
}

/// What callers are told is not what operators are shown.
#[tokio::test]
async fn every_wrapper_asks_for_what_callers_are_told_as_such() {
    for (name, store) in wrappers().await {
        let claim = done(&*store, "stored", LONG).await;
        let operate = store.operate().unwrap();

        let told = operate.get_durable(&claim.slot).await.unwrap().unwrap();
        let shown = operate.get(&claim.slot).await.unwrap().unwrap();

        assert_eq!((told.replays, shown.replays), (DURABLE, 0), "{name}");
        assert_eq!(told.response().unwrap().body, "stored", "{name}");
    }
}

#[tokio::test]
async fn every_wrapper_tells_that_the_store_inside_has_ended() {
    for (name, store) in wrappers_of_one_that(Stands::HasEnded).await {
        assert!(store.check().is_err(), "{name}");
    }
    for (name, store) in wrappers().await {
        assert!(store.check().is_ok(), "{name}");
    }
}

/// What one that has ended said before is not shown in its stead.
#[tokio::test]
async fn a_cache_shows_nothing_of_a_store_that_has_ended() {
    for (name, store) in wrappers_of_one_that(Stands::HasEnded).await {
        if name == "cached" {
            let claim = done(&*store, "stored", LONG).await;

            assert!(store.recall(&claim.slot, &claim.fingerprint).is_none());
            assert!(store.claim(&claim).await.is_err());
        }
    }
}

#[tokio::test]
async fn every_wrapper_has_the_bound_of_the_store_inside() {
    for (name, store) in wrappers().await {
        let bytes_max = store.response_bytes_max().unwrap();

        assert!(
            bytes_max <= BYTES_MAX && bytes_max > BYTES_MAX / 2,
            "{name}"
        );
    }
}

#[tokio::test]
async fn every_wrapper_but_the_seal_has_at_hand_what_the_store_inside_has() {
    for (name, store) in wrappers().await {
        let claim = done(&*store, "stored", LONG).await;

        let recalled = store.recall(&claim.slot, &claim.fingerprint);

        match recalled {
            Some(replay) => assert_eq!(replay.response.body, "stored", "{name}"),
            // What is inside it is sealed.
            None => assert_eq!(name, "sealed"),
        }
        assert!(
            store.recall(&claim.slot, &fingerprint(9)).is_none(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_cache_has_at_hand_what_it_remembers() {
    let ring = KeyRing::generate(&OsEntropy::new());
    let sealed = Arc::new(Sealed::open(server(Stands::Yes), ring).await.unwrap());
    let store = Cached::new(sealed.clone());
    let claim = done(&*sealed, "stored", LONG).await;
    assert!(store.recall(&claim.slot, &claim.fingerprint).is_none());
    replayed(&store, &claim).await;

    let recalled = store.recall(&claim.slot, &claim.fingerprint).unwrap();

    assert_eq!(recalled.response.body, "stored");
    assert_eq!(store.tally().hits, 1);
    assert!(store.recall(&claim.slot, &fingerprint(9)).is_none());
    assert!(store.forget(&claim.slot).await.unwrap());
    assert!(store.recall(&claim.slot, &claim.fingerprint).is_none());
}

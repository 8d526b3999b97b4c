//! Compression without a seal: fewer bytes in the store, the same answers out of it.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use onlyonce_core::operate::Operate;
use onlyonce_core::{
    Claim, Claimed, Completed, Lease, MemoryStore, Release, Released, Renewed, Response, Slot,
    Store, StoreError, StoreErrorKind, Token, async_trait,
};
use onlyonce_stores::Compressed;
use onlyonce_testkit::conformance::TestBed;

use crate::rough::{LONG, claim, lease};

struct Bed(Arc<dyn Store>);

#[async_trait]
impl TestBed for Bed {
    fn name(&self) -> &str {
        "compressed"
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0)
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }
}

onlyonce_testkit::conformance_suite!(Bed(Arc::new(
    Compressed::new(Arc::new(MemoryStore::new())).above(0)
)));

/// A store that takes no answer of more than 4 KiB.
struct Small(MemoryStore);

const SMALL_BYTES: usize = 4096;

#[async_trait]
impl Store for Small {
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
        if response.bytes() > SMALL_BYTES {
            return Err(StoreError::new("small", StoreErrorKind::TooLarge));
        }
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

    fn response_bytes_max(&self) -> Option<usize> {
        Some(SMALL_BYTES)
    }

    fn operate(&self) -> Option<&dyn Operate> {
        self.0.operate()
    }
}

fn large() -> Arc<Response> {
    let mut response = Response::new(http::StatusCode::OK, "again and again ".repeat(10_000));
    response.resource = Some("list/7".into());
    Arc::new(response)
}

/// Bytes that no compression makes smaller.
fn noise(bytes: usize) -> Arc<Response> {
    let mut state = 7_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    let body: Vec<u8> = (0..bytes).map(|_| next()).collect();
    Arc::new(Response::new(http::StatusCode::OK, body))
}

async fn stored(store: &dyn Store, inside: &MemoryStore, answer: &Arc<Response>) -> usize {
    let claim = claim();
    let held = lease(store, &claim).await;
    let completed = store.complete(&held, answer, LONG).await.unwrap();
    assert!(matches!(completed, Completed::Stored(_)), "{completed:?}");
    let shown = store.operate().unwrap().get(&claim.slot).await.unwrap();
    assert_eq!(shown.unwrap().response(), Some(answer));
    let kept = inside.get(&claim.slot).await.unwrap().unwrap();
    kept.response().unwrap().bytes()
}

#[tokio::test]
async fn a_large_answer_takes_less_room_and_comes_back_as_it_was() {
    let inside = Arc::new(MemoryStore::new());
    let store = Compressed::new(Arc::clone(&inside) as _);
    let small = Arc::new(Response::new(http::StatusCode::OK, "a".repeat(500)));

    assert!(stored(&store, &inside, &large()).await < large().bytes() / 10);
    assert_eq!(stored(&store, &inside, &small).await, small.bytes());
    let random = noise(5000);
    assert_eq!(stored(&store, &inside, &random).await, random.bytes());
}

#[tokio::test]
async fn a_handlers_header_of_that_name_is_a_header() {
    let inside = Arc::new(MemoryStore::new());
    let store = Compressed::new(Arc::clone(&inside) as _);
    let mut answer = Response::new(http::StatusCode::OK, "not compressed");
    let mark = HeaderValue::from_static("1;zstd");
    answer.headers.insert("onlyonce-compressed", mark);

    stored(&store, &inside, &Arc::new(answer)).await;
}

#[tokio::test]
async fn what_was_stored_before_is_read_and_what_is_damaged_is_refused() {
    let inside = Arc::new(MemoryStore::new());
    let store = Compressed::new(Arc::clone(&inside) as _);
    let (before, damaged) = (claim(), claim());
    let mut broken = Response::new(http::StatusCode::OK, "no zstd");
    let mark = HeaderValue::from_static("1;zstd");
    broken.headers.insert("onlyonce-compressed", mark);
    for (claim, answer) in [(&before, large()), (&damaged, Arc::new(broken))] {
        let held = lease(&*inside, claim).await;
        inside.complete(&held, &answer, LONG).await.unwrap();
    }

    let operate = store.operate().unwrap();
    let read = operate.get(&before.slot).await.unwrap().unwrap();
    assert_eq!(read.response(), Some(&large()));
    let error = operate.get(&damaged.slot).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Corrupt);
}

/// Compressed first, and only then too large.
#[tokio::test]
async fn only_what_is_too_large_compressed_is_too_large() {
    let store = Compressed::new(Arc::new(Small(MemoryStore::new())));
    assert_eq!(store.response_bytes_max(), None);

    let held = lease(&store, &claim()).await;
    let completed = store.complete(&held, &large(), LONG).await.unwrap();
    assert!(matches!(completed, Completed::Stored(_)), "{completed:?}");

    let held = lease(&store, &claim()).await;
    let error = store.complete(&held, &noise(2 * SMALL_BYTES), LONG).await;
    assert_eq!(error.unwrap_err().kind, StoreErrorKind::TooLarge);
}

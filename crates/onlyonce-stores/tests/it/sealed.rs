//! A sealed store (R7, docs/protocol.md#rule-24) keeps secret what it is given, gives it back exactly, and
//! refuses whatever is not what it sealed.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use onlyonce_core::Verb;
use onlyonce_core::operate::Resolved;
use onlyonce_core::{
    Claim, Claimed, Completed, Fingerprint, Lease, MemoryStore, OnLapse, Operate, Origin,
    OsEntropy, Record, Release, Response, Slot, State, Store, StoreErrorKind, codec,
};
use onlyonce_stores::{Cached, KeyRing, Sealed};

use crate::rough::{
    Fault, LONG, Rough, WrappedBed, answer, claim, done, failure, fingerprint, is_granted, lease,
    replayed, rival, taken,
};

mod key_file;
mod plain;
mod properties;
mod rotation;
mod start;
mod tampering;

mod one_key {
    use super::*;

    onlyonce_testkit::conformance_suite!(
        WrappedBed::new("sealed", async |store| sealed(store, KEY_A).await).await
    );
}

mod rotated_and_compressed {
    use super::*;

    onlyonce_testkit::conformance_suite!(
        WrappedBed::new("sealed, compressed", async |store| {
            sealed(store, KEYS_BA).await.compress_above(0)
        })
        .await
    );
}

const KEY_A: &str = "a uXkWzYGHK9nCGFwtcTz6HcJpTPtdCgb4SfTc0ULuYsA=";
const KEY_B: &str = "b XnFwOqxiVZSDsXGBzcz8dTq9C4zZgzlL5FZOZQxjBYY=";
/// After a rotation: `b` seals, both open.
const KEYS_BA: &str = "b XnFwOqxiVZSDsXGBzcz8dTq9C4zZgzlL5FZOZQxjBYY=
                       a uXkWzYGHK9nCGFwtcTz6HcJpTPtdCgb4SfTc0ULuYsA=";

async fn sealed(store: Arc<dyn Store>, ring: &str) -> Sealed {
    let ring = KeyRing::parse(ring).unwrap();
    Sealed::open(store, ring).await.unwrap()
}

/// A store, and the same store with a seal.
async fn bed() -> (Arc<MemoryStore>, Sealed) {
    let raw = Arc::new(MemoryStore::new());
    let store = sealed(raw.clone(), KEY_A).await;
    (raw, store)
}

async fn stored(raw: &dyn Operate, slot: &Slot) -> Record {
    raw.get(slot).await.unwrap().expect("it is there")
}

/// What someone who can write to the store can do: put any answer and fingerprint into a record.
async fn put(raw: &MemoryStore, slot: &Slot, record: &Record, response: Response) {
    raw.forget(slot).await.unwrap();
    let claim = Claim {
        slot: *slot,
        fingerprint: record.fingerprint,
        token: record.token,
        ..claim()
    };
    let lease = lease(raw, &claim).await;
    let completed = raw.complete(&lease, &Arc::new(response), LONG).await;
    assert!(matches!(completed, Ok(Completed::Stored(_))));
}

/// The stored answer, sealed as it is.
fn response_of(record: &Record) -> Response {
    Response::clone(record.response().expect("it is finished"))
}

/// An answer with something to hide in every part.
fn secrets() -> Response {
    let mut headers = HeaderMap::new();
    headers.append("x-secret", HeaderValue::from_static("hidden-header"));
    headers.append("x-secret", HeaderValue::from_static("hidden-again"));
    let mut trailers = HeaderMap::new();
    trailers.append("x-sum", HeaderValue::from_static("hidden-trailer"));
    Response {
        status: StatusCode::CREATED,
        headers,
        body: "hidden-body".into(),
        trailers: Some(trailers),
        origin: Origin::Handler,
        took: Duration::from_millis(1234),
        resource: Some("hidden-resource".to_owned()),
    }
}

fn holds(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

#[tokio::test]
async fn nothing_of_an_answer_can_be_read_in_the_store() {
    let (raw, store) = bed().await;
    let claim = claim();
    let lease = lease(&store, &claim).await;
    let response = Arc::new(secrets());
    store.complete(&lease, &response, LONG).await.unwrap();

    let kept = response_of(&stored(&*raw, &claim.slot).await);

    let bytes = codec::encode_response(&kept);
    assert!(!holds(&bytes, b"hidden") && !holds(&bytes, b"x-s"));
    assert_eq!((kept.trailers, kept.resource), (None, None));
    assert_eq!(kept.headers.len(), 1);
    assert_eq!(kept.headers["onlyonce-sealed"], "1;key=a");
}

/// A wrapper inside goes by what it was told with the claim: a lease has no fingerprint there.
#[tokio::test]
async fn what_a_cache_inside_remembers_is_of_the_same_meaning() {
    let cache = Cached::new(Arc::new(MemoryStore::new()));
    let store = sealed(Arc::new(cache), KEY_A).await;
    let claim = done(&store, "paid", LONG).await;

    let record = taken(&store, &claim).await;

    assert_eq!(record.fingerprint, claim.fingerprint);
    assert_eq!(record.response().unwrap().body, "paid");
}

#[tokio::test]
async fn whoever_has_the_key_reads_all_of_it() {
    let (_, store) = bed().await;
    let claim = claim();
    let lease = lease(&store, &claim).await;
    let response = Arc::new(secrets());
    store.complete(&lease, &response, LONG).await.unwrap();

    let record = taken(&store, &claim).await;
    let late = store.complete(&lease, &answer("late"), LONG).await.unwrap();

    assert_eq!(record.response(), Some(&response));
    assert_eq!(record.fingerprint, claim.fingerprint);
    let Completed::Found(found) = late else {
        panic!("{late:?}");
    };
    assert_eq!(found.response(), Some(&response));
}

#[tokio::test]
async fn what_operators_need_stays_readable() {
    let (raw, store) = bed().await;
    let claim = claim();
    let lease = lease(&store, &claim).await;
    let response = Arc::new(Response {
        status: StatusCode::BAD_GATEWAY,
        ..secrets()
    });
    store.complete(&lease, &response, LONG).await.unwrap();

    let outside = stored(&*raw, &claim.slot).await;
    let inside = stored(&store, &claim.slot).await;

    assert_eq!(outside.meta, claim.meta);
    assert_eq!(outside.token, claim.token);
    assert!(matches!(&outside.state, State::Failed(_)));
    let kept = response_of(&outside);
    assert_eq!(kept.status, response.status);
    assert_eq!(kept.origin, response.origin);
    assert_eq!(kept.took, response.took);
    let shown = response_of(&inside);
    assert_eq!(shown.body.len(), response.body.len());
    assert_eq!(shown.resource, response.resource);
}

/// Stores go by slot and token: what they are not shown cannot be learned from them.
#[tokio::test]
async fn a_store_is_shown_no_fingerprint_of_a_lease() {
    let rough = Rough::new(Arc::new(MemoryStore::new()));
    let ring = KeyRing::generate(&OsEntropy::new());
    let store = Sealed::open(Arc::clone(&rough) as _, ring).await.unwrap();
    for way in 0..2 {
        let lease = lease(&store, &claim()).await;
        store.renew(&lease, LONG).await.unwrap();
        if way == 0 {
            store.complete(&lease, &answer("done"), LONG).await.unwrap();
        } else {
            store.release(&lease, Release::Unknown).await.unwrap();
        }
    }

    let shown = rough.leases();

    assert_eq!(shown.len(), 4);
    for lease in shown {
        assert_eq!(lease.fingerprint.digest(), &[0; 32]);
    }
}

#[tokio::test]
async fn a_stolen_store_does_not_tell_which_request_it_was() {
    let (raw, store) = bed().await;
    let (one, two) = (claim(), claim());
    assert_eq!(one.fingerprint, two.fingerprint);
    lease(&store, &one).await;
    lease(&store, &two).await;

    let one_kept = stored(&*raw, &one.slot).await;
    let two_kept = stored(&*raw, &two.slot).await;

    assert_ne!(one_kept.fingerprint, one.fingerprint);
    assert_ne!(two_kept.fingerprint, two.fingerprint);
    assert_ne!(one_kept.fingerprint, two_kept.fingerprint);
    let shown = stored(&store, &one.slot).await;
    assert_eq!(shown.fingerprint, one.fingerprint);
}

#[tokio::test]
async fn a_large_answer_is_compressed() {
    let (raw, store) = bed().await;
    let text = "the same line again and again\n".repeat(1000);
    let response = Arc::new(Response::new(StatusCode::OK, text));
    let claim = claim();
    let lease = lease(&store, &claim).await;
    store.complete(&lease, &response, LONG).await.unwrap();

    let kept = response_of(&stored(&*raw, &claim.slot).await);

    assert_eq!(kept.headers["onlyonce-sealed"], "1;key=a;zstd");
    assert!(kept.body.len() < response.body.len() / 20);
    assert_eq!(taken(&store, &claim).await.response(), Some(&response));
    let shown = response_of(&stored(&store, &claim.slot).await);
    assert_eq!(shown.body.len(), response.body.len());
}

#[tokio::test]
async fn an_answer_is_not_compressed_if_that_makes_it_no_smaller() {
    let (raw, store) = bed().await;
    let mut body = vec![0; 3000];
    onlyonce_core::Entropy::fill(&OsEntropy::new(), &mut body);
    let small = Response::new(StatusCode::OK, "a".repeat(500));

    for response in [Response::new(StatusCode::OK, body), small] {
        let (claim, response) = (claim(), Arc::new(response));
        let lease = lease(&store, &claim).await;
        store.complete(&lease, &response, LONG).await.unwrap();

        let kept = response_of(&stored(&*raw, &claim.slot).await);
        assert_eq!(kept.headers["onlyonce-sealed"], "1;key=a");
        assert!(kept.body.len() < response.body.len() + 100);
        assert_eq!(taken(&store, &claim).await.response(), Some(&response));
    }
}

#[tokio::test]
async fn compression_can_be_turned_off() {
    let (raw, store) = bed().await;
    let store = store.compress_above(usize::MAX);
    let response = Arc::new(Response::new(StatusCode::OK, "a".repeat(100_000)));
    let claim = claim();
    let lease = lease(&store, &claim).await;
    store.complete(&lease, &response, LONG).await.unwrap();

    let kept = response_of(&stored(&*raw, &claim.slot).await);

    assert!(kept.body.len() > response.body.len());
}

/// As within a database transaction, where the store inside completes by itself.
#[tokio::test]
async fn an_answer_sealed_by_hand_can_be_stored_beside_the_wrapper() {
    let (raw, store) = bed().await;
    let claim = claim();
    let lease = lease(&store, &claim).await;

    let by_hand = store.seal(&lease, &secrets());
    raw.complete(&lease, &by_hand, LONG).await.unwrap();

    assert_eq!(
        taken(&store, &claim).await.response(),
        Some(&Arc::new(secrets()))
    );
}

#[tokio::test]
async fn an_operators_answer_is_sealed_too() {
    let (raw, store) = bed().await;
    let unknown = Claim {
        on_lapse: OnLapse::Hold,
        ..claim()
    };
    let lease = lease(&store, &unknown).await;
    store.release(&lease, Release::Unknown).await.unwrap();

    let resolved = store.resolve(&unknown.slot, &answer("hidden"), LONG).await;

    assert!(matches!(resolved, Ok(Resolved::Stored)));
    let kept = response_of(&stored(&*raw, &unknown.slot).await);
    assert!(!holds(&kept.body, b"hidden"));
    assert_eq!(replayed(&store, &unknown).await, b"hidden");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_changes_hands_while_it_is_resolved_is_reported() {
    let raw = Arc::new(MemoryStore::new());
    let rough = Rough::new(raw.clone());
    let store = Arc::new(sealed(rough.clone(), KEY_A).await);
    let lapsed = Claim {
        lease_for: Duration::ZERO,
        ..claim()
    };
    lease(&*store, &lapsed).await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    rough.next([Fault::Nothing, Fault::HoldCall(Arc::clone(&gate))]);

    let resolving = tokio::spawn({
        let (store, slot) = (Arc::clone(&store), lapsed.slot);
        async move { store.resolve(&slot, &answer("resolved"), LONG).await }
    });
    tokio::task::yield_now().await;
    let kept = stored(&*raw, &lapsed.slot).await;
    let successor = Claim {
        fingerprint: kept.fingerprint,
        ..rival(&lapsed)
    };
    lease(&*raw, &successor).await;
    gate.add_permits(1);

    let (kind, said) = failure(resolving.await.unwrap());
    assert_eq!(kind, StoreErrorKind::Corrupt);
    assert!(
        said.contains("changed hands while it was resolved"),
        "{said}"
    );
}

#[tokio::test]
async fn each_verb_is_still_one_round_trip() {
    let rough = Rough::new(Arc::new(MemoryStore::new()));
    let store = sealed(rough.clone(), KEYS_BA).await;
    rough.asked();

    let claim = done(&store, "stored", LONG).await;
    taken(&store, &claim).await;
    store.renew(&claim.lease(), LONG).await.unwrap();
    store
        .release(&claim.lease(), Release::NotRun)
        .await
        .unwrap();

    let each = [
        Verb::Claim,
        Verb::Complete,
        Verb::Claim,
        Verb::Renew,
        Verb::Release,
    ];
    assert_eq!(rough.asked(), each);
}

//! How much is remembered, and for how long.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::*;

/// What a connection was read into.
struct Buffer(Arc<Vec<u8>>);

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_does_not_keep_what_was_read_beside_it() {
    let bed = Bed::exclusive();
    let memory = Arc::new(vec![b'x'; 64 << 10]);
    let buffer = Bytes::from_owner(Buffer(Arc::clone(&memory)));
    let headers = |range| {
        let mut secret = HeaderValue::from_maybe_shared(buffer.slice(range)).unwrap();
        secret.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.append("x-note", HeaderValue::from_static("one"));
        headers.append("x-note", HeaderValue::from_static("two"));
        headers.insert("x-secret", secret);
        headers
    };
    let answer = Arc::new(Response {
        headers: headers(0..10),
        trailers: Some(headers(10..30)),
        ..Response::new(StatusCode::OK, buffer.slice(30..40))
    });
    let asked = claim();
    let lease = lease(&*bed.store, &asked).await;
    bed.store.complete(&lease, &answer, LONG).await.unwrap();
    bed.rough.asked();

    let record = taken(&*bed.store, &asked).await;

    let remembered = record.response().unwrap();
    assert!(*remembered.body == answer.body && remembered.headers == answer.headers);
    assert_eq!(remembered.trailers, answer.trailers);
    assert!(remembered.headers["x-secret"].is_sensitive());
    assert!(bed.rough.asked().is_empty(), "it is remembered");
    drop((answer, buffer));
    // The store inside has copied it too.
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[tokio::test(start_paused = true)]
async fn on_a_shared_store_nothing_is_remembered_longer_than_five_seconds() {
    let store = Cached::new(Arc::new(MemoryStore::new()));

    assert_eq!(store.age_max(LONG).lag(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_bound_can_be_set() {
    let bed = Bed::new(|cached| cached.age_max(SECOND));
    let claim = bed.remembered(LONG).await;

    sleep(SECOND - Duration::from_millis(1)).await;
    assert!(bed.is_remembered(&claim).await);
    sleep(Duration::from_millis(1)).await;

    assert!(!bed.is_remembered(&claim).await);
    assert_eq!(bed.store.lag(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn without_age_nothing_is_remembered() {
    let bed = Bed::new(|cached| cached.age_max(Duration::ZERO));
    let claim = bed.remembered(LONG).await;

    assert!(!bed.is_remembered(&claim).await);
}

#[tokio::test(start_paused = true)]
async fn on_an_exclusive_store_a_result_is_remembered_to_its_end() {
    let bed = Bed::exclusive();
    let claim = bed.remembered(24 * LONG).await;

    sleep(24 * LONG - SECOND).await;

    assert!(bed.is_remembered(&claim).await);
    assert_eq!(bed.store.lag(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn there_are_never_more_entries_than_allowed() {
    const ENTRIES_MAX: usize = 100;
    let bed = Bed::new(|cached| cached.entries_max(ENTRIES_MAX));

    for _ in 0..5 * ENTRIES_MAX {
        bed.remembered(LONG).await;
        assert!(bed.store.tally().entries <= ENTRIES_MAX as u64);
    }

    assert!(bed.store.tally().entries >= ENTRIES_MAX as u64 / 2);
}

#[tokio::test(start_paused = true)]
async fn there_are_never_more_bytes_than_allowed() {
    const BYTES_MAX: u64 = 1 << 20;
    const BODY_BYTES: usize = 10_000;
    let bed = Bed::new(|cached| cached.bytes_max(BYTES_MAX));

    for _ in 0..500 {
        remember(&bed, BODY_BYTES).await;
        assert!(bed.store.tally().bytes <= BYTES_MAX + 64);
    }

    let tally = bed.store.tally();
    assert!(tally.entries <= BYTES_MAX / BODY_BYTES as u64);
    assert!(tally.bytes >= BYTES_MAX / 4, "{tally:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_is_asked_for_each_time() {
    let bed = Bed::new(|cached| cached.bytes_max(1 << 20));
    let claim = remember(&bed, 2 << 20).await;

    assert!(!bed.is_remembered(&claim).await);
    assert_eq!(bed.store.tally().entries, 0);
}

#[tokio::test(start_paused = true)]
async fn a_cache_of_nothing_remembers_nothing() {
    let none: [fn(Cached) -> Cached; 2] = [|it| it.entries_max(0), |it| it.bytes_max(0)];
    for configure in none {
        let bed = Bed::new(configure);
        let claim = bed.remembered(LONG).await;

        assert!(!bed.is_remembered(&claim).await);
    }
}

async fn remember(bed: &Bed, body_bytes: usize) -> Claim {
    let claim = claim();
    let lease = lease(&*bed.store, &claim).await;
    let response = Arc::new(Response::new(StatusCode::OK, vec![7; body_bytes]));
    bed.store.complete(&lease, &response, LONG).await.unwrap();
    taken(&*bed.store, &claim).await;
    bed.rough.asked();
    claim
}

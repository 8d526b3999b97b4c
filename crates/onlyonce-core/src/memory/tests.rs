//! The memory store's own promises: its bounds, and in the file below this one its growth. What it
//! promises as a store is in the conformance suite.

mod growth;

use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use http::StatusCode;

use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::key::Hint;
use crate::operate::StateName;
use crate::record::{Meta, OnLapse};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A clock that moves when it is told to.
#[derive(Default)]
struct HandClock {
    millis: AtomicU64,
}

impl HandClock {
    fn advance(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap();
        self.millis.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.millis.load(Ordering::Relaxed))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(0).plus(self.now())
    }
}

fn store() -> (MemoryStore, Arc<HandClock>) {
    let clock = Arc::new(HandClock::default());
    (MemoryStore::with_clock(Arc::clone(&clock) as _), clock)
}

/// A number as the bytes of a digest: spread over all shards, no two alike.
fn spread(n: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (index, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64;
        chunk.copy_from_slice(&mixed.to_le_bytes());
    }
    bytes
}

/// The first claim for slot number `n`.
fn claim(n: u64) -> Claim {
    let mut token = [0; Token::BYTES];
    token[..8].copy_from_slice(&n.to_le_bytes());
    Claim {
        slot: Slot::from_bytes(spread(n)),
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
        token: Token::from_bytes(token),
        on_lapse: OnLapse::Rerun,
        must_last: false,
        lease_for: SECOND,
        keep_for: MINUTE,
        meta: Arc::new(Meta {
            hint: Hint::default(),
            operation: "test".into(),
            actor: None,
            holder: "here".into(),
            trace: None,
            credential: None,
        }),
    }
}

/// The same claim by somebody else.
fn rival(claim: &Claim) -> Claim {
    let mut token = *claim.token.as_bytes();
    token[15] += 1;
    Claim {
        token: Token::from_bytes(token),
        ..claim.clone()
    }
}

fn answer(bytes: usize) -> Arc<Response> {
    Arc::new(Response::new(StatusCode::OK, vec![7; bytes]))
}

async fn grant(store: &MemoryStore, claim: &Claim) -> Lease {
    match store.claim(claim).await.unwrap() {
        Claimed::Granted { lease, .. } => lease,
        other @ (Claimed::Taken(_) | Claimed::Dead) => panic!("not granted: {other:?}"),
    }
}

async fn finish(store: &MemoryStore, claim: &Claim, bytes: usize, keep_for: Duration) {
    let lease = grant(store, claim).await;
    let completed = store.complete(&lease, &answer(bytes), keep_for).await;
    assert!(matches!(completed, Ok(Completed::Stored(_))));
}

async fn is_full_for(store: &MemoryStore, claim: &Claim) -> bool {
    match store.claim(claim).await {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind, StoreErrorKind::Full);
            assert!(error.to_string().contains("memory store: full"));
            true
        }
    }
}

async fn records(store: &MemoryStore) -> u64 {
    store.stats().await.unwrap().records
}

async fn sweep(store: &MemoryStore) -> usize {
    store.sweep(usize::MAX).await.unwrap()
}

#[tokio::test]
async fn a_full_store_refuses_a_new_key() {
    let store = store().0.records_max(3);
    for n in 0..3 {
        finish(&store, &claim(n), 1, MINUTE).await;
    }

    assert!(is_full_for(&store, &claim(3)).await);

    assert_eq!(records(&store).await, 3);
    assert!(store.get(&claim(3).slot).await.unwrap().is_none());
}

#[tokio::test]
async fn a_store_of_no_records_refuses_every_key() {
    let store = store().0.records_max(0);

    assert!(is_full_for(&store, &claim(0)).await);
}

/// The answers alone are below the bound: what is bounded is all that a record takes.
#[tokio::test]
async fn a_store_full_of_bytes_refuses_a_new_key() {
    let store = store().0.bytes_max(1000);
    finish(&store, &claim(0), 500, MINUTE).await;
    finish(&store, &claim(1), 400, MINUTE).await;

    assert!(is_full_for(&store, &claim(2)).await);

    let bytes = store.stats().await.unwrap().bytes;
    assert!((1000..1400).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn claims_without_an_answer_take_bytes_too() {
    let store = store().0.bytes_max(1000);
    for n in 0..5 {
        if is_full_for(&store, &claim(n)).await {
            break;
        }
    }

    assert!(is_full_for(&store, &claim(5)).await);
}

/// It ran: refusing its answer would run it again.
#[tokio::test]
async fn an_answer_over_the_bound_is_stored_all_the_same() {
    let store = store().0.bytes_max(1000);

    finish(&store, &claim(0), 5000, MINUTE).await;

    let Ok(Claimed::Taken(record)) = store.claim(&rival(&claim(0))).await else {
        panic!("not replayed");
    };
    assert_eq!(record.response().unwrap().body.len(), 5000);
    assert!(is_full_for(&store, &claim(1)).await);
}

#[tokio::test]
async fn a_full_store_still_replays() {
    let store = store().0.records_max(2);
    for n in 0..2 {
        finish(&store, &claim(n), 10, MINUTE).await;
    }
    assert!(is_full_for(&store, &claim(2)).await);

    for n in 0..2 {
        let Ok(Claimed::Taken(record)) = store.claim(&rival(&claim(n))).await else {
            panic!("number {n} was not replayed");
        };
        assert_eq!(record.response(), Some(&answer(10)));
    }
}

#[tokio::test]
async fn a_full_store_still_serves_what_it_holds() {
    let (store, clock) = store();
    let store = store.records_max(3);
    let [slow, lapsed, given_back] = [claim(0), claim(1), claim(2)];
    let lease = grant(&store, &slow).await;
    grant(&store, &lapsed).await;
    let back = grant(&store, &given_back).await;
    assert!(is_full_for(&store, &claim(3)).await);

    assert_eq!(grant(&store, &slow).await, lease);
    let renewed = store.renew(&lease, 3 * SECOND).await;
    assert!(matches!(renewed, Ok(Renewed::Kept)));
    clock.advance(2 * SECOND);
    assert_eq!(grant(&store, &rival(&lapsed)).await.attempt, 2);
    let completed = store.complete(&lease, &answer(1), MINUTE).await;
    assert!(matches!(completed, Ok(Completed::Stored(_))));
    let released = store.release(&back, Release::NotRun).await;
    assert!(matches!(released, Ok(Released::Ended)));

    grant(&store, &claim(3)).await;
}

#[tokio::test]
async fn an_in_flight_record_is_never_evicted() {
    let store = store().0.records_max(5);
    let lease = grant(&store, &claim(0)).await;
    for n in 1..1000 {
        if !is_full_for(&store, &claim(n)).await {
            let found = store.get(&claim(n).slot).await.unwrap();
            assert!(found.is_some());
        }
    }

    let found = store.get(&lease.slot).await.unwrap().unwrap();
    assert_eq!(StateName::of(&found), StateName::Pending);
    let completed = store.complete(&lease, &answer(1), MINUTE).await;
    assert!(matches!(completed, Ok(Completed::Stored(_))));
    assert_eq!(records(&store).await, 5);
}

#[tokio::test]
async fn nothing_live_is_forgotten_for_a_new_key() {
    let store = store().0.records_max(100);
    for n in 0..100 {
        finish(&store, &claim(n), 10, MINUTE).await;
    }

    for n in 100..300 {
        assert!(is_full_for(&store, &claim(n)).await);
    }

    for n in 0..100 {
        let found = store.get(&claim(n).slot).await.unwrap();
        assert_eq!(found.unwrap().response(), Some(&answer(10)), "number {n}");
    }
}

#[tokio::test]
async fn there_is_room_again_once_records_have_expired() {
    let (store, clock) = store();
    let store = store.records_max(3);
    for n in 0..3 {
        finish(&store, &claim(n), 10, MINUTE).await;
    }
    clock.advance(MINUTE - SECOND);
    assert!(is_full_for(&store, &claim(3)).await);

    clock.advance(3 * SECOND);

    for n in 3..6 {
        grant(&store, &claim(n)).await;
    }
    assert!(is_full_for(&store, &claim(6)).await);
}

#[tokio::test]
async fn there_is_room_again_once_what_took_many_bytes_has_expired() {
    let (store, clock) = store();
    let store = store.bytes_max(1000);
    finish(&store, &claim(0), 2000, MINUTE).await;
    assert!(is_full_for(&store, &claim(1)).await);

    clock.advance(MINUTE + SECOND);

    assert!(!is_full_for(&store, &claim(1)).await);
}

/// What its claim asked for is longer: an answer leaves when it expires, not then.
#[tokio::test]
async fn there_is_room_again_as_soon_as_an_answer_kept_for_less_has_expired() {
    let (store, clock) = store();
    let store = store.records_max(1);
    finish(&store, &claim(0), 10, SECOND).await;

    clock.advance(2 * SECOND);

    assert_eq!(records(&store).await, 0);
    assert!(!is_full_for(&store, &claim(1)).await);
}

/// A body is usually a small part of the buffer that a connection read it into.
#[tokio::test]
async fn a_stored_answer_does_not_keep_the_buffer_that_it_came_in() {
    struct Buffer(Arc<[u8]>);
    impl AsRef<[u8]> for Buffer {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let (store, _) = store();
    let held: Arc<[u8]> = Arc::new([7; 8192]);
    let buffer = Bytes::from_owner(Buffer(Arc::clone(&held)));
    let response = Arc::new(Response::new(StatusCode::OK, buffer.slice(..10)));
    let lease = grant(&store, &claim(0)).await;

    let completed = store.complete(&lease, &response, MINUTE).await;

    assert!(matches!(completed, Ok(Completed::Stored(_))));
    drop((response, buffer));
    assert_eq!(Arc::strong_count(&held), 1);
    let found = store.get(&lease.slot).await.unwrap().unwrap();
    assert_eq!(found.response(), Some(&answer(10)));
}

#[tokio::test]
async fn an_expired_answer_takes_no_bytes_once_it_is_swept() {
    let (store, clock) = store();
    finish(&store, &claim(0), 1000, SECOND).await;

    clock.advance(2 * SECOND);
    sweep(&store).await;

    assert_eq!(store.stats().await.unwrap(), Stats::default());
}

#[tokio::test]
async fn there_is_room_again_once_a_record_is_forgotten() {
    let store = store().0.records_max(1);
    finish(&store, &claim(0), 10, MINUTE).await;

    assert!(store.forget(&claim(0).slot).await.unwrap());

    assert_eq!(store.stats().await.unwrap(), Stats::default());
    assert!(!is_full_for(&store, &claim(1)).await);
}

/// The bound is looked at before the slot is locked, so each racer may be one too many.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_claims_exceed_the_bound_by_no_more_than_the_racers() {
    const RACERS: u64 = 8;
    let store = Arc::new(MemoryStore::new().records_max(100));
    let tasks: Vec<_> = (0..RACERS)
        .map(|racer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in 0..200 {
                    is_full_for(&store, &claim(racer * 1000 + n)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }

    let records = records(&store).await;

    assert!((100..100 + RACERS).contains(&records), "{records}");
}

#[tokio::test]
async fn a_dead_token_may_be_used_again_after_a_lease() {
    let (store, clock) = store();
    let lease = grant(&store, &claim(0)).await;
    store.release(&lease, Release::NotRun).await.unwrap();
    let late = store.claim(&claim(0)).await;
    assert!(matches!(late, Ok(Claimed::Dead)));

    clock.advance(SECOND);

    grant(&store, &claim(0)).await;
}

#[tokio::test]
async fn a_sweep_in_batches_ends() {
    let (store, clock) = store();
    for n in 0..1000 {
        grant(&store, &claim(n)).await;
    }
    clock.advance(2 * MINUTE);

    let mut batches = Vec::new();
    loop {
        match store.sweep(300).await.unwrap() {
            0 => break,
            swept => batches.push(swept),
        }
    }

    assert_eq!(batches, [300, 300, 300, 100]);
}

#[tokio::test]
async fn deadlines_beyond_all_time_do_not_overflow() {
    let (store, clock) = store();
    clock.advance(MINUTE);
    let for_ever = Claim {
        lease_for: Duration::MAX,
        keep_for: Duration::MAX,
        ..claim(0)
    };
    let lease = grant(&store, &for_ever).await;
    let renewed = store.renew(&lease, Duration::MAX).await;
    assert!(matches!(renewed, Ok(Renewed::Kept)));
    assert!(store.extend(&lease.slot, Duration::MAX).await.unwrap());
    let completed = store.complete(&lease, &answer(1), Duration::MAX).await;
    assert!(matches!(completed, Ok(Completed::Stored(_))));

    let record = store.get(&lease.slot).await.unwrap().unwrap();

    assert_eq!(record.expires_at.to_string(), "9999-12-31T23:59:59.999Z");
    assert_eq!(sweep(&store).await, 0);
}

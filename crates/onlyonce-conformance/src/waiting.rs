//! How a duplicate waits (docs/protocol.md#rule-7): until the claim it saw is over, and no longer. A store may
//! wake a waiter for nothing, but not all the time.

#![expect(missing_docs, reason = "the names are the sentences")]

use onlyonce_core::{Claim, OnLapse, Release};
use tokio::time::timeout;

use super::TestBed;
use super::subject::{Subject, answer};
use super::timing::{A_MOMENT, LONG, PAST_SHORT, SHORT, SLACK, Stopwatch, WAKE_MAX};

const MANY: usize = 32;
/// A wake for nothing may happen; one each time is no waiting.
const TRIES: usize = 3;

pub async fn there_is_nothing_to_wait_for_in_an_empty_slot(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    assert!(store.settles(&store.fresh()).await);
}

pub async fn a_change_before_the_wait_is_not_missed(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let done = store.done("stored").await;
    let unknown = store.unknown().await;
    let given_back = store.fresh();
    let lease = store.lease(&given_back).await;
    store.ended(&lease, Release::NotRun).await;

    for claim in [&done, &unknown, &given_back] {
        assert!(store.settles(claim).await);
    }
}

pub async fn a_lapse_before_the_wait_is_not_missed(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
        let lapsed = store.lapsed(on_lapse).await;
        assert!(store.settles(&lapsed).await, "{on_lapse:?}");
    }
}

pub async fn a_takeover_before_the_wait_is_not_missed(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lapsed = store.lapsed(OnLapse::Rerun).await;
    let successor = Claim {
        lease_for: LONG,
        ..store.rival(&lapsed)
    };
    store.lease(&successor).await;

    assert!(store.settles(&lapsed).await);
}

pub async fn a_completion_wakes_who_waits(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    let waiter = store.waiter(&claim);
    bed.advance(A_MOMENT).await;

    store.stored(&lease, &answer("stored"), LONG).await;

    assert!(waiter.await.expect("a waiter does not panic"));
}

pub async fn a_release_wakes_who_waits(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for (on_lapse, why) in [
        (OnLapse::Rerun, Release::NotRun),
        (OnLapse::Rerun, Release::Unknown),
        (OnLapse::Hold, Release::Unknown),
    ] {
        let claim = Claim {
            on_lapse,
            ..store.fresh()
        };
        let lease = store.lease(&claim).await;
        let waiter = store.waiter(&claim);
        bed.advance(A_MOMENT).await;

        store.ended(&lease, why).await;

        let woken = waiter.await.expect("a waiter does not panic");
        assert!(woken, "{on_lapse:?}, {why:?}");
    }
}

pub async fn forgetting_a_claim_wakes_who_waits(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    store.lease(&claim).await;
    let waiter = store.waiter(&claim);
    bed.advance(A_MOMENT).await;

    assert!(store.forget(&claim).await);

    assert!(waiter.await.expect("a waiter does not panic"));
}

pub async fn a_lapse_wakes_who_waits(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        lease_for: SHORT,
        ..store.fresh()
    };
    store.lease(&claim).await;

    let lapse = async {
        while !store.record(&claim).await.is_lapsed() {
            store.wait(&claim, LONG).await;
            bed.advance(A_MOMENT).await;
        }
    };

    assert!(timeout(WAKE_MAX, lapse).await.is_ok());
}

pub async fn nobody_waits_longer_than_asked(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    store.lease(&claim).await;

    let waited = timeout(WAKE_MAX, store.wait(&claim, SHORT)).await;

    assert!(waited.is_ok());
    assert!(!store.record(&claim).await.is_lapsed());
}

pub async fn nobody_is_woken_for_nothing_all_the_time(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    store.lease(&claim).await;

    for _ in 0..TRIES {
        let watch = Stopwatch::start();
        store.wait(&claim, SHORT).await;
        if watch.elapsed() + SLACK >= SHORT {
            return;
        }
    }

    panic!("{TRIES} waits on a live claim ended early");
}

pub async fn all_waiters_of_a_slot_are_woken(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    let waiters: Vec<_> = (0..MANY).map(|_| store.waiter(&claim)).collect();
    bed.advance(A_MOMENT).await;

    store.stored(&lease, &answer("stored"), LONG).await;

    for waiter in waiters {
        assert!(waiter.await.expect("a waiter does not panic"));
    }
}

pub async fn who_waits_again_is_woken_again(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    store.wait(&claim, A_MOMENT).await;
    let waiter = store.waiter(&claim);
    bed.advance(A_MOMENT).await;

    store.ended(&lease, Release::NotRun).await;

    assert!(waiter.await.expect("a waiter does not panic"));
    let next = store.rival(&claim);
    let lease = store.lease(&next).await;
    let waiter = store.waiter(&next);
    bed.advance(PAST_SHORT).await;
    store.stored(&lease, &answer("stored"), LONG).await;
    assert!(waiter.await.expect("a waiter does not panic"));
}

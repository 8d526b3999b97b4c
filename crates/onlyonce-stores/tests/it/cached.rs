//! A cached store (B6, docs/protocol.md#rule-15) answers for finished results without the store inside, and is
//! right about them: under delete, extension, expiry, and whatever else happens meanwhile.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::Verb;
use onlyonce_core::operate::Resolved;
use onlyonce_core::{
    Claim, Claimed, Completed, MemoryStore, OnLapse, Operate, Release, Released, Response, State,
    Store,
};
use onlyonce_stores::Cached;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::rough::{
    Fault, LONG, Rough, WrappedBed, answer, claim, done, failure, fingerprint, is_granted, lease,
    replayed, rival, taken,
};

mod bounds;
mod races;

mod shared {
    use super::*;

    onlyonce_testkit::conformance_suite!(
        WrappedBed::new("cached", async |store| Cached::new(store)).await
    );
}

mod exclusive {
    use super::*;

    onlyonce_testkit::conformance_suite!(
        WrappedBed::new("cached, exclusive", async |store| Cached::new(store)
            .exclusive())
        .await
    );
}

const SECOND: Duration = Duration::from_secs(1);

/// A store that others use too, a process with a cache, and what that process asks of the store.
struct Bed {
    raw: Arc<MemoryStore>,
    rough: Arc<Rough>,
    store: Arc<Cached>,
}

impl Bed {
    fn new(configure: impl FnOnce(Cached) -> Cached) -> Self {
        let raw = Arc::new(MemoryStore::new());
        let rough = Rough::new(raw.clone());
        let store = Arc::new(configure(Cached::new(rough.clone())));
        Self { raw, rough, store }
    }

    fn shared() -> Self {
        Self::new(|cached| cached)
    }

    fn exclusive() -> Self {
        Self::new(Cached::exclusive)
    }

    /// A finished claim that the cache remembers.
    async fn remembered(&self, keep_for: Duration) -> Claim {
        let claim = done(&*self.store, "stored", keep_for).await;
        taken(&*self.store, &claim).await;
        self.rough.asked();
        claim
    }

    /// Whether a rival's claim is answered from the cache.
    async fn is_remembered(&self, claim: &Claim) -> bool {
        taken(&*self.store, claim).await;
        self.rough.asked().is_empty()
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_from_the_cache_costs_no_round_trip() {
    let bed = Bed::shared();
    let claim = done(&*bed.store, "stored", LONG).await;
    bed.rough.asked();

    for _ in 0..10 {
        assert_eq!(replayed(&*bed.store, &claim).await, b"stored");
    }

    assert!(
        bed.rough.asked().is_empty(),
        "what was stored here is at hand"
    );
    let tally = bed.store.tally();
    assert_eq!((tally.entries, tally.hits, tally.misses), (1, 10, 1));
    assert!(tally.bytes >= 6);
}

#[tokio::test(start_paused = true)]
async fn what_was_stored_by_others_is_at_hand_once_it_was_read() {
    let bed = Bed::shared();
    let claim = done(&*bed.raw, "stored", LONG).await;

    for _ in 0..10 {
        assert_eq!(replayed(&*bed.store, &claim).await, b"stored");
    }

    assert_eq!(bed.rough.asked(), [Verb::Claim]);
    let tally = bed.store.tally();
    assert_eq!((tally.entries, tally.hits, tally.misses), (1, 9, 1));
}

#[tokio::test(start_paused = true)]
async fn a_record_remembered_when_it_was_stored_is_the_stored_record() {
    let bed = Bed::shared();
    let claim = done(&*bed.store, "stored", LONG).await;

    let remembered = taken(&*bed.store, &claim).await;

    assert_eq!(remembered, bed.raw.get(&claim.slot).await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_remembered_record_is_the_record_with_less_time_left() {
    let bed = Bed::shared();
    let claim = bed.remembered(LONG).await;
    sleep(2 * SECOND).await;

    let remembered = taken(&*bed.store, &claim).await;
    assert!(bed.rough.asked().is_empty());
    let stored = bed.raw.get(&claim.slot).await.unwrap().unwrap();

    assert_eq!(remembered, stored);
}

/// The engine judges; it gets the record either way.
#[tokio::test(start_paused = true)]
async fn another_request_finds_the_record_just_as_in_the_store() {
    let bed = Bed::shared();
    let claim = bed.remembered(LONG).await;

    for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
        let other = Claim {
            fingerprint: fingerprint(2),
            on_lapse,
            ..claim.clone()
        };
        let remembered = taken(&*bed.store, &other).await;
        let stored = taken(&*bed.raw, &other).await;

        assert_eq!(remembered, stored);
        assert_eq!(remembered.fingerprint, claim.fingerprint);
    }
    assert!(bed.rough.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_remembered_as_one() {
    let bed = Bed::shared();
    let claim = claim();
    let lease = lease(&*bed.store, &claim).await;
    let failure = Arc::new(Response::new(StatusCode::BAD_GATEWAY, "no"));
    bed.store.complete(&lease, &failure, LONG).await.unwrap();
    taken(&*bed.store, &claim).await;
    bed.rough.asked();

    let record = taken(&*bed.store, &claim).await;

    assert_eq!(record.state, State::Failed(failure));
    assert!(bed.rough.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_entry_is_as_old_as_the_question_it_answered() {
    let bed = Bed::shared();
    let claim = done(&*bed.raw, "stored", LONG).await;
    bed.rough.next([Fault::Slow(3 * SECOND)]);
    taken(&*bed.store, &claim).await;
    bed.rough.asked();

    sleep(2 * SECOND - Duration::from_millis(1)).await;
    assert!(bed.is_remembered(&claim).await);
    sleep(Duration::from_millis(1)).await;
    assert!(!bed.is_remembered(&claim).await);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_came_too_late_is_not_remembered() {
    let bed = Bed::shared();
    let claim = done(&*bed.raw, "stored", LONG).await;
    bed.rough.next([Fault::Slow(5 * SECOND)]);
    taken(&*bed.store, &claim).await;
    bed.rough.asked();

    assert!(!bed.is_remembered(&claim).await);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_shown_beyond_its_end() {
    for bed in [Bed::shared(), Bed::exclusive()] {
        let claim = bed.remembered(2 * SECOND).await;

        sleep(2 * SECOND - Duration::from_millis(1)).await;
        assert!(bed.is_remembered(&claim).await);
        sleep(Duration::from_millis(1)).await;

        assert!(is_granted(&*bed.store, &claim).await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_own_forget_is_in_force_at_once() {
    for bed in [Bed::shared(), Bed::exclusive()] {
        let claim = bed.remembered(LONG).await;

        assert!(bed.store.forget(&claim.slot).await.unwrap());

        assert!(is_granted(&*bed.store, &claim).await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_own_extension_is_in_force_at_once() {
    for bed in [Bed::shared(), Bed::exclusive()] {
        let claim = bed.remembered(2 * SECOND).await;

        assert!(bed.store.extend(&claim.slot, LONG).await.unwrap());

        assert_eq!(
            taken(&*bed.store, &claim).await.keep_left,
            LONG + 2 * SECOND
        );
        sleep(3 * SECOND).await;
        assert_eq!(replayed(&*bed.store, &claim).await, b"stored");
    }
}

#[tokio::test(start_paused = true)]
async fn an_own_resolution_is_in_force_at_once() {
    for bed in [Bed::shared(), Bed::exclusive()] {
        let claim = Claim {
            on_lapse: OnLapse::Hold,
            ..claim()
        };
        let lease = lease(&*bed.store, &claim).await;
        bed.store.release(&lease, Release::Unknown).await.unwrap();
        assert_eq!(taken(&*bed.store, &claim).await.state, State::Unknown);

        let answer = answer("resolved");
        let resolved = bed.store.resolve(&claim.slot, &answer, LONG).await;
        assert!(matches!(resolved, Ok(Resolved::Stored)), "{resolved:?}");

        assert_eq!(replayed(&*bed.store, &claim).await, b"resolved");
    }
}

#[tokio::test(start_paused = true)]
async fn anothers_forget_is_in_force_after_the_lag() {
    let bed = Bed::shared();
    let claim = bed.remembered(LONG).await;
    assert_eq!(bed.store.lag(), 5 * SECOND);

    bed.raw.forget(&claim.slot).await.unwrap();
    sleep(bed.store.lag()).await;

    assert!(is_granted(&*bed.store, &claim).await);
}

#[tokio::test(start_paused = true)]
async fn what_others_change_is_noticed_within_the_lag_however_often_it_is_read() {
    let bed = Bed::shared();
    let claim = bed.remembered(LONG).await;
    bed.raw.forget(&claim.slot).await.unwrap();

    let mut shown_for = Duration::ZERO;
    while !is_granted(&*bed.store, &claim).await {
        sleep(SECOND / 10).await;
        shown_for += SECOND / 10;
    }

    assert!(shown_for <= bed.store.lag(), "{shown_for:?}");
}

#[tokio::test(start_paused = true)]
async fn what_operators_read_is_asked_of_the_store() {
    let bed = Bed::exclusive();
    let claim = bed.remembered(LONG).await;
    bed.raw.forget(&claim.slot).await.unwrap();

    assert!(bed.store.get(&claim.slot).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_is_not_finished_is_not_remembered() {
    let bed = Bed::exclusive();
    let running = claim();
    lease(&*bed.store, &running).await;
    let unknown = Claim {
        on_lapse: OnLapse::Hold,
        ..claim()
    };
    let held = lease(&*bed.store, &unknown).await;
    bed.store.release(&held, Release::Unknown).await.unwrap();

    for claim in [&running, &unknown] {
        taken(&*bed.store, claim).await;
        bed.rough.asked();
        assert!(!bed.is_remembered(claim).await);
    }
    assert_eq!(bed.store.tally().entries, 0);
}

#[tokio::test(start_paused = true)]
async fn a_result_found_in_the_way_is_remembered() {
    let bed = Bed::shared();
    let (one, two) = (claim(), claim());
    for claim in [&one, &two] {
        let lease = lease(&*bed.store, claim).await;
        bed.raw
            .complete(&lease, &answer("stored"), LONG)
            .await
            .unwrap();
    }

    let late = bed
        .store
        .complete(&one.lease(), &answer("late"), LONG)
        .await;
    assert!(matches!(late, Ok(Completed::Found(_))));
    let late = bed.store.release(&two.lease(), Release::NotRun).await;
    assert!(matches!(late, Ok(Released::Found(_))));
    bed.rough.asked();

    for claim in [&one, &two] {
        assert!(bed.is_remembered(claim).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flush_forgets_everything_and_what_is_on_its_way() {
    let bed = Bed::exclusive();
    let (one, two) = (
        bed.remembered(LONG).await,
        done(&*bed.store, "two", LONG).await,
    );
    let gate = Arc::new(Semaphore::new(0));
    bed.rough.next([Fault::HoldReply(Arc::clone(&gate))]);
    let reading = tokio::spawn({
        let (store, claim) = (Arc::clone(&bed.store), rival(&two));
        async move { store.claim(&claim).await }
    });
    tokio::task::yield_now().await;

    bed.store.flush();
    gate.add_permits(1);
    reading.await.unwrap().unwrap();

    bed.rough.asked();
    assert_eq!(bed.store.tally().entries, 0);
    assert!(!bed.is_remembered(&one).await);
    assert!(!bed.is_remembered(&two).await);
}

#[tokio::test(start_paused = true)]
async fn a_store_without_operators_has_none_with_a_cache() {
    let bed = Bed::shared();
    bed.rough.hide_operators();

    assert!(bed.store.operate().is_none());
    let (_, said) = failure(bed.store.ping().await);
    assert!(
        said.ends_with("the store inside has no operators' side"),
        "{said}"
    );
}

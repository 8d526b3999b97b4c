//! The circuit breaker: when it opens, whom it refuses, and how it closes by a claim that is tried.
//! Here no probe comes first; see `probing` for those.

use onlyonce_core::Timestamp;
use onlyonce_stores::guarded::{BreakerOpen, BreakerState};
use tokio::sync::Semaphore;

use super::*;

/// A store on which every failure counts: nothing is asked twice, and nobody asks in between.
pub(super) fn brittle() -> (Arc<Rough>, Guarded) {
    let (rough, store) = bed();
    (rough, store.probe(NEVER))
}

/// Longer than any test.
pub(super) const NEVER: Duration = Duration::from_secs(1_000_000);

pub(super) async fn fail_claims(rough: &Rough, store: &Guarded, times: usize) {
    for _ in 0..times {
        rough.next([DOWN]);
        failure(store.claim(&claim()).await);
    }
    rough.asked();
}

/// Why a claim is refused without asking the store.
pub(super) async fn refusal(rough: &Rough, store: &Guarded) -> BreakerOpen {
    let error = store.claim(&claim()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert_eq!(rough.asked(), []);
    assert!(error.is_unsent(), "there is nothing to take back");
    let source = error.source.expect("the breaker says why");
    *source.downcast::<BreakerOpen>().unwrap()
}

#[tokio::test(start_paused = true)]
async fn five_failures_in_a_row_open_it_and_claims_are_refused_at_once() {
    let (rough, store) = brittle();

    fail_claims(&rough, &store, 4).await;
    assert_eq!(store.state(), BreakerState::Closed);
    fail_claims(&rough, &store, 1).await;

    assert_eq!(store.state(), BreakerState::Open);
    let clock = SystemClock::new();
    let refusal = refusal(&rough, &store).await;
    assert_took(&clock, Duration::ZERO, Duration::ZERO);
    let (failures, left) = (5, 60 * SECOND);
    assert_eq!(refusal, BreakerOpen::For { failures, left });
}

#[tokio::test(start_paused = true)]
async fn a_store_in_which_others_are_faster_is_not_taken_for_broken() {
    let (rough, store) = brittle();

    rough.always(Fault::LoseRace);
    for _ in 0..20 {
        failure(store.claim(&claim()).await);
    }

    assert_eq!(store.state(), BreakerState::Closed);
    assert_eq!(store.tally().opened, 0);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_how_long_it_stays_open() {
    let (rough, store) = brittle();
    fail_claims(&rough, &store, 5).await;
    tokio::time::sleep(Duration::from_millis(17_500)).await;

    let (_, said) = failure(store.claim(&claim()).await);

    assert_eq!(
        said,
        "guarded store: unavailable: the circuit breaker is open after 5 failures in a row: \
         the store is tried again in 43 s at the latest"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_between_starts_the_count_anew() {
    let (rough, store) = brittle();

    for _ in 0..3 {
        fail_claims(&rough, &store, 4).await;
        lease(&store, &claim()).await;
    }

    assert_eq!(store.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn the_tries_of_one_call_are_one_failure() {
    let (rough, store) = bed();
    rough.always(DOWN);

    for _ in 0..4 {
        failure(store.claim(&claim()).await);
    }

    assert_eq!(store.state(), BreakerState::Closed);
    failure(store.claim(&claim()).await);
    assert_eq!(store.state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn timeouts_and_failures_of_every_verb_count() {
    let (rough, store) = brittle();
    let held = lease(&store, &claim()).await;
    rough.next([DOWN, DOWN, DOWN, Fault::Hang, DOWN]);

    failure(store.renew(&held, LONG).await);
    failure(store.complete(&held, &answer("late"), LONG).await);
    failure(store.release(&held, Release::NotRun).await);
    failure(store.claim(&claim()).await);
    assert_eq!(store.state(), BreakerState::Closed);
    failure(store.renew(&held, LONG).await);

    assert_eq!(store.state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn losing_races_never_opens_it() {
    let (_, store) = brittle();
    let first = claim();
    let held = lease(&store, &first).await;
    store
        .complete(&held, &answer("stored"), LONG)
        .await
        .unwrap();

    for _ in 0..20 {
        assert!(!is_granted(&store, &first).await);
        let renewed = store.renew(&held, LONG).await.unwrap();
        assert!(matches!(renewed, Renewed::Lost));
        let completed = store.complete(&held, &answer("late"), LONG).await.unwrap();
        assert!(matches!(completed, Completed::Found(_)));
        let released = store.release(&held, Release::NotRun).await.unwrap();
        assert!(matches!(released, Released::Found(_)));
    }

    assert_eq!(store.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_full_or_cannot_read_is_there() {
    let (rough, store) = brittle();

    for kind in [StoreErrorKind::Full, StoreErrorKind::Corrupt] {
        fail_claims(&rough, &store, 4).await;
        for _ in 0..20 {
            rough.next([Fault::Fail(kind)]);
            failure(store.claim(&claim()).await);
        }
    }

    assert_eq!(store.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn what_has_begun_is_finished_while_it_is_open() {
    let (rough, store) = brittle();
    let (first, second) = (claim(), claim());
    let held = lease(&store, &first).await;
    let other = lease(&store, &second).await;
    fail_claims(&rough, &store, 5).await;

    let renewed = store.renew(&held, LONG).await.unwrap();
    let completed = store
        .complete(&held, &answer("stored"), LONG)
        .await
        .unwrap();
    let released = store.release(&other, Release::NotRun).await.unwrap();

    assert!(matches!(renewed, Renewed::Kept));
    assert!(matches!(completed, Completed::Stored(_)));
    assert!(matches!(released, Released::Ended));
    assert_eq!(store.state(), BreakerState::Open);
    rough.asked();
    refusal(&rough, &store).await;
}

#[tokio::test(start_paused = true)]
async fn operators_pass_while_it_is_open_and_decide_nothing() {
    let (rough, store) = brittle();
    fail_claims(&rough, &store, 4).await;

    store.ping().await.unwrap();
    fail_claims(&rough, &store, 1).await;
    assert_eq!(store.state(), BreakerState::Open);
    store.ping().await.unwrap();
    store.get(&claim().slot).await.unwrap();
    store.forget(&claim().slot).await.unwrap();

    assert_eq!(store.state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn failures_of_operators_never_open_it() {
    let (rough, store) = brittle();
    rough.always(DOWN);

    for _ in 0..20 {
        failure(store.ping().await);
    }

    assert_eq!(store.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn after_a_minute_one_claim_is_tried_and_the_others_still_refused() {
    let (rough, store) = brittle();
    let store = Arc::new(store);
    fail_claims(&rough, &store, 5).await;
    tokio::time::sleep(59 * SECOND).await;
    refusal(&rough, &store).await;
    tokio::time::sleep(SECOND).await;

    let gate = Arc::new(Semaphore::new(0));
    rough.next([Fault::HoldReply(Arc::clone(&gate))]);
    let trial = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.claim(&claim()).await }
    });
    while store.state() != BreakerState::HalfOpen {
        tokio::task::yield_now().await;
    }
    rough.asked();
    for _ in 0..3 {
        assert_eq!(refusal(&rough, &store).await, BreakerOpen::Trying);
    }
    gate.add_permits(1);

    let claimed = trial.await.unwrap().unwrap();
    assert!(matches!(claimed, Claimed::Granted { .. }));
    assert_eq!(store.state(), BreakerState::Closed);
    lease(&*store, &claim()).await;
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_fails_opens_it_for_another_minute() {
    let (rough, store) = brittle();
    fail_claims(&rough, &store, 5).await;
    tokio::time::sleep(60 * SECOND).await;

    fail_claims(&rough, &store, 1).await;

    assert_eq!(store.state(), BreakerState::Open);
    tokio::time::sleep(59 * SECOND).await;
    refusal(&rough, &store).await;
    tokio::time::sleep(SECOND).await;
    lease(&store, &claim()).await;
    assert_eq!(store.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_loses_a_race_closes_it() {
    let (rough, store) = brittle();
    let first = claim();
    lease(&store, &first).await;
    fail_claims(&rough, &store, 5).await;
    tokio::time::sleep(60 * SECOND).await;

    taken(&store, &first).await;

    assert_eq!(store.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_trial_whose_caller_goes_away_leaves_the_next_claim_to_be_tried() {
    let (rough, store) = brittle();
    fail_claims(&rough, &store, 5).await;
    tokio::time::sleep(60 * SECOND).await;

    rough.next([Fault::Hang]);
    let gone = tokio::time::timeout(SECOND, store.claim(&claim())).await;
    assert!(gone.is_err());

    assert_eq!(store.state(), BreakerState::Open);
    lease(&store, &claim()).await;
    assert_eq!(store.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn what_began_before_it_opened_decides_nothing() {
    let (rough, store) = brittle();
    let store = Arc::new(store);
    let gate = Arc::new(Semaphore::new(0));
    rough.next([Fault::HoldReply(Arc::clone(&gate))]);
    let early = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.claim(&claim()).await }
    });
    tokio::task::yield_now().await;
    fail_claims(&rough, &store, 5).await;

    gate.add_permits(1);
    early.await.unwrap().unwrap();

    assert_eq!(store.state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn its_numbers_can_be_set() {
    let (rough, store) = brittle();
    let store = store.breaker(2, 3 * SECOND);

    fail_claims(&rough, &store, 2).await;
    let (failures, left) = (2, 3 * SECOND);
    assert_eq!(
        refusal(&rough, &store).await,
        BreakerOpen::For { failures, left }
    );
    tokio::time::sleep(3 * SECOND).await;

    lease(&store, &claim()).await;
}

/// A clock that a test moves.
#[derive(Default)]
struct Hand(Mutex<Duration>);

impl Clock for Hand {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::default()
    }
}

#[tokio::test(start_paused = true)]
async fn it_goes_by_the_clock_it_is_given() {
    let (rough, store) = brittle();
    let hand = Arc::new(Hand::default());
    let store = store.clock(hand.clone());
    fail_claims(&rough, &store, 5).await;

    tokio::time::sleep(LONG).await;
    refusal(&rough, &store).await;
    *hand.0.lock().unwrap() += 60 * SECOND;

    lease(&store, &claim()).await;
}

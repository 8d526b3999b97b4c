//! While the breaker is open the store is asked in the background, and the first answer closes it: a
//! store that was away for a moment is away for a moment.

use onlyonce_stores::guarded::BreakerState;

use super::breaker::{fail_claims, refusal};
use super::*;

/// Nothing is asked twice; probes come every second.
fn probed() -> (Arc<Rough>, Guarded) {
    bed()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_back_takes_claims_within_a_second() {
    let (rough, store) = probed();
    fail_claims(&rough, &store, 5).await;
    assert_eq!(store.state(), BreakerState::Open);
    refusal(&rough, &store).await;

    tokio::time::sleep(SECOND + SECOND / 100).await;

    assert_eq!(rough.asked(), [Verb::Ping]);
    assert_eq!(store.state(), BreakerState::Closed);
    lease(&store, &claim()).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_is_asked_every_second_and_claims_are_refused() {
    let (rough, store) = probed();
    fail_claims(&rough, &store, 5).await;
    rough.always(DOWN);

    tokio::time::sleep(10 * SECOND + SECOND / 2).await;

    assert_eq!(rough.asked(), [Verb::Ping; 10]);
    assert_eq!(store.state(), BreakerState::Open);
    refusal(&rough, &store).await;
    rough.always(Fault::Nothing);
    tokio::time::sleep(SECOND).await;
    assert_eq!(store.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_is_given_up_and_the_next_one_decides() {
    let (rough, store) = probed();
    fail_claims(&rough, &store, 5).await;
    rough.next([Fault::Hang]);

    tokio::time::sleep(4 * SECOND).await;
    assert_eq!(store.state(), BreakerState::Open);
    tokio::time::sleep(SECOND).await;

    assert_eq!(store.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_probes_only_is_refused_again_at_the_first_failure() {
    let (rough, store) = probed();
    fail_claims(&rough, &store, 5).await;
    tokio::time::sleep(SECOND + SECOND / 100).await;
    assert_eq!(store.state(), BreakerState::Closed);

    fail_claims(&rough, &store, 1).await;

    assert_eq!(store.state(), BreakerState::Open);
    tokio::time::sleep(SECOND + SECOND / 100).await;
    assert_eq!(store.state(), BreakerState::Closed);
    lease(&store, &claim()).await;
    fail_claims(&rough, &store, 4).await;
    assert_eq!(store.state(), BreakerState::Closed, "a success clears it");
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_opens_again_and_again_is_probed_once_a_second() {
    let (rough, store) = probed();
    let store = store.breaker(1, SECOND / 4);
    fail_claims(&rough, &store, 1).await;

    // A claim closes it before the probe comes, the next one opens it again.
    for _ in 0..8 {
        tokio::time::sleep(SECOND / 4).await;
        lease(&store, &claim()).await;
        fail_claims(&rough, &store, 1).await;
    }
    rough.asked();
    rough.always(DOWN);
    tokio::time::sleep(4 * SECOND).await;

    let pings = rough.asked().len();
    assert!((3..=5).contains(&pings), "{pings} in four seconds");
}

#[tokio::test(start_paused = true)]
async fn how_often_it_is_asked_can_be_set() {
    let (rough, store) = probed();
    let store = store.probe(5 * SECOND);
    fail_claims(&rough, &store, 5).await;

    tokio::time::sleep(4 * SECOND).await;
    assert_eq!(store.state(), BreakerState::Open);
    tokio::time::sleep(SECOND + SECOND / 100).await;

    assert_eq!(store.state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn probing_ends_with_the_store() {
    let (rough, store) = probed();
    fail_claims(&rough, &store, 5).await;
    rough.always(DOWN);
    tokio::time::sleep(2 * SECOND + SECOND / 2).await;
    rough.asked();

    drop(store);
    let left = Arc::downgrade(&rough);
    drop(rough);
    tokio::time::sleep(2 * SECOND).await;

    assert!(left.upgrade().is_none(), "nobody keeps it");
}

#[tokio::test(start_paused = true)]
async fn without_an_operators_side_only_a_claim_tries_the_store() {
    let (rough, store) = probed();
    rough.hide_operators();
    fail_claims(&rough, &store, 5).await;

    tokio::time::sleep(59 * SECOND).await;
    refusal(&rough, &store).await;
    tokio::time::sleep(SECOND).await;

    lease(&store, &claim()).await;
    assert_eq!(store.state(), BreakerState::Closed);
}

//! A guarded store (B7, docs/protocol.md#rule-14) fails quickly, and leaves a store that is down alone, but for
//! those who finish what they have begun. It asks once; the engine around it asks again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::operate::{Filter, Page};
use onlyonce_core::{
    Claimed, Clock, Completed, MemoryStore, Operate, Release, Released, Renewed, Store,
    StoreErrorKind, SystemClock, Verb,
};
use onlyonce_stores::Guarded;

use crate::rough::{
    DOWN, Fault, LONG, Rough, WrappedBed, answer, claim, failure, is_granted, lease, taken,
};

mod breaker;
mod probing;
mod repeating;
mod telling;

onlyonce_testkit::conformance_suite!(
    WrappedBed::new("guarded", async |store| Guarded::new(store)).await
);

const SECOND: Duration = Duration::from_secs(1);

fn bed() -> (Arc<Rough>, Guarded) {
    let rough = Rough::new(Arc::new(MemoryStore::new()));
    let guarded = Guarded::new(rough.clone());
    (rough, guarded)
}

/// That between `least` and `most` passed since the clock was made.
#[track_caller]
fn assert_took(clock: &SystemClock, least: Duration, most: Duration) {
    let took = clock.now();
    assert!(least <= took && took <= most, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_unavailable_after_the_timeout() {
    let (rough, store) = bed();
    rough.always(Fault::Hang);
    let (clock, claim) = (SystemClock::new(), claim());

    let (kind, said) = failure(store.claim(&claim).await);

    assert_eq!(kind, StoreErrorKind::Unavailable);
    assert!(said.contains("no answer within 2.5s"), "{said}");
    assert_took(&clock, 5 * SECOND / 2, 5 * SECOND / 2 + SECOND / 10);
}

#[tokio::test(start_paused = true)]
async fn the_timeout_is_for_every_verb_and_can_be_set() {
    let (rough, store) = bed();
    let store = store.timeout(2 * SECOND).breaker(100, LONG);
    let first = claim();
    let held = lease(&store, &first).await;
    rough.always(Fault::Hang);
    let clock = SystemClock::new();

    failure(store.renew(&held, LONG).await);
    failure(store.complete(&held, &answer("late"), LONG).await);
    failure(store.release(&held, Release::NotRun).await);
    failure(store.get(&first.slot).await);
    failure(store.extend(&first.slot, LONG).await);

    assert_took(&clock, 10 * SECOND, 11 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_is_asked_once() {
    let (rough, store) = bed();
    let store = store.breaker(100, LONG);
    let first = claim();
    let held = lease(&store, &first).await;
    let page = Page {
        after: None,
        records_max: 1,
    };
    rough.asked();
    rough.always(DOWN);

    failure(store.claim(&claim()).await);
    failure(store.renew(&held, LONG).await);
    failure(store.complete(&held, &answer("late"), LONG).await);
    failure(store.release(&held, Release::NotRun).await);
    failure(store.get(&first.slot).await);
    failure(store.list(&Filter::default(), &page).await);
    failure(store.extend(&first.slot, LONG).await);
    failure(store.count_replays(&[(first.slot, 1)]).await);
    failure(store.resolve(&first.slot, &answer("resolved"), LONG).await);
    failure(store.forget(&first.slot).await);
    failure(store.sweep(1).await);
    failure(store.agree("name", b"offer").await);

    let once = [
        Verb::Claim,
        Verb::Renew,
        Verb::Complete,
        Verb::Release,
        Verb::Get,
        Verb::List,
        Verb::Extend,
        Verb::CountReplays,
        Verb::Resolve,
        Verb::Forget,
        Verb::Sweep,
        Verb::Agree,
    ];
    assert_eq!(rough.asked(), once);
}

#[tokio::test(start_paused = true)]
async fn what_looks_through_many_records_may_take_longer() {
    let (rough, store) = bed();
    let page = Page {
        after: None,
        records_max: 1,
    };
    rough.always(Fault::Slow(25 * SECOND));

    store.list(&Filter::default(), &page).await.unwrap();
    store.sweep(1).await.unwrap();
    store.stats().await.unwrap();

    failure(store.get(&claim().slot).await);
}

#[tokio::test(start_paused = true)]
async fn a_wait_may_last_as_long_as_it_was_asked_for() {
    let (_, store) = bed();
    let first = claim();
    lease(&store, &first).await;
    let clock = SystemClock::new();

    let waited = store.settled(&first.slot, &first.token, 60 * SECOND).await;

    assert!(waited.is_ok());
    assert_took(&clock, 60 * SECOND, 61 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_hangs_ends_a_little_later_than_asked() {
    let (rough, store) = bed();
    let first = claim();
    rough.next([Fault::Hang]);
    let clock = SystemClock::new();

    let waited = store.settled(&first.slot, &first.token, 60 * SECOND).await;

    assert_eq!(failure(waited).0, StoreErrorKind::Unavailable);
    assert_took(&clock, 62 * SECOND, 63 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_does_not_overflow() {
    let (_, store) = bed();
    let nobody = claim();

    let waited = store.settled(&nobody.slot, &nobody.token, Duration::MAX);

    assert!(waited.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn losing_a_race_is_an_answer_like_any_other() {
    let (rough, store) = bed();
    let first = claim();
    lease(&store, &first).await;
    rough.asked();

    let record = taken(&store, &first).await;

    assert_eq!(record.token, first.token);
    assert_eq!(rough.asked(), [Verb::Claim]);
}

//! A guarded store (B7, PROTOCOL 14) fails quickly, asks again where that is safe, and leaves a
//! store that is down alone, but for those who finish what they have begun.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::operate::{Filter, Page};
use onlyonce_core::{
    Claimed, Clock, Completed, Entropy, MemoryStore, Operate, Release, Released, Renewed, Store,
    StoreErrorKind, SystemClock,
};
use onlyonce_stores::Guarded;
use onlyonce_stores::metered::Operation;

use crate::rough::{
    DOWN, Fault, LONG, Rough, WrappedBed, answer, claim, failure, is_granted, lease, taken,
};

mod breaker;
mod probing;
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
    assert!(said.contains("no answer within 5s"), "{said}");
    assert_took(&clock, 5 * SECOND, 5 * SECOND + SECOND / 10);
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
async fn a_lost_reply_is_asked_for_again_with_the_same_token() {
    let (rough, store) = bed();
    let (first, body) = (claim(), answer("stored"));

    rough.next([Fault::LoseReply]);
    let held = lease(&store, &first).await;
    rough.next([Fault::LoseReply]);
    let renewed = store.renew(&held, LONG).await.unwrap();
    rough.next([Fault::LoseReply]);
    let completed = store.complete(&held, &body, LONG).await.unwrap();

    assert_eq!(held, first.lease());
    assert!(matches!(renewed, Renewed::Kept));
    let Completed::Found(record) = completed else {
        panic!("the first try has stored it: {completed:?}");
    };
    assert_eq!(record.token, first.token);
    assert_eq!(record.response(), Some(&body));
    let twice = |verb| [verb, verb];
    let asked = [Operation::Claim, Operation::Renew, Operation::Complete].map(twice);
    assert_eq!(rough.asked(), asked.concat());
}

#[tokio::test(start_paused = true)]
async fn a_lost_release_is_asked_for_again() {
    let (rough, store) = bed();
    let first = claim();
    let held = lease(&store, &first).await;

    rough.next([Fault::LoseReply]);
    let released = store.release(&held, Release::NotRun).await.unwrap();

    assert!(matches!(released, Released::Ended));
    assert!(is_granted(&store, &first).await);
}

#[tokio::test(start_paused = true)]
async fn one_reply_that_never_comes_leaves_time_to_ask_again() {
    let (rough, store) = bed();
    rough.next([Fault::Hang]);
    let clock = SystemClock::new();

    lease(&store, &claim()).await;

    assert_took(&clock, SECOND, 4 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_is_asked_three_times() {
    let (rough, store) = bed();
    rough.always(DOWN);

    let (kind, _) = failure(store.claim(&claim()).await);

    assert_eq!(kind, StoreErrorKind::Unavailable);
    assert_eq!(rough.asked(), [Operation::Claim; 3]);
}

#[tokio::test(start_paused = true)]
async fn retries_can_be_turned_off() {
    let (rough, store) = bed();
    let store = store.retries(0);
    rough.next([DOWN]);

    failure(store.claim(&claim()).await);

    assert_eq!(rough.asked(), [Operation::Claim]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_full_or_cannot_read_is_not_asked_again() {
    let (rough, store) = bed();

    for kind in [StoreErrorKind::Full, StoreErrorKind::Corrupt] {
        rough.next([Fault::Fail(kind)]);
        let (found, _) = failure(store.claim(&claim()).await);

        assert_eq!(found, kind);
        assert_eq!(rough.asked(), [Operation::Claim]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_operators_change_is_done_at_most_once() {
    let (rough, store) = bed();
    let first = claim();
    lease(&store, &first).await;
    rough.asked();
    rough.always(Fault::LoseReply);

    failure(store.extend(&first.slot, LONG).await);
    failure(store.count_replays(&[(first.slot, 1)]).await);
    failure(store.resolve(&first.slot, &answer("resolved"), LONG).await);
    failure(store.forget(&first.slot).await);
    failure(store.sweep(1).await);

    let once = [
        Operation::Extend,
        Operation::CountReplays,
        Operation::Resolve,
        Operation::Forget,
        Operation::Sweep,
    ];
    assert_eq!(rough.asked(), once);
}

#[tokio::test(start_paused = true)]
async fn what_operators_read_is_asked_for_again() {
    let (rough, store) = bed();
    let page = Page {
        after: None,
        records_max: 1,
    };

    rough.next([DOWN]);
    store.get(&claim().slot).await.unwrap();
    rough.next([DOWN]);
    store.list(&Filter::default(), &page).await.unwrap();
    rough.next([DOWN]);
    store.stats().await.unwrap();
    rough.next([DOWN]);
    store.ping().await.unwrap();
    rough.next([Fault::LoseReply]);
    assert_eq!(store.agree("name", b"offer").await.unwrap(), b"offer");
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
    assert_took(&clock, 65 * SECOND, 66 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_does_not_overflow() {
    let (_, store) = bed();
    let nobody = claim();

    let waited = store.settled(&nobody.slot, &nobody.token, Duration::MAX);

    assert!(waited.await.is_ok());
}

/// The same byte, over and over.
struct Constant(u8);

impl Entropy for Constant {
    fn fill(&self, out: &mut [u8]) {
        out.fill(self.0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_pause_between_tries_is_random_and_grows() {
    let millis = Duration::from_millis;

    for (byte, whole) in [(0x00, millis(30)), (0xff, millis(60))] {
        let (rough, store) = bed();
        let store = store.entropy(Arc::new(Constant(byte)));
        rough.next([DOWN, DOWN]);
        let clock = SystemClock::new();

        lease(&store, &claim()).await;

        assert_took(&clock, whole, whole + millis(5));
    }
}

#[tokio::test(start_paused = true)]
async fn losing_a_race_is_an_answer_like_any_other() {
    let (rough, store) = bed();
    let first = claim();
    lease(&store, &first).await;
    rough.asked();

    let record = taken(&store, &first).await;

    assert_eq!(record.token, first.token);
    assert_eq!(rough.asked(), [Operation::Claim]);
}

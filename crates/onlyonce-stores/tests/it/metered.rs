//! What a metered store tells (O1): every operation's time and end, and nothing unbounded.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::Verb;
use onlyonce_core::operate::{Filter, Page};
use onlyonce_core::{
    Claim, Clock, MemoryStore, OnLapse, Operate, Release, Store, StoreErrorKind, Timestamp,
};
use onlyonce_stores::Metered;
use onlyonce_stores::metered::{BUCKETS, Outcome};

use crate::rough::{DOWN, Fault, LONG, Rough, WrappedBed, answer, claim, lease, rival, taken};

onlyonce_testkit::conformance_suite!(
    WrappedBed::new("metered", async |store| Metered::new(store)).await
);

fn bed() -> (Arc<Rough>, Metered) {
    let rough = Rough::new(Arc::new(MemoryStore::new()));
    let metered = Metered::new(rough.clone());
    (rough, metered)
}

/// The outcomes of `operation` so far.
fn ends(store: &Metered, verb: Verb) -> Vec<(Outcome, u64)> {
    store.snapshot().of(verb).outcomes().collect()
}

#[tokio::test(start_paused = true)]
async fn every_end_of_a_claim_is_counted() {
    let (_, store) = bed();
    let first = claim();
    let held = lease(&store, &first).await;
    taken(&store, &first).await;
    store.release(&held, Release::NotRun).await.unwrap();
    store.claim(&first).await.unwrap();

    assert_eq!(
        ends(&store, Verb::Claim),
        [
            (Outcome::Granted, 1),
            (Outcome::Taken, 1),
            (Outcome::Dead, 1)
        ]
    );
    assert_eq!(ends(&store, Verb::Release), [(Outcome::Ended, 1)]);
}

#[tokio::test(start_paused = true)]
async fn every_end_of_the_other_verbs_is_counted() {
    let (_, store) = bed();
    let (first, body) = (claim(), answer("stored"));
    let held = lease(&store, &first).await;
    store.renew(&held, LONG).await.unwrap();
    store.complete(&held, &body, LONG).await.unwrap();
    store.renew(&held, LONG).await.unwrap();
    store.complete(&held, &body, LONG).await.unwrap();
    store.complete(&claim().lease(), &body, LONG).await.unwrap();
    store.release(&held, Release::NotRun).await.unwrap();
    store
        .settled(&first.slot, &first.token, LONG)
        .await
        .unwrap();

    assert_eq!(
        ends(&store, Verb::Renew),
        [(Outcome::Kept, 1), (Outcome::Lost, 1)]
    );
    assert_eq!(
        ends(&store, Verb::Complete),
        [
            (Outcome::Stored, 1),
            (Outcome::Found, 1),
            (Outcome::Absent, 1)
        ]
    );
    assert_eq!(ends(&store, Verb::Release), [(Outcome::Found, 1)]);
    assert_eq!(ends(&store, Verb::Settled), [(Outcome::Ok, 1)]);
}

#[tokio::test(start_paused = true)]
async fn every_end_of_what_operators_do_is_counted() {
    let (_, store) = bed();
    let (first, nowhere, body) = (claim(), claim(), answer("stored"));
    let held = Claim {
        on_lapse: OnLapse::Hold,
        ..first
    };
    let held = lease(&store, &held).await;
    store.release(&held, Release::Unknown).await.unwrap();
    for slot in [&held.slot, &nowhere.slot] {
        store.get(slot).await.unwrap();
        store.extend(slot, LONG).await.unwrap();
        store.resolve(slot, &body, LONG).await.unwrap();
    }
    store.resolve(&held.slot, &body, LONG).await.unwrap();
    for slot in [&held.slot, &nowhere.slot] {
        store.forget(slot).await.unwrap();
    }
    let page = Page {
        after: None,
        records_max: 1,
    };
    store.list(&Filter::default(), &page).await.unwrap();
    store.sweep(1).await.unwrap();
    store.stats().await.unwrap();
    store.ping().await.unwrap();
    store.count_replays(&[]).await.unwrap();
    store.agree("name", b"offer").await.unwrap();
    store.recheck().await.unwrap();

    let either = [(Outcome::Found, 1), (Outcome::Absent, 1)];
    assert_eq!(ends(&store, Verb::Get), either);
    assert_eq!(ends(&store, Verb::Extend), either);
    assert_eq!(ends(&store, Verb::Forget), either);
    let all = [
        (Outcome::Stored, 1),
        (Outcome::Found, 1),
        (Outcome::Absent, 1),
    ];
    assert_eq!(ends(&store, Verb::Resolve), all);
    for operation in [
        Verb::List,
        Verb::Sweep,
        Verb::Stats,
        Verb::Ping,
        Verb::Recheck,
        Verb::CountReplays,
        Verb::Agree,
    ] {
        assert_eq!(ends(&store, operation), [(Outcome::Ok, 1)], "{operation:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn errors_are_counted_by_their_kind() {
    let (rough, store) = bed();
    rough.next([
        DOWN,
        Fault::Fail(StoreErrorKind::Full),
        Fault::Fail(StoreErrorKind::Corrupt),
        DOWN,
    ]);
    let claim = claim();

    for _ in 0..5 {
        let _ = store.claim(&claim).await;
    }

    assert_eq!(
        ends(&store, Verb::Claim),
        [
            (Outcome::Granted, 1),
            (Outcome::Unavailable, 2),
            (Outcome::Full, 1),
            (Outcome::Corrupt, 1),
        ]
    );
    assert_eq!(store.snapshot().of(Verb::Claim).errors(), 4);
    assert_eq!(store.snapshot().of(Verb::Claim).count, 5);
}

#[tokio::test(start_paused = true)]
async fn losing_a_race_is_no_error() {
    let (_, store) = bed();
    let first = claim();
    lease(&store, &first).await;

    for _ in 0..3 {
        taken(&store, &first).await;
    }
    let stranger = rival(&first).lease();
    store.renew(&stranger, LONG).await.unwrap();
    store
        .complete(&stranger, &answer("late"), LONG)
        .await
        .unwrap();

    let errors = |it| store.snapshot().of(it).errors();
    assert!(Verb::ALL.into_iter().all(|it| errors(it) == 0));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_is_counted_as_that() {
    let (rough, store) = bed();
    rough.next([Fault::Hang]);
    let claim = claim();

    let waited = tokio::time::timeout(Duration::from_secs(3), store.claim(&claim)).await;

    assert!(waited.is_err());
    let claims = store.snapshot().of(Verb::Claim).clone();
    assert_eq!(claims.outcome(Outcome::Dropped), 1);
    assert_eq!(claims.errors(), 0);
    assert!(claims.sum >= Duration::from_secs(3));
}

/// A clock that moves only by being read: each call takes one step.
#[derive(Default)]
struct Steps {
    now: Mutex<Duration>,
    step: Mutex<Duration>,
}

impl Steps {
    fn of(&self, step: Duration) {
        *self.step.lock().unwrap() = step;
    }
}

impl Clock for Steps {
    fn now(&self) -> Duration {
        let mut now = self.now.lock().unwrap();
        *now += *self.step.lock().unwrap();
        *now
    }

    fn wall(&self) -> Timestamp {
        Timestamp::default()
    }
}

#[tokio::test]
async fn each_call_is_in_the_bucket_of_the_time_it_took() {
    let steps = Arc::new(Steps::default());
    let store = Metered::new(Arc::new(MemoryStore::new())).clock(steps.clone());

    for end in BUCKETS {
        steps.of(end);
        store.ping().await.unwrap();
        steps.of(end + Duration::from_nanos(1));
        store.ping().await.unwrap();
    }

    let pings = store.snapshot().of(Verb::Ping).clone();
    // To each end belongs what took exactly so long, and what took longer than the end before.
    let expected: Vec<_> = (0..BUCKETS.len() as u64).map(|n| 2 * n + 1).collect();
    assert_eq!(pings.buckets.to_vec(), expected);
    assert_eq!(pings.count, 2 * BUCKETS.len() as u64);
    let nanos = Duration::from_nanos(BUCKETS.len() as u64);
    assert_eq!(pings.sum, 2 * BUCKETS.iter().sum::<Duration>() + nanos);
}

#[test]
fn the_buckets_are_those_of_the_documents_and_some_more() {
    let documented = [1, 5, 10, 25, 50, 100, 250, 500, 1000].map(Duration::from_millis);

    assert!(documented.iter().all(|end| BUCKETS.contains(end)));
    assert_eq!(BUCKETS.first(), Some(&Duration::from_micros(500)));
    assert_eq!(BUCKETS.last(), Some(&Duration::from_secs(10)));
    assert!(BUCKETS.is_sorted());
}

#[test]
fn every_label_has_a_name_of_its_own() {
    let operations: BTreeSet<_> = Verb::ALL.iter().map(|it| it.name()).collect();
    let outcomes: BTreeSet<_> = Outcome::ALL.iter().map(|it| it.name()).collect();

    assert_eq!(operations.len(), Verb::ALL.len());
    assert_eq!(outcomes.len(), Outcome::ALL.len());
    let is_label = |name: &&str| name.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
    assert!(operations.iter().chain(&outcomes).all(is_label));
}

#[test]
fn a_snapshot_lists_every_operation_under_its_own_name() {
    let snapshot = Metered::new(Arc::new(MemoryStore::new())).snapshot();

    let listed: Vec<_> = snapshot.operations().iter().map(|it| it.verb).collect();

    assert_eq!(listed, Verb::ALL);
    assert!(Verb::ALL.iter().all(|it| snapshot.of(*it).verb == *it));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_at_the_same_time_are_all_counted() {
    const TASKS: u64 = 16;
    const CALLS: u64 = 200;
    let store = Arc::new(Metered::new(Arc::new(MemoryStore::new())));
    let meter = store.meter();

    let tasks = (0..TASKS).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for _ in 0..CALLS {
                store.ping().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }

    let pings = meter.snapshot().of(Verb::Ping).clone();
    assert_eq!(pings.count, TASKS * CALLS);
    assert_eq!(pings.outcome(Outcome::Ok), TASKS * CALLS);
}

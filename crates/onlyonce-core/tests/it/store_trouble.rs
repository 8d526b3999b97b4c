//! The store fails: closed or open, lost replies, and nothing left behind.

use std::sync::atomic::Ordering;
use std::time::Duration;

use onlyonce_core::event::Verb;
use onlyonce_core::policy::StoreDown;
use onlyonce_core::{
    Answer, Event, OnLapse, Operate, Origin, Outcome, Policy, Reason, StoreErrorKind,
};

use crate::support::{Fault, Work, bed, eventually, node, policy, ran, refused, replayed, settle};

#[tokio::test(start_paused = true)]
async fn with_the_store_down_nothing_runs_where_the_policy_is_closed() {
    let (store, node) = bed().await;
    store.down.store(true, Ordering::SeqCst);
    let work = Work::new();

    let answer = node.once("key", &policy(), &work).await;

    assert_eq!(refused(&answer), Reason::StoreDown);
    assert_eq!(work.starts(), 0);
    let tries: Vec<u32> = (1..=3).collect();
    for attempt in tries {
        let unavailable = |it: &Event| {
            matches!(it, Event::StoreFailed {
                verb: Verb::Claim,
                kind: StoreErrorKind::Unavailable,
                attempt: told,
                ..
            } if *told == attempt)
        };
        assert_eq!(node.heard.count(unavailable), 1, "attempt {attempt}");
    }
    store.down.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(ran(&node.once("key", &policy(), &work).await), "run 1");
}

#[tokio::test(start_paused = true)]
async fn with_the_store_down_it_runs_and_says_so_where_the_policy_is_open() {
    let (store, node) = bed().await;
    store.down.store(true, Ordering::SeqCst);
    let open = Policy {
        store_down: StoreDown::Open,
        ..policy()
    };
    let work = Work::new();

    let answer = node.once("key", &open, &work).await;

    assert!(matches!(&answer, Answer::Ran { receipt: None, .. }));
    assert_eq!(node.heard.count(|it| matches!(it, Event::Unprotected)), 1);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_never_runs_even_where_the_policy_is_open() {
    let (store, node) = bed().await;
    store.claims.fail_next([Fault::Corrupt]);
    let open = Policy {
        store_down: StoreDown::Open,
        ..policy()
    };
    let work = Work::new();

    let answer = node.once("key", &open, &work).await;

    assert_eq!(refused(&answer), Reason::StoreDown);
    assert_eq!(work.starts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_reply_was_lost_runs_once() {
    let (store, node) = bed().await;
    store.claims.fail_next([Fault::LostAfter, Fault::LostAfter]);
    let work = Work::new();

    let answer = node.once("key", &policy(), &work).await;

    assert_eq!(ran(&answer), "run 1");
    assert_eq!((work.starts(), store.claims.count()), (1, 3));
}

/// Under `hold` a claim nobody knows of would be "outcome unknown" for a day.
#[tokio::test(start_paused = true)]
async fn a_claim_given_up_is_released_so_that_it_does_not_wedge_the_key() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    let hold = Policy {
        on_lapse: OnLapse::Hold,
        ..policy()
    };
    store.claims.fail_next([Fault::LostAfter; 3]);
    let work = Work::new();

    let first_try = first.once("key", &hold, &work).await;
    eventually(|| store.releases.count() == 1).await;
    settle().await;
    let second_try = second.once("key", &hold, &work).await;

    assert_eq!(refused(&first_try), Reason::StoreDown);
    assert_eq!(ran(&second_try), "run 1");
}

/// Otherwise every claim that an open breaker refuses would become a release, and a store that comes
/// back would drown in them.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_never_sent_is_not_released() {
    let (store, node) = bed().await;
    store.claims.fail_next([Fault::Unsent; 3]);

    let answer = node.once("key", &policy(), &Work::new()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;

    assert_eq!(refused(&answer), Reason::StoreDown);
    assert_eq!(store.releases.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_reply_was_lost_is_released_though_its_repetition_was_never_sent() {
    let (store, node) = bed().await;
    store
        .claims
        .fail_next([Fault::LostAfter, Fault::Unsent, Fault::Unsent]);

    let answer = node.once("key", &policy(), &Work::new()).await;
    eventually(|| store.releases.count() == 1).await;

    assert_eq!(refused(&answer), Reason::StoreDown);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_is_tried_again() {
    let (store, node) = bed().await;
    store.releases.fail_next([Fault::LostBefore; 4]);
    let not_run = Work::ending(|_| Outcome::NotRun);
    node.once("key", &policy(), &not_run).await;

    eventually(|| store.releases.count() == 5).await;
    settle().await;

    let before = tokio::time::Instant::now();
    assert_eq!(
        ran(&node.once("key", &policy(), &Work::new()).await),
        "run 1"
    );
    assert_eq!(
        before.elapsed(),
        Duration::ZERO,
        "it did not wait for the lease"
    );
}

#[tokio::test(start_paused = true)]
async fn losing_a_race_is_no_failure_of_the_store() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    let work = Work::new();
    first.once("key", &policy(), &work).await;

    let answer = second.once("key", &policy(), &work).await;

    assert_eq!(replayed(&answer), "run 1");
    assert_eq!(
        second
            .heard
            .count(|it| matches!(it, Event::StoreFailed { .. })),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_store_refuses_new_keys_and_still_replays() {
    let store = std::sync::Arc::new(crate::support::Probe {
        inner: onlyonce_core::MemoryStore::new().records_max(1),
        ..Default::default()
    });
    let node = node(&store).await;
    let work = Work::new();
    node.once("first", &policy(), &work).await;

    let second = node.once("second", &policy(), &work).await;

    assert_eq!(refused(&second), Reason::StoreDown);
    assert_eq!(
        replayed(&node.once("first", &policy(), &work).await),
        "run 1"
    );
    assert_eq!(store.inner.stats().await.unwrap().records, 1);
}

/// Tried again for ever, it would be "not stored yet" until its lease is taken over and it runs again.
#[tokio::test(start_paused = true)]
async fn an_answer_too_large_for_the_store_ends_as_a_marker_and_runs_once() {
    let (store, node) = bed().await;
    store.completions.fail_next([Fault::TooLarge]);
    let work = Work::new();

    let first = node.once("key", &policy(), &work).await;
    let retry = node.once("key", &policy(), &work).await;

    let Answer::Ran {
        response,
        receipt: Some(_),
        as_returned: true,
        ..
    } = &first
    else {
        panic!("expected a stored run, got {first:?}");
    };
    assert_eq!(response.origin, Origin::TooLarge);
    let Answer::Replayed(replay) = &retry else {
        panic!("expected a replay, got {retry:?}");
    };
    assert_eq!(replay.response.origin, Origin::TooLarge);
    assert_eq!((work.starts(), store.completions.count()), (1, 2));
    let told = |it: &Event| matches!(it, Event::TooLarge { .. });
    assert_eq!(node.heard.count(told), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_over_the_known_bound_of_the_store_is_not_even_offered_to_it() {
    let (store, node) = bed().await;
    store.response_bytes_max.store(3, Ordering::SeqCst);
    let work = Work::new();

    let first = node.once("key", &policy(), &work).await;
    let retry = node.once("key", &policy(), &work).await;

    assert!(matches!(
        &first,
        Answer::Ran {
            receipt: Some(_),
            ..
        }
    ));
    let Answer::Replayed(replay) = &retry else {
        panic!("expected a replay, got {retry:?}");
    };
    assert_eq!(replay.response.origin, Origin::TooLarge);
    assert_eq!((work.starts(), store.completions.count()), (1, 1));
    let told = |it: &Event| matches!(it, Event::TooLarge { bytes_max: 3, .. });
    assert_eq!(node.heard.count(told), 1);
}

/// A store that takes not even the marker is at fault: the completion goes on in the background.
#[tokio::test(start_paused = true)]
async fn a_marker_that_the_store_does_not_take_is_tried_again() {
    let (store, node) = bed().await;
    store
        .completions
        .fail_next([Fault::TooLarge, Fault::TooLarge]);
    let work = Work::new();

    let first = node.once("key", &policy(), &work).await;

    assert!(matches!(
        &first,
        Answer::Ran {
            receipt: Some(_),
            ..
        }
    ));
    assert_eq!((work.starts(), store.completions.count()), (1, 3));
}

/// Who never heard that it took over must not give the earlier attempt back with its own: that one may
/// have happened, and `hold` runs nothing twice.
#[tokio::test(start_paused = true)]
async fn a_take_over_whose_reply_is_lost_forgets_no_earlier_attempt() {
    let (store, node) = bed().await;
    let rerun = Policy {
        on_lapse: OnLapse::Rerun,
        ..policy()
    };
    let hold = Policy {
        on_lapse: OnLapse::Hold,
        ..policy()
    };
    let doubtful = Work::ending(|_| Outcome::Unknown);
    node.once("key", &rerun, &doubtful).await;
    store.claims.fail_next([Fault::LostAfter; 3]);
    let unheard = node.once("key", &rerun, &Work::new()).await;
    assert_eq!(refused(&unheard), Reason::StoreDown);
    eventually(|| store.releases.count() == 2).await;

    let work = Work::new();
    let answer = node.once("key", &hold, &work).await;

    assert_eq!(refused(&answer), Reason::OutcomeUnknown);
    assert_eq!((doubtful.starts(), work.starts()), (1, 0));
    assert_eq!(ran(&node.once("key", &rerun, &work).await), "run 1");
}

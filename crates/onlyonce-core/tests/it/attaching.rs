//! Duplicates in one process share one flight.

use std::future::{Future as _, poll_fn};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use onlyonce_core::policy::{Duplicate, StoredRule};
use onlyonce_core::{Event, Outcome, Policy, Reason, Response};

use crate::support::{Work, bed, eventually, node, policy, ran, refused, replayed, settle};

#[tokio::test(start_paused = true)]
async fn duplicates_in_one_process_cost_no_store_call() {
    let (store, node) = bed().await;
    let work = Work::new().gated();
    let leader = node.start("key", &policy(), &work);
    work.started().await;

    let duplicates: Vec<_> = (0..100)
        .map(|_| node.start("key", &policy(), &work))
        .collect();
    settle().await;
    work.open();
    let answers = join_all(duplicates).await;

    assert_eq!(ran(&leader.await.unwrap()), "run 1");
    for answer in answers {
        assert_eq!(replayed(&answer.unwrap()), "run 1");
    }
    assert_eq!((work.starts(), store.claims.count()), (1, 1));
    assert_eq!(store.completions.count(), 1);
    assert_eq!(
        node.heard.count(|it| matches!(it, Event::Attached { .. })),
        100
    );
    assert_eq!(
        node.heard
            .count(|it| matches!(it, Event::Replayed { attached: true, .. })),
        100
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_racing_duplicates_in_many_processes_one_runs() {
    let (store, first) = bed().await;
    let nodes = [first, node(&store).await, node(&store).await];
    for round in 0..50 {
        let work = Work::new();
        let key = format!("key-{round}");
        let racing: Vec<_> = (0..30)
            .map(|number| nodes[number % 3].start(&key, &policy(), &work))
            .collect();

        let answers = join_all(racing).await;

        assert_eq!(work.starts(), 1, "round {round}");
        let bodies: Vec<_> = answers
            .iter()
            .map(|answer| match answer.as_ref().unwrap() {
                onlyonce_core::Answer::Ran { .. } => ran(answer.as_ref().unwrap()),
                _ => replayed(answer.as_ref().unwrap()),
            })
            .collect();
        assert!(bodies.iter().all(|body| body == "run 1"));
    }
}

#[tokio::test(start_paused = true)]
async fn attached_duplicates_share_an_answer_that_is_not_stored() {
    let (store, node) = bed().await;
    let unstored = Policy {
        stored: StoredRule::success(),
        ..policy()
    };
    let work = Work::ending(|number| {
        Response::new(StatusCode::BAD_GATEWAY, format!("run {number}")).into()
    })
    .gated();
    let leader = node.start("key", &unstored, &work);
    work.started().await;
    let duplicate = node.start("key", &unstored, &work);
    settle().await;

    work.open();

    assert_eq!(ran(&leader.await.unwrap()), "run 1");
    assert_eq!(replayed(&duplicate.await.unwrap()), "run 1");
    assert_eq!(work.starts(), 1);
    assert_eq!(store.releases.count(), 1);
    assert_eq!(ran(&node.once("key", &unstored, &work).await), "run 2");
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_that_will_not_wait_is_told_at_once() {
    let (_, node) = bed().await;
    let impatient = Policy {
        duplicate: Duplicate::Refuse,
        ..policy()
    };
    let work = Work::new().gated();
    let leader = node.start("key", &impatient, &work);
    work.started().await;

    let duplicate = node.once("key", &impatient, &work).await;

    assert_eq!(refused(&duplicate), Reason::InProgress);
    work.open();
    assert_eq!(ran(&leader.await.unwrap()), "run 1");
    assert_eq!(
        replayed(&node.once("key", &impatient, &work).await),
        "run 1"
    );
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_waits_no_longer_than_its_patience() {
    let (_, node) = bed().await;
    let policy = Policy {
        duplicate: Duplicate::Wait(Duration::from_secs(2)),
        ..policy()
    };
    let work = Work::new().gated();
    let leader = node.start("key", &policy, &work);
    work.started().await;

    let before = tokio::time::Instant::now();
    let duplicate = node.once("key", &policy, &work).await;

    assert_eq!(refused(&duplicate), Reason::InProgress);
    assert_eq!(before.elapsed().as_secs(), 2);
    work.open();
    leader.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_waiter_too_many_is_refused() {
    let (_, node) = bed().await;
    let policy = Policy {
        local_waiters_max: 2,
        ..policy()
    };
    let work = Work::new().gated();
    let leader = node.start("key", &policy, &work);
    work.started().await;
    let waiting = [(); 2].map(|()| node.start("key", &policy, &work));
    settle().await;

    let third = node.once("key", &policy, &work).await;

    assert_eq!(refused(&third), Reason::TooManyWaiters);
    let is_told = |event: &Event| {
        matches!(
            event,
            Event::TurnedAway { queue_depth: 3, holder, .. } if **holder == *node.engine.instance()
        )
    };
    assert_eq!(node.heard.count(is_told), 1);
    work.open();
    leader.await.unwrap();
    for waiter in waiting {
        assert_eq!(replayed(&waiter.await.unwrap()), "run 1");
    }
}

#[tokio::test(start_paused = true)]
async fn another_meaning_is_refused_at_once_while_the_first_runs() {
    let (store, node) = bed().await;
    let work = Work::new().gated();
    let leader = node.start("key", &policy(), &work);
    work.started().await;

    let other = node.once_meaning("key", "another", &policy(), &work).await;

    assert_eq!(refused(&other), Reason::Mismatch);
    assert_eq!(store.claims.count(), 1);
    work.open();
    leader.await.unwrap();
    let other = node.once_meaning("key", "another", &policy(), &work).await;
    assert_eq!(refused(&other), Reason::Mismatch);
}

/// docs/protocol.md#rule-12: the flight in this process may itself be the one that is refused.
#[tokio::test(start_paused = true)]
async fn a_mismatch_is_not_judged_against_a_flight_the_store_has_not_confirmed() {
    let (store, node) = bed().await;
    let work = Work::new();
    assert_eq!(ran(&node.once("key", &policy(), &work).await), "run 1");
    store
        .claims
        .fail_next([crate::support::Fault::SlowAfter(Duration::from_millis(500))]);
    let intruder = {
        let (node, work) = (node.clone(), work.clone());
        tokio::spawn(async move { node.once_meaning("key", "another", &policy(), &work).await })
    };
    eventually(|| store.claims.count() == 2).await;

    let honest = node.once("key", &policy(), &work).await;

    assert_eq!(replayed(&honest), "run 1");
    assert_eq!(refused(&intruder.await.unwrap()), Reason::Mismatch);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_hangs_up_does_not_stop_the_handler() {
    let (_, node) = bed().await;
    let work = Work::new().gated();
    let caller = node.start("key", &policy(), &work);
    work.started().await;

    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    work.open();
    eventually(|| node.engine.in_flight() == 0).await;

    assert_eq!((work.starts(), work.ends()), (1, 1));
    assert_eq!(replayed(&node.once("key", &policy(), &work).await), "run 1");
}

#[tokio::test(start_paused = true)]
async fn a_caller_dropped_on_a_thread_without_a_runtime_does_not_stop_the_handler() {
    let (_, node) = bed().await;
    let work = Work::new().gated();
    let (caller, running) = (node.clone(), work.clone());
    let mut once = Box::pin(async move { caller.once("key", &policy(), &running).await });
    let polled = poll_fn(|cx| Poll::Ready(once.as_mut().poll(cx)));
    assert!(polled.await.is_pending());
    assert_eq!(work.starts(), 1);

    std::thread::spawn(move || drop(once)).join().unwrap();

    work.open();
    eventually(|| work.ends() == 1).await;
    assert_eq!(replayed(&node.once("key", &policy(), &work).await), "run 1");
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_hangs_up_during_the_claim_leaves_no_orphan() {
    let (store, node) = bed().await;
    store
        .claims
        .fail_next([crate::support::Fault::SlowAfter(Duration::from_millis(500))]);
    let work = Work::new();
    let caller = node.start("key", &policy(), &work);
    eventually(|| store.claims.count() == 1).await;

    caller.abort();
    eventually(|| node.engine.in_flight() == 0).await;

    assert_eq!(work.starts(), 1);
    assert_eq!(replayed(&node.once("key", &policy(), &work).await), "run 1");
}

#[tokio::test(start_paused = true)]
async fn not_run_is_shared_too_and_frees_the_slot() {
    let (_, node) = bed().await;
    let work = Work::ending(|number| match number {
        1 => Outcome::NotRun,
        _ => Response::new(StatusCode::OK, "second").into(),
    })
    .gated();
    let leader = node.start("key", &policy(), &work);
    work.started().await;
    let duplicate = node.start("key", &policy(), &work);
    settle().await;

    work.open();

    assert_eq!(refused(&leader.await.unwrap()), Reason::NotRun);
    assert_eq!(refused(&duplicate.await.unwrap()), Reason::NotRun);
    assert_eq!(ran(&node.once("key", &policy(), &work).await), "second");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_caller_who_went_away_tries_for_itself() {
    let (store, node) = bed().await;
    store
        .claims
        .fail_next([crate::support::Fault::SlowAfter(Duration::from_secs(1))]);
    let call = node.call("key", "the same", &policy());
    let engine = node.engine.clone();
    let by_hand = tokio::spawn(async move { engine.begin(call).await });
    eventually(|| store.claims.count() == 1).await;
    let work = Work::new();
    let waiting = node.start("key", &policy(), &work);
    settle().await;

    by_hand.abort();

    assert_eq!(ran(&waiting.await.unwrap()), "run 1");
}

//! Duplicates in other processes wait for the holder, through the store.

use std::time::Duration;

use onlyonce_core::policy::Duplicate;
use onlyonce_core::{Event, Outcome, Policy, Reason};

use crate::support::{Work, bed, eventually, node, policy, ran, refused, replayed, settle};

#[tokio::test(start_paused = true)]
async fn a_waiter_in_another_process_wakes_as_soon_as_the_result_is_there() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    let work = Work::new().gated();
    let holder = first.start("key", &policy(), &work);
    work.started().await;
    let waiter = second.start("key", &policy(), &work);
    eventually(|| second.heard.count(|it| matches!(it, Event::Waiting { .. })) == 1).await;

    let opened = tokio::time::Instant::now();
    work.open();

    assert_eq!(replayed(&waiter.await.unwrap()), "run 1");
    assert_eq!(opened.elapsed(), Duration::ZERO);
    assert_eq!(ran(&holder.await.unwrap()), "run 1");
    assert_eq!(store.claims.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gives_up_after_its_patience_and_is_told_when_to_retry() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    let patient = Policy {
        duplicate: Duplicate::Wait(Duration::from_secs(5)),
        ..policy()
    };
    let work = Work::new().gated();
    let holder = first.start("key", &patient, &work);
    work.started().await;

    let before = tokio::time::Instant::now();
    let answer = second.once("key", &patient, &work).await;

    assert_eq!(refused(&answer), Reason::InProgress);
    assert_eq!(before.elapsed().as_secs(), 5);
    let onlyonce_core::Answer::Refused(refusal) = answer else {
        unreachable!("checked above");
    };
    assert_eq!(refusal.retry_after, Some(patient.retry_after));
    work.open();
    assert_eq!(ran(&holder.await.unwrap()), "run 1");
}

#[tokio::test(start_paused = true)]
async fn a_slot_held_elsewhere_takes_only_so_many_waiters_a_process() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    let policy = Policy {
        waiters_max: 3,
        ..policy()
    };
    let work = Work::new().gated();
    let holder = first.start("key", &policy, &work);
    work.started().await;
    let waiting = [(); 3].map(|()| second.start("key", &policy, &work));
    settle().await;

    let fourth = second.once("key", &policy, &work).await;

    assert_eq!(refused(&fourth), Reason::TooManyWaiters);
    work.open();
    holder.await.unwrap();
    for waiter in waiting {
        assert_eq!(replayed(&waiter.await.unwrap()), "run 1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_takes_over_what_the_holder_gave_back() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    let refusing = Work::ending(|_| Outcome::NotRun).gated();
    let holder = first.start("key", &policy(), &refusing);
    refusing.started().await;
    let work = Work::new();
    let waiter = second.start("key", &policy(), &work);
    settle().await;

    refusing.open();

    assert_eq!(refused(&holder.await.unwrap()), Reason::NotRun);
    assert_eq!(ran(&waiter.await.unwrap()), "run 1");
}

#[tokio::test(start_paused = true)]
async fn another_meaning_does_not_wait_for_another_process() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    let work = Work::new().gated();
    let holder = first.start("key", &policy(), &work);
    work.started().await;

    let before = tokio::time::Instant::now();
    let other = second
        .once_meaning("key", "another", &policy(), &work)
        .await;

    assert_eq!(refused(&other), Reason::Mismatch);
    assert_eq!(before.elapsed(), Duration::ZERO);
    work.open();
    holder.await.unwrap();
}

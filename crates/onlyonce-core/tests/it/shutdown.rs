//! Shutting down: what runs may finish, what never started is given back, nothing new begins.

use std::time::Duration;

use onlyonce_core::Reason;

use crate::support::{Fault, Work, bed, eventually, node, policy, ran, refused, replayed, settle};

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_running_handlers() {
    let (_, node) = bed().await;
    let work = Work::new().taking(Duration::from_secs(5));
    let running = node.start("key", &policy(), &work);
    work.started().await;

    let left = node.engine.shutdown(Duration::from_secs(30)).await;

    assert_eq!(left, 0);
    assert_eq!(work.ends(), 1);
    assert_eq!(ran(&running.await.unwrap()), "run 1");
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_no_longer_than_its_grace_and_says_what_is_left() {
    let (_, node) = bed().await;
    let work = Work::new().gated();
    let running = node.start("key", &policy(), &work);
    work.started().await;

    let left = node.engine.shutdown(Duration::from_secs(2)).await;

    assert_eq!(left, 1);
    work.open();
    assert_eq!(ran(&running.await.unwrap()), "run 1");
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_after_shutdown() {
    let (store, node) = bed().await;
    node.engine.shutdown(Duration::from_secs(1)).await;
    let work = Work::new();

    let answer = node.once("key", &policy(), &work).await;

    assert_eq!(refused(&answer), Reason::ShuttingDown);
    assert_eq!((work.starts(), store.claims.count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn shutdown_gives_back_what_never_started() {
    let (store, closing) = bed().await;
    let other = node(&store).await;
    store
        .claims
        .fail_next([Fault::SlowAfter(Duration::from_millis(500))]);
    let work = Work::new();
    let claiming = closing.start("key", &policy(), &work);
    eventually(|| store.claims.count() == 1).await;

    closing.engine.shutdown(Duration::from_secs(10)).await;
    let before = tokio::time::Instant::now();
    let elsewhere = other.once("key", &policy(), &Work::new()).await;

    assert_eq!(refused(&claiming.await.unwrap()), Reason::ShuttingDown);
    assert_eq!(work.starts(), 0);
    assert_eq!(ran(&elsewhere), "run 1");
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn shutdown_wakes_those_who_wait_for_another_process() {
    let (store, holder) = bed().await;
    let closing = node(&store).await;
    let work = Work::new().gated();
    let running = holder.start("key", &policy(), &work);
    work.started().await;
    let waiting = closing.start("key", &policy(), &work);
    settle().await;

    let before = tokio::time::Instant::now();
    closing.engine.shutdown(Duration::from_secs(30)).await;

    assert_eq!(refused(&waiting.await.unwrap()), Reason::ShuttingDown);
    assert_eq!(before.elapsed(), Duration::ZERO);
    work.open();
    running.await.unwrap();
    assert_eq!(
        replayed(&holder.once("key", &policy(), &work).await),
        "run 1"
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_flushes_the_replay_counts() {
    let (store, node) = bed().await;
    let work = Work::new();
    node.once("key", &policy(), &work).await;
    node.once("key", &policy(), &work).await;

    node.engine.shutdown(Duration::from_secs(1)).await;

    let slot = *node.call("key", "the same", &policy()).slot();
    let record = onlyonce_core::Operate::get(&store.inner, &slot)
        .await
        .unwrap();
    assert_eq!(record.unwrap().replays, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_unprotected_after_shutdown_either() {
    let (store, node) = bed().await;
    let open = onlyonce_core::Policy {
        store_down: onlyonce_core::policy::StoreDown::Open,
        ..policy()
    };
    store.down.store(true, std::sync::atomic::Ordering::SeqCst);
    let work = Work::new();
    let claiming = node.start("key", &open, &work);
    eventually(|| store.claims.count() == 1).await;

    node.engine.shutdown(Duration::from_secs(5)).await;

    assert_eq!(refused(&claiming.await.unwrap()), Reason::ShuttingDown);
    assert_eq!(work.starts(), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_after_shutdown_beside_a_flight_of_another_meaning() {
    let (store, holder) = bed().await;
    let closing = node(&store).await;
    let gives_back = Work::ending(|_| onlyonce_core::Outcome::NotRun).gated();
    let held = holder.start("key", &policy(), &gives_back);
    gives_back.started().await;
    let work = Work::new();
    let waiting = closing.start("key", &policy(), &work);
    settle().await;
    store
        .claims
        .fail_next([Fault::SlowAfter(Duration::from_secs(10))]);
    gives_back.open();
    held.await.unwrap();
    eventually(|| store.claims.count() == 3).await;
    let slot = *closing.call("key", "the same", &policy()).slot();
    onlyonce_core::Operate::forget(&store.inner, &slot)
        .await
        .unwrap();

    closing.engine.shutdown(Duration::ZERO).await;
    let other = closing
        .once_meaning("key", "another", &policy(), &work)
        .await;

    assert_eq!(refused(&other), Reason::ShuttingDown);
    waiting.await.unwrap();
    assert_eq!(work.starts(), 0);
}

/// A store whose reply to `settled` hangs does not hold a waiter beyond its patience.
#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_its_deadline_even_if_the_store_hangs() {
    let (store, holder) = bed().await;
    let other = node(&store).await;
    let work = Work::new().gated();
    let running = holder.start("key", &policy(), &work);
    work.started().await;
    store
        .settled_hangs
        .store(true, std::sync::atomic::Ordering::SeqCst);

    let before = tokio::time::Instant::now();
    let waiter = other.once("key", &policy(), &work).await;

    assert_eq!(refused(&waiter), Reason::InProgress);
    assert!(before.elapsed() < policy().duplicate.patience() + Duration::from_secs(1));
    work.open();
    running.await.unwrap();
}

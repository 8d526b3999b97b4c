//! How other processes hear of a claim's end, and what happens when they do not.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Claim, Clock, Operate, Store, SystemClock};
use onlyonce_sql::PostgresStore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::bed::{Bed, direct_url};
use super::support::{LONG, SOON, done, fresh, granted, stored, until};

fn waiting(store: &Arc<PostgresStore>, claim: &Claim) -> JoinHandle<()> {
    let (store, slot, token) = (Arc::clone(store), claim.slot, claim.token);
    tokio::spawn(async move { store.settled(&slot, &token, LONG).await.unwrap() })
}

async fn heard(waiting: JoinHandle<()>) {
    timeout(SOON, waiting)
        .await
        .expect("woken long before the lease ends")
        .unwrap();
}

fn listeners(bed: &Bed) -> String {
    let table = &bed.table;
    format!("SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN \"{table}_settled\"'")
}

#[tokio::test]
async fn another_process_hears_of_a_completion() {
    for options in ["", "&notify=false"] {
        let bed = Bed::open(&direct_url(), options).await;
        let elsewhere = Arc::new(bed.another().await);
        for _ in 0..5 {
            let claim = fresh();
            let lease = granted(&bed.store, &claim).await;
            let waiting = waiting(&elsewhere, &claim);
            tokio::task::yield_now().await;

            stored(&bed.store, &lease, "stored").await;

            heard(waiting).await;
        }
    }
}

/// With notifications on, a wait ends by being told, far sooner than it would ask.
#[tokio::test]
async fn another_process_is_told_and_need_not_ask() {
    let bed = Bed::direct().await;
    let elsewhere = Arc::new(bed.another().await);
    let first = fresh();
    granted(&bed.store, &first).await;
    let kept = waiting(&elsewhere, &first);
    until(async || bed.number(listeners(&bed)).await == 1).await;
    let clock = SystemClock::new();

    let mut waits = Vec::new();
    for _ in 0..8 {
        let claim = fresh();
        let lease = granted(&bed.store, &claim).await;
        let waiting = waiting(&elsewhere, &claim);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let from = clock.now();
        stored(&bed.store, &lease, "stored").await;
        heard(waiting).await;
        waits.push(clock.now() - from);
    }

    // One slow moment of the machine decides nothing; asking once a second would show.
    waits.sort();
    assert!(waits[0] < Duration::from_millis(400), "{waits:?}");
    assert!(bed.store.forget(&first.slot).await.unwrap());
    heard(kept).await;
}

#[tokio::test]
async fn a_lost_connection_that_listens_comes_back_and_nobody_is_forgotten() {
    let bed = Bed::direct().await;
    let elsewhere = Arc::new(bed.another().await);
    let claim = fresh();
    let lease = granted(&bed.store, &claim).await;
    let waiting_one = waiting(&elsewhere, &claim);
    until(async || bed.number(listeners(&bed)).await == 1).await;

    let table = &bed.table;
    let kill = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE query = 'LISTEN \"{table}_settled\"'"
    );
    bed.execute(kill).await;
    stored(&bed.store, &lease, "stored").await;

    heard(waiting_one).await;
    until(async || bed.number(listeners(&bed)).await == 1).await;
    let claim = fresh();
    let lease = granted(&bed.store, &claim).await;
    let waiting_two = waiting(&elsewhere, &claim);
    stored(&bed.store, &lease, "stored").await;
    heard(waiting_two).await;
}

#[tokio::test]
async fn nobody_listens_before_somebody_waits() {
    let bed = Bed::direct().await;
    let claim = done(&bed.store, "stored").await;

    assert_eq!(bed.number(listeners(&bed)).await, 0);

    bed.store
        .settled(&claim.slot, &claim.token, LONG)
        .await
        .unwrap();
    until(async || bed.number(listeners(&bed)).await == 1).await;
}

//! What a request costs in round trips, and what becomes of it when a reply is lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_core::{Claimed, Completed, Operate, Release, Released, Store};
use onlyonce_sql::MySqlStore;
use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Shared, shared};

use super::table;
use crate::sql::{LONG, answer, body, done, fresh, lease, rival, taken};

async fn behind_a_proxy(options: &str) -> (Proxy, Arc<MySqlStore>) {
    let proxy = Proxy::start(&shared(Shared::MariaDb)).await.unwrap();
    let url = format!("{}?table={}{options}", proxy.url(), table());
    let store = Arc::new(MySqlStore::open(&url).await.unwrap());
    // So that connections are there, and what must be prepared is.
    let claim = done(&*store, "first").await;
    let held = lease(&*store, &fresh()).await;
    store.renew(&held, LONG).await.unwrap();
    taken(&*store, &rival(&claim)).await;
    (proxy, store)
}

#[tokio::test]
async fn a_new_request_is_two_round_trips_and_a_replay_is_one() {
    let (proxy, store) = behind_a_proxy("").await;

    proxy.reset();
    let claim = fresh();
    let held = lease(&*store, &claim).await;
    assert_eq!(proxy.round_trips(), 1, "claim");

    store
        .complete(&held, &answer("stored"), LONG)
        .await
        .unwrap();
    assert_eq!(proxy.round_trips(), 2, "complete");

    let found = taken(&*store, &rival(&claim)).await;
    assert_eq!(proxy.round_trips(), 3, "replay");
    assert_eq!(body(&found), b"stored");
}

#[tokio::test]
async fn a_claim_in_vain_is_one_round_trip() {
    let (proxy, store) = behind_a_proxy("").await;
    let claim = fresh();
    lease(&*store, &claim).await;

    proxy.reset();
    taken(&*store, &rival(&claim)).await;

    assert_eq!(proxy.round_trips(), 1);
}

#[tokio::test]
async fn a_renewal_is_two_round_trips() {
    let (proxy, store) = behind_a_proxy("").await;
    let held = lease(&*store, &fresh()).await;

    proxy.reset();
    store.renew(&held, LONG).await.unwrap();

    assert_eq!(proxy.round_trips(), 2);
}

#[tokio::test]
async fn what_is_asked_at_the_same_time_shares_its_round_trips() {
    let (proxy, store) = behind_a_proxy("").await;
    proxy.delay(Duration::from_millis(50));
    proxy.reset();

    let requests = (0..100).map(|_| {
        let store = Arc::clone(&store);
        async move { done(&*store, "stored").await }
    });
    join_all(requests).await;

    // Two workers a verb, each of which may once go with little; and connections are opened.
    assert!(proxy.round_trips() < 40, "{}", proxy.round_trips());
}

#[tokio::test]
async fn a_lost_reply_to_a_claim_is_asked_for_again() {
    let (proxy, store) = behind_a_proxy("").await;

    for _ in 0..5 {
        let claim = fresh();
        proxy.drop_reply_to(b"INSERT INTO");
        let held = lease(&*store, &claim).await;

        assert_eq!(held.attempt, 1);
        assert_eq!(taken(&*store, &rival(&claim)).await.attempt, 1);
    }
    assert_eq!(proxy.replies_lost(), 5);
}

#[tokio::test]
async fn a_lost_reply_to_a_completion_finds_what_was_stored() {
    let (proxy, store) = behind_a_proxy("").await;
    let claim = fresh();
    let held = lease(&*store, &claim).await;

    proxy.drop_reply_to(b"START TRANSACTION;UPDATE");
    let completed = store
        .complete(&held, &answer("stored"), LONG)
        .await
        .unwrap();

    match completed {
        Completed::Found(record) => assert_eq!(record.token, claim.token),
        other => panic!("not found: {other:?}"),
    }
    assert_eq!(proxy.replies_lost(), 1);
    assert_eq!(body(&taken(&*store, &rival(&claim)).await), b"stored");
}

#[tokio::test]
async fn a_lost_reply_to_a_step_is_settled_by_reading() {
    let (proxy, store) = behind_a_proxy("").await;
    let claim = fresh();
    let held = lease(&*store, &claim).await;

    proxy.drop_replies(1);
    let released = store.release(&held, Release::NotRun).await.unwrap();

    assert!(matches!(released, Released::Ended), "{released:?}");
    assert!(store.get(&claim.slot).await.unwrap().is_none());
    let late = store.claim(&claim).await.unwrap();
    assert!(matches!(late, Claimed::Dead), "{late:?}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up_in_time() {
    let (proxy, store) = behind_a_proxy("&timeout_ms=300").await;
    proxy.stall().await;

    let claimed = store.claim(&fresh()).await;

    let told = format!("{:?}", claimed.unwrap_err());
    assert!(told.contains("no answer in time"), "{told}");
    proxy.resume().await.unwrap();
    lease(&*store, &fresh()).await;
}

//! Servers that crash, connections that break, replies that are lost.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Claimed, Completed, Release, Released, Renewed, Store, StoreErrorKind};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Redis, RedisOptions, Server};

use super::claims::{LONG, answer, done, fresh, granted, replayed, rival};
use super::private::{PATIENCE, eventually, start, tell};

#[tokio::test]
async fn a_restarted_server_is_found_again_with_nothing_lost() {
    let durable = RedisOptions {
        durable: true,
        ..RedisOptions::default()
    };
    let server = Redis::start(durable).unwrap();
    let store = RedisStore::open(&server.url()).await.unwrap();
    let finished = done(&store, "before the crash").await;
    let running = fresh();
    let lease = granted(&store, &running).await;

    server.kill().unwrap();
    let error = store.claim(&fresh()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    server.start_again().unwrap();

    eventually("the store goes on", async || {
        store.operate().unwrap().ping().await.is_ok()
    })
    .await;
    assert_eq!(replayed(&store, &finished).await, b"before the crash");
    let completed = store.complete(&lease, &answer("late"), LONG).await.unwrap();
    assert!(matches!(completed, Completed::Stored(_)), "{completed:?}");
    assert_eq!(replayed(&store, &running).await, b"late");
}

#[tokio::test]
async fn a_cut_connection_is_opened_again() {
    let server = start(&[]);
    let proxy = Proxy::start(&server.url()).await.unwrap();
    let url = format!("{}?connections=1", proxy.url());
    let store = RedisStore::open(&url).await.unwrap();
    let claim = done(&store, "stored").await;

    for _ in 0..3 {
        proxy.cut().await.unwrap();
        assert_eq!(replayed(&store, &claim).await, b"stored");
        assert_eq!(proxy.connections(), 1);
    }
}

#[tokio::test]
async fn every_verb_survives_a_lost_reply() {
    let server = start(&[]);
    let proxy = Proxy::start(&server.url()).await.unwrap();
    let url = format!("{}?connections=1", proxy.url());
    let store = RedisStore::open(&url).await.unwrap();
    let claim = fresh();

    proxy.drop_replies(1);
    let lease = granted(&store, &claim).await;
    assert_eq!(lease.attempt, 1);

    proxy.drop_replies(1);
    let renewed = store.renew(&lease, LONG).await.unwrap();
    assert!(matches!(renewed, Renewed::Kept));

    proxy.drop_replies(1);
    match store.complete(&lease, &answer("once"), LONG).await.unwrap() {
        Completed::Stored(_) => {}
        Completed::Found(record) => assert_eq!(record.token, claim.token),
        Completed::Absent => panic!("the claim was there"),
    }
    assert_eq!(replayed(&store, &claim).await, b"once");

    let given_back = fresh();
    let lease = granted(&store, &given_back).await;
    proxy.drop_replies(1);
    let released = store.release(&lease, Release::NotRun).await.unwrap();
    assert!(matches!(released, Released::Ended));
    granted(&store, &rival(&given_back)).await;
}

/// The caller's own repetition of a claim whose reply was lost, not the store's.
#[tokio::test]
async fn a_claim_whose_reply_was_lost_can_be_repeated() {
    let server = start(&[]);
    let url = format!("{}?connections=1&timeout_ms=500", server.url());
    let store = RedisStore::open(&url).await.unwrap();
    granted(&store, &fresh()).await;
    let claim = fresh();

    // The claim reaches a server that stands still; it acts once it goes on.
    server.pause().unwrap();
    let error = store.claim(&claim).await.unwrap_err();
    server.resume().unwrap();

    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    let lease = granted(&store, &claim).await;
    assert_eq!(lease.attempt, 1);
    let taken = store.claim(&rival(&claim)).await.unwrap();
    assert!(matches!(taken, Claimed::Taken(record) if record.token == claim.token));
}

#[tokio::test]
async fn a_server_that_stands_still_hangs_nobody() {
    let server = start(&[]);
    let store = RedisStore::open(&format!("{}?timeout_ms=300", server.url())).await;
    let store = store.unwrap();
    let claim = done(&store, "stored").await;

    server.pause().unwrap();
    for _ in 0..3 {
        let claimed = tokio::time::timeout(PATIENCE, store.claim(&rival(&claim))).await;
        let error = claimed.expect("it gives up").unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
    }
    server.resume().unwrap();

    assert_eq!(replayed(&store, &claim).await, b"stored");
}

#[tokio::test]
async fn a_lost_connection_wakes_who_waits() {
    let server = start(&[]);
    let proxy = Proxy::start(&server.url()).await.unwrap();
    let url = format!("{}?connections=1", proxy.url());
    let store = Arc::new(RedisStore::open(&url).await.unwrap());
    let claim = fresh();
    granted(&*store, &claim).await;
    let waiter = {
        let (store, claim) = (Arc::clone(&store), claim.clone());
        tokio::spawn(async move { store.settled(&claim.slot, &claim.token, LONG).await })
    };
    let channel = format!("onlyonce:{}", claim.slot);
    eventually("somebody listens", async || {
        let told: (String, u64) = tell(&server, &["PUBSUB", "NUMSUB", &channel]).await;
        told.1 == 1
    })
    .await;

    // It is cut until it is noticed: the waiter may not have looked yet when it is first.
    let woken = async {
        while !waiter.is_finished() {
            proxy.cut().await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let woken = tokio::time::timeout(LONG / 2, woken).await;

    assert!(woken.is_ok(), "nobody was woken");
}

#[tokio::test]
async fn too_few_replicas_are_told_as_such() {
    let server = start(&[]);
    let url = format!("{}?wait_replicas=1&wait_timeout_ms=50", server.url());
    let store = RedisStore::open(&url).await.unwrap();
    let claim = fresh();

    let error = store.claim(&claim).await.unwrap_err();

    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("0 of 1 replicas"), "{source}");
    // Replays are not told either: nobody knows whether a failover would keep them.
    let plain = RedisStore::open(&server.url()).await.unwrap();
    let lease = granted(&plain, &claim).await;
    plain.complete(&lease, &answer("x"), LONG).await.unwrap();
    assert!(store.claim(&rival(&claim)).await.is_err());
}

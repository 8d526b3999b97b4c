//! Who waits for a slot listens, shares its subscription with others, and leaves nothing behind.

use std::sync::Arc;

use onlyonce_core::{Claim, Store};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::servers::{Redis, RedisCluster, Server};
use tokio::task::JoinHandle;

use super::claims::{LONG, answer, done, fresh, granted};
use super::private::{PATIENCE, eventually, start, tell};

const MANY: usize = 20;

fn waiter(store: &Arc<RedisStore>, claim: &Claim) -> JoinHandle<()> {
    let (store, claim) = (Arc::clone(store), claim.clone());
    tokio::spawn(async move {
        let settled = store.settled(&claim.slot, &claim.token, LONG).await;
        settled.unwrap();
    })
}

async fn end(waiters: Vec<JoinHandle<()>>) {
    for waiter in waiters {
        let woken = tokio::time::timeout(PATIENCE / 2, waiter).await;
        woken.expect("a waiter is woken").unwrap();
    }
}

async fn clients(server: &Redis, kind: &str) -> usize {
    let told: String = tell(server, &["CLIENT", "LIST", "TYPE", kind]).await;
    told.lines().count()
}

#[tokio::test]
async fn all_waiters_share_one_connection_and_one_subscription() {
    let server = start(&[]);
    let store = Arc::new(RedisStore::open(&server.url()).await.unwrap());
    let (one, other) = (fresh(), fresh());
    for claim in [&one, &other] {
        granted(&*store, claim).await;
    }
    let channels = [&one, &other].map(|claim| format!("onlyonce:{}", claim.slot));
    let listeners = async || -> (String, u64, String, u64) {
        tell(&server, &["PUBSUB", "NUMSUB", &channels[0], &channels[1]]).await
    };

    let waiters: Vec<_> = (0..MANY).map(|_| waiter(&store, &one)).collect();
    let others: Vec<_> = (0..MANY).map(|_| waiter(&store, &other)).collect();

    eventually("both are listened to", async || {
        let told = listeners().await;
        (told.1, told.3) == (1, 1)
    })
    .await;
    assert_eq!(clients(&server, "pubsub").await, 1);

    store
        .complete(&one.lease(), &answer("x"), LONG)
        .await
        .unwrap();
    end(waiters).await;
    eventually("one is left", async || listeners().await.1 == 0).await;
    assert_eq!(listeners().await.3, 1);

    // Whoever is gone listens no more.
    for waiter in others {
        waiter.abort();
    }
    eventually("nobody is left", async || listeners().await.3 == 0).await;
    end(vec![waiter(&store, &one)]).await;
}

/// A wait that slept for a fixed time would pass every other test.
#[tokio::test]
async fn a_waiter_asks_nothing_while_it_waits() {
    let server = start(&[]);
    let store = Arc::new(RedisStore::open(&server.url()).await.unwrap());
    let claim = fresh();
    granted(&*store, &claim).await;
    let waiting = waiter(&store, &claim);
    eventually("it has looked", async || {
        let told: String = tell(&server, &["INFO", "commandstats"]).await;
        told.contains("cmdstat_getrange:calls=1")
    })
    .await;

    store
        .complete(&claim.lease(), &answer("x"), LONG)
        .await
        .unwrap();
    end(vec![waiting]).await;

    let told: String = tell(&server, &["INFO", "commandstats"]).await;
    assert!(told.contains("cmdstat_getrange:calls=1,"), "{told}");
}

#[tokio::test]
async fn channels_of_a_cluster_stay_on_the_server_of_their_key() {
    let cluster = RedisCluster::start().unwrap();
    let store = Arc::new(RedisStore::open(&cluster.url()).await.unwrap());
    let claim = fresh();
    granted(&*store, &claim).await;
    let channel = format!("onlyonce:{}", claim.slot);
    let owner = cluster.master_of(&channel).unwrap();

    let waiters: Vec<_> = (0..MANY).map(|_| waiter(&store, &claim)).collect();

    eventually("the owner is listened to", async || {
        let told: (String, u64) = tell(owner, &["PUBSUB", "SHARDNUMSUB", &channel]).await;
        told.1 == 1
    })
    .await;
    store
        .complete(&claim.lease(), &answer("x"), LONG)
        .await
        .unwrap();
    end(waiters).await;
    eventually("nobody is left", async || {
        let told: (String, u64) = tell(owner, &["PUBSUB", "SHARDNUMSUB", &channel]).await;
        told.1 == 0
    })
    .await;
}

/// Subscriptions come and go while messages fly: none is missed, none stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiters_that_come_and_go_are_all_woken() {
    let server = start(&[]);
    let store = Arc::new(RedisStore::open(&server.url()).await.unwrap());
    for _ in 0..30 {
        let claim = fresh();
        granted(&*store, &claim).await;
        let mut waiters = Vec::new();
        for nth in 0..MANY {
            let waiter = waiter(&store, &claim);
            if nth % 3 == 0 {
                tokio::task::yield_now().await;
                waiter.abort();
            } else {
                waiters.push(waiter);
            }
        }
        store
            .complete(&claim.lease(), &answer("x"), LONG)
            .await
            .unwrap();
        end(waiters).await;
    }
    done(&*store, "x").await;
    eventually("nobody is left", async || {
        let channels: Vec<String> = tell(&server, &["PUBSUB", "CHANNELS"]).await;
        channels.is_empty()
    })
    .await;
}

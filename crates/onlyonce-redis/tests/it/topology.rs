//! Servers that fail over and keys that move.

use std::sync::Arc;

use onlyonce_core::{Claim, Claimed, Completed, Renewed, Store, StoreError};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::servers::{Redis, RedisCluster, RedisSentinel, Server};
use tokio::task::JoinHandle;

use super::claims::{LONG, answer, done, fresh, granted, replayed, rival};
use super::private::{eventually, tell};
use super::rights::{USER, allow, as_user, listed};
use super::with;

/// Waits for the end of `claim` while the test goes on.
fn waiter(store: &Arc<RedisStore>, claim: &Claim) -> JoinHandle<Result<(), StoreError>> {
    let (store, claim) = (Arc::clone(store), claim.clone());
    tokio::spawn(async move { store.settled(&claim.slot, &claim.token, LONG).await })
}

/// A claim with its answer and one without, both on the replica as well.
async fn on_replicas_too(url: &str) -> (Claim, Claim) {
    let store = RedisStore::open(&with(url, "wait_replicas=1"))
        .await
        .unwrap();
    let running = fresh();
    granted(&store, &running).await;
    (done(&store, "before").await, running)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_master_is_found_by_its_sentinels() {
    let group = RedisSentinel::start().unwrap();
    let (finished, running) = on_replicas_too(&group.url()).await;
    let store = Arc::new(RedisStore::open(&group.url()).await.unwrap());
    let waiter = waiter(&store, &running);

    group.master().unwrap().kill().unwrap();

    eventually("the store goes on", async || {
        store.claim(&rival(&finished)).await.is_ok()
    })
    .await;
    assert_eq!(replayed(&*store, &finished).await, b"before");
    let completed = store
        .complete(&running.lease(), &answer("after"), LONG)
        .await;
    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );
    let woken = tokio::time::timeout(LONG / 2, waiter).await;
    assert!(woken.is_ok(), "nobody was woken");
    done(&*store, "new").await;
}

/// Not killed but demoted, the old master still answers: it must not be asked any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_master_is_left() {
    let group = RedisSentinel::start().unwrap();
    let (finished, _) = on_replicas_too(&group.url()).await;
    let store = RedisStore::open(&group.url()).await.unwrap();
    let old = group.master().unwrap();

    group.sentinels()[0]
        .cli(&["SENTINEL", "FAILOVER", "mymaster"])
        .unwrap();
    group.wait_until_replaced(old).unwrap();
    eventually("the old master follows", async || {
        // Who is demoted drops its connections.
        old.info("role").is_ok_and(|role| role == "slave")
    })
    .await;

    eventually("the store goes on", async || {
        store.claim(&fresh()).await.is_ok()
    })
    .await;
    assert_eq!(replayed(&store, &finished).await, b"before");
    done(&store, "after").await;
}

/// With `wait_replicas`, the only replica gone is trouble, and its return the end of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_replica_is_missed_until_it_is_back() {
    let group = RedisSentinel::start().unwrap();
    let url = with(&group.url(), "wait_replicas=1&wait_timeout_ms=200");
    let store = RedisStore::open(&url).await.unwrap();
    let claim = done(&store, "stored").await;
    let master = group.master().unwrap().port();
    let replica = group.nodes().iter().find(|node| node.port() != master);
    let replica = replica.unwrap();

    replica.kill().unwrap();
    assert!(store.claim(&rival(&claim)).await.is_err());
    replica.start_again().unwrap();

    eventually("the store goes on", async || {
        store.claim(&rival(&claim)).await.is_ok()
    })
    .await;
    assert_eq!(replayed(&store, &claim).await, b"stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_in_a_cluster_is_found() {
    let cluster = RedisCluster::start().unwrap();
    let (finished, running) = on_replicas_too(&cluster.url()).await;
    let store = RedisStore::open(&cluster.url()).await.unwrap();
    done(&store, "warm").await;

    let owner = cluster
        .master_of(&format!("onlyonce:{}", finished.slot))
        .unwrap();
    owner.kill().unwrap();

    eventually("the store goes on", async || {
        store.claim(&rival(&finished)).await.is_ok()
    })
    .await;
    assert_eq!(replayed(&store, &finished).await, b"before");
    let completed = store
        .complete(&running.lease(), &answer("after"), LONG)
        .await;
    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );
    for _ in 0..20 {
        done(&store, "after").await;
    }
}

/// A hash slot on its way from one server to another.
pub(super) struct Move<'a> {
    source: &'a Redis,
    pub(super) target: &'a Redis,
    slot: String,
}

impl<'a> Move<'a> {
    /// Of the keys with this tag in their names.
    pub(super) async fn begin(cluster: &'a RedisCluster, tag: &str) -> Self {
        let source = cluster.master_of(tag).unwrap();
        let masters = cluster.nodes()[..3].iter();
        let target = masters.rev().find(|node| node.port() != source.port());
        let it = Self {
            source,
            target: target.unwrap(),
            slot: source.cli(&["CLUSTER", "KEYSLOT", tag]).unwrap(),
        };
        it.set(it.target, "IMPORTING", it.source).await;
        it.set(it.source, "MIGRATING", it.target).await;
        it
    }

    async fn set(&self, server: &Redis, what: &str, other: &Redis) {
        let id: String = tell(other, &["CLUSTER", "MYID"]).await;
        tell::<()>(server, &["CLUSTER", "SETSLOT", &self.slot, what, &id]).await;
    }

    async fn take(&self, key: &str) {
        let port = self.target.port().to_string();
        let migrate = ["MIGRATE", "127.0.0.1", &port, key, "0", "10000"];
        tell::<redis::Value>(self.source, &migrate).await;
    }

    pub(super) async fn end(&self) {
        for server in [self.target, self.source] {
            self.set(server, "NODE", self.target).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_followed_while_it_moves() {
    let cluster = RedisCluster::start().unwrap();
    assert_followed(&cluster, &cluster.url(), "{tag}").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_followed_with_the_rights_that_are_listed() {
    let cluster = RedisCluster::start().unwrap();
    allow(cluster.nodes(), &listed("redis+cluster://"));

    let url = as_user(&cluster.url());

    assert_followed(&cluster, &url, &format!("{USER}{{tag}}")).await;
}

async fn assert_followed(cluster: &RedisCluster, url: &str, prefix: &str) {
    let store = RedisStore::open(&with(url, &format!("prefix={prefix}")))
        .await
        .unwrap();
    let (staying, moving, new) = (fresh(), fresh(), fresh());
    for claim in [&staying, &moving] {
        granted(&store, claim).await;
    }

    let slot = Move::begin(cluster, "tag").await;
    slot.take(&format!("{prefix}:{}", moving.slot)).await;

    // One stayed, one went, one is made where the others go.
    granted(&store, &new).await;
    for claim in [&staying, &moving, &new] {
        let renewed = store.renew(&claim.lease(), LONG).await;
        assert!(matches!(renewed, Ok(Renewed::Kept)), "{renewed:?}");
        let taken = store.claim(&rival(claim)).await.unwrap();
        assert!(matches!(taken, Claimed::Taken(_)), "{taken:?}");
        let completed = store.complete(&claim.lease(), &answer("x"), LONG).await;
        assert!(
            matches!(completed, Ok(Completed::Stored(_))),
            "{completed:?}"
        );
        store
            .settled(&claim.slot, &claim.token, LONG)
            .await
            .unwrap();
    }

    slot.take(&format!("{prefix}:{}", staying.slot)).await;
    slot.end().await;

    for claim in [&staying, &moving, &new] {
        assert_eq!(replayed(&store, claim).await, b"x");
    }
    let stats = store.operate().unwrap().stats().await.unwrap();
    assert_eq!(stats.records, 3);
}

/// A whole hash slot leaves while somebody waits: the waiter does not sleep through it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_key_that_moves_is_woken() {
    let cluster = RedisCluster::start().unwrap();
    let store = RedisStore::open(&with(&cluster.url(), "prefix={tag}")).await;
    let store = Arc::new(store.unwrap());
    let claim = fresh();
    granted(&*store, &claim).await;
    let key = format!("{{tag}}:{}", claim.slot);
    let waiter = waiter(&store, &claim);
    let source = cluster.master_of("tag").unwrap();
    eventually("somebody listens", async || {
        let told: (String, u64) = tell(source, &["PUBSUB", "SHARDNUMSUB", &key]).await;
        told.1 == 1
    })
    .await;

    let slot = Move::begin(&cluster, "tag").await;
    slot.take(&key).await;
    slot.end().await;

    let woken = tokio::time::timeout(LONG / 2, waiter).await;
    woken.expect("it hears of the move").unwrap().unwrap();
    store
        .complete(&claim.lease(), &answer("x"), LONG)
        .await
        .unwrap();
    assert_eq!(replayed(&*store, &claim).await, b"x");
}

//! `wait_replicas` where there are several servers: under Sentinel and in a cluster, each master waits for its
//! own replicas before it acknowledges a claim, an answer or a replay.

use std::time::Duration;

use onlyonce_core::{Claim, Claimed, Completed, Lease, Operate as _, Store, StoreError};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::servers::{
    Redis, RedisCluster, RedisClusterOptions, RedisSentinel, RedisSentinelOptions, Server,
};

use super::claims::{LONG, answer, fresh, granted, replayed, rival};
use super::private::{eventually, tell};
use super::topology::Move;
use super::with;

/// A replica that is paused for a test is not to be given up meanwhile.
const PATIENT: Duration = Duration::from_secs(60);
const WAITING: &str = "wait_replicas=1&wait_timeout_ms=500";

/// Keys of one master, before and after its only replica stopped hearing of it.
struct CutOff {
    waiting: RedisStore,
    running: Lease,
    finished: Claim,
    new: Claim,
}

impl CutOff {
    /// `claims` are for keys of `master`.
    async fn of(
        url: &str,
        master: &Redis,
        replica: &Redis,
        claims: impl AsyncFn() -> Claim,
    ) -> Self {
        let plain = RedisStore::open(url).await.unwrap();
        let waiting = RedisStore::open(&with(url, WAITING)).await.unwrap();
        let running = claims().await;
        eventually("the replica confirms", async || {
            waiting.claim(&running).await.is_ok()
        })
        .await;
        let said: i64 = tell(master, &["WAIT", "1", "5000"]).await;
        assert_eq!(said, 1);
        replica.pause().unwrap();
        let finished = claims().await;
        let lease = granted(&plain, &finished).await;
        let told = answer("on the master alone");
        let stored = plain.complete(&lease, &told, LONG).await;
        assert!(matches!(stored, Ok(Completed::Stored(_))), "{stored:?}");
        Self {
            waiting,
            running: running.lease(),
            finished,
            new: claims().await,
        }
    }

    /// Nothing that the master alone has is acknowledged, and all of it once the replica is back.
    async fn is_refused_until(&self, replica: &Redis) {
        let (waiting, late) = (&self.waiting, answer("late"));
        for _ in 0..3 {
            is_unconfirmed(waiting.claim(&rival(&self.finished)).await);
            let told = waiting.get_durable(&self.finished.slot).await;
            is_unconfirmed(told);
            // Operators see what there is.
            let shown = waiting.get(&self.finished.slot).await.unwrap();
            assert!(shown.is_some_and(|it| it.response().is_some()));
            is_unconfirmed(waiting.claim(&self.new).await);
            is_unconfirmed(waiting.complete(&self.running, &late, LONG).await);
        }

        replica.resume().unwrap();
        eventually("the replica confirms again", async || {
            waiting.claim(&rival(&self.finished)).await.is_ok()
        })
        .await;
        assert_eq!(
            replayed(waiting, &self.finished).await,
            b"on the master alone"
        );
        let told = waiting.get_durable(&self.finished.slot).await.unwrap();
        assert!(told.is_some_and(|it| it.response().is_some()));
        let claimed = waiting.claim(&self.new).await.unwrap();
        assert!(matches!(claimed, Claimed::Granted { .. }), "{claimed:?}");
        let completed = waiting.complete(&self.running, &late, LONG).await;
        assert!(completed.is_ok(), "{completed:?}");
    }
}

fn is_unconfirmed<T: std::fmt::Debug>(asked: Result<T, StoreError>) {
    let error = asked.expect_err("the replica does not have it");
    let source = error.source.expect("it has a cause").to_string();
    assert!(source.contains("replicas confirmed"), "{source}");
}

async fn under_sentinel_nothing_is_acknowledged_that_the_master_alone_has(valkey: bool) {
    let group = RedisSentinel::start_with(&RedisSentinelOptions {
        down_after: PATIENT,
        valkey,
        ..RedisSentinelOptions::default()
    })
    .unwrap();
    let master = group.master().unwrap();
    let mut nodes = group.nodes().iter();
    let replica = nodes.find(|node| node.port() != master.port()).unwrap();
    let cut_off = CutOff::of(&group.url(), master, replica, async || fresh()).await;

    cut_off.is_refused_until(replica).await;
}

fn cluster(valkey: bool) -> RedisCluster {
    let options = RedisClusterOptions {
        node_timeout: PATIENT,
        valkey,
        ..RedisClusterOptions::default()
    };
    RedisCluster::start_with(&options).unwrap()
}

/// The replica of a master, as the cluster was started.
fn replica_of<'a>(cluster: &'a RedisCluster, master: &Redis) -> &'a Redis {
    let nodes = cluster.nodes();
    let is_master = |node: &Redis| node.port() == master.port();
    let place = nodes.iter().position(is_master).unwrap();
    &nodes[place + nodes.len() / 2]
}

fn owner<'a>(cluster: &'a RedisCluster, claim: &Claim) -> &'a Redis {
    let key = format!("onlyonce:{}", claim.slot);
    cluster.master_of(&key).unwrap()
}

async fn in_a_cluster_each_master_waits_for_its_own_replicas(valkey: bool) {
    let cluster = cluster(valkey);
    let [master, other, ..] = cluster.nodes() else {
        panic!("it has six nodes")
    };
    let replica = replica_of(&cluster, master);
    let of = async |wanted: &Redis| loop {
        let claim = fresh();
        if owner(&cluster, &claim).port() == wanted.port() {
            return claim;
        }
    };
    let cut_off = CutOff::of(&cluster.url(), master, replica, async || of(master).await).await;

    // The others have theirs.
    let elsewhere = of(other).await;
    let lease = granted(&cut_off.waiting, &elsewhere).await;
    let stored = cut_off
        .waiting
        .complete(&lease, &answer("there"), LONG)
        .await;
    assert!(matches!(stored, Ok(Completed::Stored(_))), "{stored:?}");
    assert_eq!(replayed(&cut_off.waiting, &elsewhere).await, b"there");
    cut_off.is_refused_until(replica).await;
}

async fn a_key_that_moves_is_confirmed_by_the_replicas_of_its_new_master(valkey: bool) {
    let cluster = cluster(valkey);
    let url = with(&cluster.url(), &format!("prefix={{tag}}&{WAITING}"));
    let store = RedisStore::open(&url).await.unwrap();
    granted(&store, &fresh()).await;
    let moving = Move::begin(&cluster, "tag").await;
    let replica = replica_of(&cluster, moving.target);
    let said: i64 = tell(moving.target, &["WAIT", "1", "5000"]).await;
    assert_eq!(said, 1);
    replica.pause().unwrap();

    // What is not there is made where the others go.
    let new = fresh();
    for _ in 0..2 {
        is_unconfirmed(store.claim(&new).await);
    }

    replica.resume().unwrap();
    eventually("the replica confirms again", async || {
        store.claim(&new).await.is_ok()
    })
    .await;
    // Valkey's replicas have to confirm this too.
    moving.end().await;
    let taken = store.claim(&rival(&new)).await.unwrap();
    assert!(matches!(taken, Claimed::Taken(_)), "{taken:?}");
}

on_both_kinds!(
    under_sentinel_nothing_is_acknowledged_that_the_master_alone_has,
    in_a_cluster_each_master_waits_for_its_own_replicas,
    a_key_that_moves_is_confirmed_by_the_replicas_of_its_new_master
);

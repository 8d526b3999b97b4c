//! A master that dies under load while its replica is cut off from it: what a failover loses, with
//! and without `wait_replicas`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use onlyonce_core::{Claim, Claimed, Completed, Operate, Response, Store};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::servers::{Redis, RedisSentinel, Server};
use tokio::sync::watch;

use super::claims::{LONG, done, fresh};
use super::private::{eventually, tell};
use super::with;

const TASKS: usize = 8;
/// How many calls each part of a test waits for.
const CALLS_MIN: usize = 20;
/// Who was refused tries again after this long.
const PAUSE: Duration = Duration::from_millis(5);

/// What is the matter while a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The replica follows.
    Followed,
    /// The replica hears of nothing any more; the master still answers.
    CutOff,
    /// The replica is the master.
    Promoted,
    /// From one to the other: nobody can say.
    Between,
}

/// Calls with keys of their own, all the time.
struct Load {
    store: RedisStore,
    phase: watch::Sender<Phase>,
    /// In this phase.
    acknowledged: AtomicUsize,
    refused: AtomicUsize,
    over: AtomicBool,
}

impl Load {
    async fn call(&self) -> Vec<(Claim, Phase)> {
        let mut stored = Vec::new();
        while !self.over.load(Ordering::SeqCst) {
            let claim = fresh();
            let before = *self.phase.borrow();
            let acknowledged = self.is_acknowledged(&claim).await;
            if *self.phase.borrow() != before {
                continue;
            }
            if acknowledged {
                self.acknowledged.fetch_add(1, Ordering::SeqCst);
                stored.push((claim, before));
            } else {
                self.refused.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(PAUSE).await;
            }
        }
        stored
    }

    async fn is_acknowledged(&self, claim: &Claim) -> bool {
        let Ok(Claimed::Granted { lease, .. }) = self.store.claim(claim).await else {
            return false;
        };
        let response = Arc::new(Response::new(StatusCode::OK, claim.slot.to_string()));
        match self.store.complete(&lease, &response, 10 * LONG).await {
            Ok(Completed::Stored(_)) => true,
            // A repetition of its own, after the connection broke.
            Ok(Completed::Found(record)) => record.token == claim.token,
            Ok(Completed::Absent) | Err(_) => false,
        }
    }

    fn enter(&self, phase: Phase) {
        self.phase.send_replace(phase);
        self.acknowledged.store(0, Ordering::SeqCst);
        self.refused.store(0, Ordering::SeqCst);
    }
}

/// A group of servers under load.
struct Bed {
    group: RedisSentinel,
    load: Arc<Load>,
    calls: Vec<tokio::task::JoinHandle<Vec<(Claim, Phase)>>>,
}

impl Bed {
    async fn new(options: &str) -> Self {
        let group = RedisSentinel::start().unwrap();
        let url = with(&group.url(), options);
        let load = Arc::new(Load {
            store: RedisStore::open(&url).await.unwrap(),
            phase: watch::Sender::new(Phase::Followed),
            acknowledged: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        });
        let calls = (0..TASKS).map(|_| {
            let load = Arc::clone(&load);
            tokio::spawn(async move { load.call().await })
        });
        Self {
            calls: calls.collect(),
            group,
            load,
        }
    }

    async fn some_acknowledged(&self) {
        eventually("calls are acknowledged", async || {
            self.load.acknowledged.load(Ordering::SeqCst) >= CALLS_MIN
        })
        .await;
    }

    async fn some_refused(&self) {
        eventually("calls are refused", async || {
            self.load.refused.load(Ordering::SeqCst) >= CALLS_MIN
        })
        .await;
    }

    /// From here on the replica hears of nothing; all that was acknowledged before, it has.
    async fn cut_off(&self) -> (&Redis, &Redis) {
        let master = self.group.master().unwrap();
        let nodes = self.group.nodes();
        let replica = nodes.iter().find(|node| node.port() != master.port());
        let replica = replica.unwrap();
        self.load.enter(Phase::Between);
        let confirmed = RedisStore::open(&with(&self.group.url(), "wait_replicas=1")).await;
        done(&confirmed.unwrap(), "the last that is confirmed").await;
        // Stopped, it cannot connect again; and what is sent once the link is gone reaches nobody.
        replica.pause().unwrap();
        let killed: usize = tell(master, &["CLIENT", "KILL", "TYPE", "replica"]).await;
        assert_eq!(killed, 1);
        self.load.enter(Phase::CutOff);
        (master, replica)
    }

    /// The master dies, and the replica takes its place.
    fn fail_over(&self, master: &Redis, replica: &Redis) {
        self.load.enter(Phase::Between);
        master.kill().unwrap();
        replica.resume().unwrap();
        self.group.wait_until_replaced(master).unwrap();
    }

    /// Ends the load: how many of the acknowledged answers are there, and how many are not, for
    /// each phase. What is there is as it was.
    async fn end(self) -> impl Fn(Phase) -> (usize, usize) {
        self.load.over.store(true, Ordering::SeqCst);
        let reader = RedisStore::open(&self.group.url()).await.unwrap();
        let mut counts = Vec::new();
        for stored in join_all(self.calls).await {
            for (claim, phase) in stored.unwrap() {
                let record = reader.get(&claim.slot).await.unwrap();
                let response = record.as_ref().and_then(|it| it.response());
                if let Some(response) = response {
                    assert_eq!(response.body, claim.slot.to_string());
                }
                counts.push((phase, response.is_some()));
            }
        }
        move |phase| {
            let count = |there| counts.iter().filter(|it| **it == (phase, there)).count();
            (count(true), count(false))
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_waiting_a_failover_loses_what_was_not_replicated_and_nothing_else() {
    let bed = Bed::new("connections=2").await;
    bed.some_acknowledged().await;

    let (master, replica) = bed.cut_off().await;
    bed.some_acknowledged().await;
    bed.fail_over(master, replica);
    bed.load.enter(Phase::Promoted);
    bed.some_acknowledged().await;

    let counts = bed.end().await;
    let (kept, lost) = counts(Phase::Followed);
    assert!(kept > 0 && lost == 0, "{kept} kept, {lost} lost");
    let (kept, lost) = counts(Phase::CutOff);
    assert!(kept == 0 && lost > 0, "{kept} kept, {lost} lost");
    let (kept, lost) = counts(Phase::Promoted);
    assert!(kept > 0 && lost == 0, "{kept} kept, {lost} lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_waiting_a_failover_loses_nothing_that_was_acknowledged() {
    let bed = Bed::new("connections=2&wait_replicas=1&wait_timeout_ms=100").await;
    bed.some_acknowledged().await;

    let (master, replica) = bed.cut_off().await;
    bed.some_refused().await;
    bed.fail_over(master, replica);
    // As a replica of the new master: until then nobody confirms.
    master.start_again().unwrap();
    bed.load.enter(Phase::Promoted);
    bed.some_acknowledged().await;

    let counts = bed.end().await;
    let (kept, lost) = counts(Phase::Followed);
    assert!(kept > 0 && lost == 0, "{kept} kept, {lost} lost");
    assert_eq!(counts(Phase::CutOff), (0, 0), "nobody confirmed them");
    let (kept, lost) = counts(Phase::Promoted);
    assert!(kept > 0 && lost == 0, "{kept} kept, {lost} lost");
}

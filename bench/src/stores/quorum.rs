//! Quorums of three and of five Redis servers against one Redis server, and against one whose writes
//! a replica confirms (`wait_replicas=1`). All of them sync their logs before every answer.
//!
//! Servers and load share this machine's cores, and the servers its disk: five servers cost five times
//! the work here, which on machines of their own they do at the same time.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Claimed, Store};
use onlyonce_stores::redis::{RedisQuorum, RedisStore};
use onlyonce_testkit::servers::{Redis, RedisOptions, Server as _};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use super::Turns;
use crate::failure::Failure;
use crate::report::Row;
use crate::rounds::{Rounds, Sample};
use crate::work::{Caller, DAY, drive, fill, new_request, numbered};

const CLIENTS: [usize; 3] = [1, 16, 64];
/// Records to replay.
const POOL: u64 = 2_000;
const LINKED_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What a quorum is compared with.
const BASES: [&str; 2] = ["one Redis", "Redis with WAIT 1"];

/// The stores, in the order in which they take turns.
struct Bed {
    quorums: [Arc<dyn Store>; 2],
    bases: [Arc<dyn Store>; 2],
    /// They end with the bed.
    _servers: Vec<Redis>,
}

pub(super) fn run(runtime: &Runtime, turns: Turns) -> Result<Vec<Row>, Failure> {
    let bed = runtime.block_on(Bed::new())?;
    let mut rows = Vec::new();
    for clients in CLIENTS {
        let mut new: [[Rounds; 2]; 2] = Default::default();
        let mut replayed: [[Rounds; 2]; 2] = Default::default();
        for _ in turns.rounds(format!("quorum, {clients} clients")) {
            runtime.block_on(async {
                bed.round(&mut new, async |store| {
                    drive(store, clients, turns.time, new_request).await
                })
                .await;
                bed.round(&mut replayed, async |store| {
                    drive(store, clients, turns.time, replay).await
                })
                .await;
            });
        }
        for (what, rounds) in [("new request", &new), ("replay", &replayed)] {
            for (of, subject) in rounds.iter().zip(["quorum of 3", "quorum of 5"]) {
                for (rounds, base) in of.iter().zip(BASES) {
                    let case = format!("{clients} clients, {what}, to {base}");
                    rows.push(rounds.rate(subject, &case, None));
                    rows.push(rounds.p50(subject, &case));
                    rows.push(rounds.p99(subject, &case, None));
                }
            }
        }
    }
    Ok(rows)
}

impl Bed {
    async fn new() -> Result<Self, Failure> {
        let mut servers = Vec::new();
        let one = durable(&mut servers, &[])?;
        let master = durable(&mut servers, &[])?;
        let (_, port) = master.rsplit_once(':').unwrap_or_default();
        durable(&mut servers, &[format!("replicaof 127.0.0.1 {port}")])?;
        let linked = timeout(LINKED_MAX, linked(&servers[2])).await;
        linked.map_err(Failure::doing("wait for the replica"))??;
        let bed = Self {
            quorums: [
                quorum(&mut servers, 3).await?,
                quorum(&mut servers, 5).await?,
            ],
            bases: [
                Arc::new(RedisStore::open(&format!("redis://{one}")).await?),
                Arc::new(RedisStore::open(&format!("redis://{master}?wait_replicas=1")).await?),
            ],
            _servers: servers,
        };
        for store in bed.quorums.iter().chain(&bed.bases) {
            fill(store, 0..POOL, DAY, |_| {}).await;
        }
        Ok(bed)
    }

    /// Lets every store have its turn.
    async fn round(
        &self,
        rounds: &mut [[Rounds; 2]; 2],
        turn: impl AsyncFn(&Arc<dyn Store>) -> Sample,
    ) {
        let mut bases = Vec::new();
        for store in &self.bases {
            bases.push(turn(store).await);
        }
        for (of, store) in rounds.iter_mut().zip(&self.quorums) {
            let ours = turn(store).await;
            for (rounds, base) in of.iter_mut().zip(&bases) {
                rounds.add(ours, *base);
            }
        }
    }
}

/// Starts a server; gives its host and port.
fn durable(servers: &mut Vec<Redis>, lines: &[String]) -> Result<String, Failure> {
    let redis = Redis::start(RedisOptions {
        durable: true,
        lines: lines.to_vec(),
        ..RedisOptions::default()
    })?;
    let seat = format!("127.0.0.1:{}", redis.port());
    servers.push(redis);
    Ok(seat)
}

/// Returns once a replica follows its master.
async fn linked(replica: &Redis) -> Result<(), Failure> {
    while replica.info("master_link_status")? != "up" {
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

async fn quorum(servers: &mut Vec<Redis>, count: usize) -> Result<Arc<dyn Store>, Failure> {
    let seats = (0..count).map(|_| durable(servers, &[]));
    let seats = seats.collect::<Result<Vec<_>, _>>()?.join(",");
    let quorum = RedisQuorum::open(&format!("redis+quorum://{seats}")).await?;
    Ok(Arc::clone(quorum.store()) as _)
}

async fn replay(store: Arc<dyn Store>, mut caller: Caller) -> Caller {
    let slot = numbered(caller.random() % POOL);
    let claimed = store.claim(&caller.claim(slot)).await;
    assert!(matches!(claimed, Ok(Claimed::Taken(_))), "not replayed");
    caller.lap();
    caller
}

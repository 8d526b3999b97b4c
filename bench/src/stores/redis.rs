//! The Redis store against redis-benchmark, which runs the same commands with as many clients.
//!
//! redis-benchmark repeats one command, so that the claim and the completion of a new request are
//! measured one after the other, and their times add up. It is spared what else a claim asks (how
//! long a record in its way still lives), so that the comparison favours it.

use std::sync::Arc;

use onlyonce_core::{Claim, Claimed, Slot, Store as _, Token};
use onlyonce_stores::redis::RedisStore;
use onlyonce_testkit::servers::{Redis, RedisOptions, Server as _};
use tokio::runtime::Runtime;

use super::Turns;
use crate::failure::Failure;
use crate::report::{Goal, Row};
use crate::rounds::{Rounds, Sample};
use crate::tool::REDIS_BENCHMARK;
use crate::work::{BODY_BYTES, Caller, DAY, complete, drive, granted, new_request, numbered};

const CLIENTS: [usize; 3] = [1, 16, 64];
const GOAL: Goal = Goal::AtLeast(0.8);
const REPLAY_GOAL: Goal = Goal::AtLeast(0.85);
/// Records to complete or to replay. redis-benchmark picks them at random.
const POOL: u64 = 400_000;
/// How many of the pool are completed in a turn at most: few enough that hardly any is met twice.
const COMPLETIONS_MAX: u64 = POOL / 16;
/// How many requests tell about how fast it is.
const ROUGH: u64 = 1000;
/// Twelve digits behind as much as makes a key as long as ours.
const KEY: &str = "onlyonce:0000000000000000000000000000000000000000000000000000__rand_int__";
const ANY_KEY: &str = "1000000000000";
/// A token that a command line can carry.
const TOKEN: &[u8; 16] = b"bench-bench-0123";
/// What an encoded answer has besides its body, about.
const ANSWER_HEAD_BYTES: usize = 8;

/// Copies the value of a key to all keys of the pool.
const FILL: &str = "
local value, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
local prefix = ARGV[1]
for n = 0, ARGV[2] - 1 do
  redis.call('SET', prefix .. string.format('%012d', n), value, 'PX', left)
end";

/// A server, and what the store says to it.
struct Bed {
    redis: Redis,
    /// The digest of the script that completes.
    script: String,
    /// The lengths of a claim.
    claim_bytes: usize,
    milliseconds: String,
}

pub(super) fn run(runtime: &Runtime, turns: Turns) -> Result<Vec<Row>, Failure> {
    let bed = runtime.block_on(Bed::new())?;
    let mut rows = Vec::new();
    for clients in CLIENTS {
        let (mut new, mut replayed) = (Rounds::default(), Rounds::default());
        for _ in turns.rounds(format!("redis, {clients} clients")) {
            new.add(
                runtime.block_on(bed.store_new(clients, turns))?,
                runtime.block_on(bed.tool_new(clients, turns))?,
            );
            let (ours, base) = runtime.block_on(bed.replays(clients, turns))?;
            replayed.add(ours, base);
        }
        let case = format!("{clients} clients, new request");
        rows.push(new.rate("redis", &case, Some(GOAL)));
        rows.push(new.p50("redis", &case));
        rows.push(new.p99("redis", &case, None));
        let case = format!("{clients} clients, replay");
        rows.push(replayed.rate("redis", &case, Some(REPLAY_GOAL)));
        rows.push(replayed.p50("redis", &case));
        rows.push(replayed.p99("redis", &case, None));
    }
    Ok(rows)
}

impl Bed {
    async fn new() -> Result<Self, Failure> {
        let redis = Redis::start(RedisOptions::default())?;
        let store = RedisStore::open(&redis.url()).await?;
        // The server is asked what the store said to it: so the commands are the same.
        redis.cli(&["CONFIG", "SET", "slowlog-log-slower-than", "0"])?;
        let caller = Caller::new();
        let claim = caller.claim(numbered(0));
        let lease = granted(&store, &claim).await;
        let key = redis.cli(&["RANDOMKEY"])?;
        let claim_bytes = redis.cli(&["STRLEN", &key])?;
        complete(&store, &lease, &caller.answer, DAY).await;
        let log = redis.cli(&["SLOWLOG", "GET", "100"])?;
        redis.cli(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"])?;
        let mut words = log
            .lines()
            .map(str::trim)
            .skip_while(|word| *word != "EVALSHA");
        let script = words.nth(1).unwrap_or_default().to_owned();
        Ok(Self {
            redis,
            script,
            claim_bytes: claim_bytes
                .parse()
                .map_err(Failure::doing("read a length"))?,
            milliseconds: (DAY + claim.lease_for).as_millis().to_string(),
        })
    }

    async fn store(&self) -> Result<Arc<RedisStore>, Failure> {
        self.redis.cli(&["FLUSHALL"])?;
        Ok(Arc::new(RedisStore::open(&self.redis.url()).await?))
    }

    async fn store_new(&self, clients: usize, turns: Turns) -> Result<Sample, Failure> {
        let store = self.store().await?;
        Ok(drive(&store, clients, turns.time, new_request).await)
    }

    async fn tool_new(&self, clients: usize, turns: Turns) -> Result<Sample, Failure> {
        let value = "v".repeat(self.claim_bytes);
        let set = ["SET", KEY, &value, "NX", "GET", "PX", &self.milliseconds];
        self.redis.cli(&["FLUSHALL"])?;
        let rough = self.tool(clients, ANY_KEY, ROUGH, &set)?;
        let claims = self.tool(clients, ANY_KEY, half_a_turn(rough, turns), &set)?;

        self.fill_pool(false).await?;
        let token = String::from_utf8_lossy(TOKEN);
        let keep = DAY.as_millis().to_string();
        let answer = "a".repeat(BODY_BYTES + ANSWER_HEAD_BYTES);
        let evaluate = [
            "EVALSHA",
            &self.script,
            "1",
            KEY,
            &token,
            &keep,
            "D",
            &answer,
        ];
        let pool = POOL.to_string();
        let count = half_a_turn(rough, turns).min(COMPLETIONS_MAX);
        let completions = self.tool(clients, &pool, count, &evaluate)?;
        Ok(Sample {
            rate: 1.0 / (1.0 / claims.rate + 1.0 / completions.rate),
            p50: Some(claims.p50.unwrap_or(0.0) + completions.p50.unwrap_or(0.0)),
            p99: Some(claims.p99.unwrap_or(0.0) + completions.p99.unwrap_or(0.0)),
            ..Sample::default()
        })
    }

    /// Both sides replay what is in the pool.
    async fn replays(&self, clients: usize, turns: Turns) -> Result<(Sample, Sample), Failure> {
        let store = self.store().await?;
        self.fill_pool(true).await?;
        let step = |store: Arc<RedisStore>, mut caller: Caller| async move {
            let slot = pooled(caller.random() % POOL);
            let claimed = store.claim(&caller.claim(slot)).await;
            assert!(matches!(claimed, Ok(Claimed::Taken(_))), "not replayed");
            caller.lap();
            caller
        };
        let ours = drive(&store, clients, turns.time, step).await;

        let value = "v".repeat(self.claim_bytes);
        let set = ["SET", KEY, &value, "NX", "GET", "PX", &self.milliseconds];
        let pool = POOL.to_string();
        let rough = self.tool(clients, &pool, ROUGH, &set)?;
        let base = self.tool(clients, &pool, 2 * half_a_turn(rough, turns), &set)?;
        Ok((ours, base))
    }

    /// Makes all keys of the pool records of the store's own making, finished or not.
    async fn fill_pool(&self, finished: bool) -> Result<(), Failure> {
        let store = self.store().await?;
        let caller = Caller::new();
        let claim = Claim {
            token: Token::from_bytes(*TOKEN),
            ..caller.claim(numbered(0))
        };
        let lease = granted(&*store, &claim).await;
        if finished {
            complete(&*store, &lease, &caller.answer, DAY).await;
        }
        let key = self.redis.cli(&["RANDOMKEY"])?;
        let prefix = KEY.trim_end_matches("__rand_int__");
        let pool = POOL.to_string();
        self.redis.cli(&["EVAL", FILL, "1", &key, prefix, &pool])?;
        Ok(())
    }

    fn tool(
        &self,
        clients: usize,
        keys: &str,
        requests: u64,
        words: &[&str],
    ) -> Result<Sample, Failure> {
        let mut command = REDIS_BENCHMARK.command()?;
        command
            .args(["-h", "127.0.0.1", "-p"])
            .arg(self.redis.port().to_string());
        command.arg("-c").arg(clients.to_string());
        command.arg("-n").arg(requests.to_string());
        command.args(["--csv", "-r", keys]).args(words);
        let said = REDIS_BENCHMARK.said(&mut command)?;
        sample(&said).ok_or_else(|| REDIS_BENCHMARK.odd(&said))
    }
}

/// The slot of a record of the pool: its digits are those of the number.
fn pooled(n: u64) -> Slot {
    let mut bytes = [0; Slot::BYTES];
    let mut left = n;
    for byte in bytes.iter_mut().rev() {
        let pair = u8::try_from(left % 100).expect("two digits fit");
        *byte = pair / 10 * 16 + pair % 10;
        left /= 100;
    }
    Slot::from_bytes(bytes)
}

/// How many requests at this rate fill half a turn.
fn half_a_turn(rough: Sample, turns: Turns) -> u64 {
    (rough.rate * turns.time.as_secs_f64() / 2.0).max(1.0) as u64
}

/// A head, and a line: the name, then requests a second and latencies in milliseconds.
fn sample(said: &str) -> Option<Sample> {
    let (head, line) = said.trim().split_once('\n')?;
    let names = head
        .split("\",\"")
        .map(|name| name.trim_matches(['"', '\r']));
    // The command that stands first may itself have commas, but not this.
    let mut figures = line.rsplit("\",\"").map(|it| it.trim_matches(['"', '\r']));
    let mut figures: Vec<_> = names.clone().map(|_| figures.next()).collect();
    figures.reverse();
    let figure = |wanted: &str| {
        let at = names.clone().position(|name| name == wanted)?;
        figures.get(at).copied().flatten()?.parse::<f64>().ok()
    };
    Some(Sample {
        rate: figure("rps")?,
        p50: Some(figure("p50_latency_ms")? * 1000.0),
        p99: Some(figure("p99_latency_ms")? * 1000.0),
        ..Sample::default()
    })
}

//! Plain Redlock as a store, as it is usually built: a lock that ends by itself on a majority of the
//! servers, renewed while its holder runs, and the answer written over it. Planted in place of the
//! quorum; only the slot secret is still agreed on by the sound store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use onlyonce_core::operate::Operate;
use onlyonce_core::store::Receipt;
use onlyonce_core::{
    Claim, Claimed, Completed, Lease, Record, Release, Released, Renewed, Response, Slot, State,
    Store, StoreError, StoreErrorKind, Timestamp, Token, async_trait, codec,
};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Value};

use crate::failure::Failure;

/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_millis(250);
/// How often a waiter looks again.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Each acts only on what the token in its first argument has written.
const RENEW: &str = "if (redis.call('GET', KEYS[1]) or ''):sub(1, 16) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";
const COMPLETE: &str = "if (redis.call('GET', KEYS[1]) or ''):sub(1, 16) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1] .. ARGV[3], 'PX', ARGV[2]) return 1 end return 0";
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1]) end return 0";

pub(super) struct Redlock {
    servers: Vec<Line>,
    /// For what is no record.
    sound: Arc<dyn Store>,
}

/// A server, and the connection to it once there is one.
pub(super) struct Line {
    client: Client,
    open: Mutex<Option<MultiplexedConnection>>,
    /// Held by the one who connects.
    opening: tokio::sync::Mutex<()>,
}

/// The servers that the URL of a quorum names.
pub(super) fn servers(url: &str) -> Result<Vec<Line>, Failure> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let seats = rest.split(['/', '?']).next().unwrap_or_default().split(',');
    let lines = seats.map(|seat| {
        let client = Client::open(format!("redis://{seat}"));
        let client = client.map_err(Failure::doing("read the address of a server"))?;
        Ok(Line {
            client,
            open: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        })
    });
    lines.collect()
}

impl Line {
    /// The answer, if there is one.
    async fn ask(&self, command: &Cmd) -> Option<Value> {
        let known = self.open().clone();
        let mut connection = match known {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let answered = connection.send_packed_command(command).await;
        if answered.is_err() {
            self.open().take();
        }
        answered.ok()
    }

    /// As long as one connects, the server is away for all others.
    async fn connect(&self) -> Option<MultiplexedConnection> {
        let _opening = self.opening.try_lock().ok()?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_MAX))
            .set_response_timeout(Some(ANSWER_MAX));
        let opened = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let connection = opened.await.ok()?;
        *self.open() = Some(connection.clone());
        Some(connection)
    }

    fn open(&self) -> MutexGuard<'_, Option<MultiplexedConnection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Redlock {
    pub(super) fn new(servers: Vec<Line>, sound: Arc<dyn Store>) -> Self {
        Self { servers, sound }
    }

    /// What those say who answer.
    async fn all(&self, command: &Cmd) -> Vec<Value> {
        let asked = self.servers.iter().map(|server| server.ask(command));
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Whether a majority did it.
    async fn is_done(&self, script: &str, lease: &Lease, args: &[&[u8]]) -> bool {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(1).arg(key(&lease.slot));
        command.arg(lease.token.as_bytes()).arg(args);
        let told = self.all(&command).await;
        told.iter().filter(|it| **it == Value::Int(1)).count() >= self.majority()
    }

    fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }
}

fn key(slot: &Slot) -> String {
    format!("redlock:{slot}")
}

fn unavailable() -> StoreError {
    StoreError::new("redlock", StoreErrorKind::Unavailable)
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// What is in the way of a claim: a token, and behind it the answer once there is one.
fn record(claim: &Claim, value: &Bytes) -> Option<Record> {
    let token = value.get(..Token::BYTES)?.try_into().ok()?;
    let answer = value.slice(Token::BYTES..);
    let state = match answer.is_empty() {
        true => State::Pending {
            lease_left: claim.lease_for,
        },
        false => State::Done(Arc::new(codec::decode_response(&answer).ok()?)),
    };
    let is_done = !answer.is_empty();
    Some(Record {
        token: Token::from_bytes(token),
        fingerprint: claim.fingerprint,
        on_lapse: claim.on_lapse,
        attempt: 1,
        meta: Arc::clone(&claim.meta),
        created_at: Timestamp::from_millis(0),
        completed_at: is_done.then(|| Timestamp::from_millis(0)),
        expires_at: Timestamp::from_millis(0),
        keep_left: claim.keep_for,
        replays: 0,
        state,
    })
}

#[async_trait]
impl Store for Redlock {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let mut lock = redis::cmd("SET");
        lock.arg(key(&claim.slot)).arg(claim.token.as_bytes());
        lock.arg("NX")
            .arg("GET")
            .arg("PX")
            .arg(millis(claim.lease_for));
        let told = self.all(&lock).await;
        let own = Value::BulkString(claim.token.as_bytes().to_vec());
        let is_free = |it: &&Value| **it == Value::Nil || **it == own;
        if told.iter().filter(is_free).count() >= self.majority() {
            return Ok(Claimed::Granted {
                lease: claim.lease(),
                overtook: None,
            });
        }
        self.is_done(RELEASE, &claim.lease(), &[]).await;
        if told.len() < self.majority() {
            return Err(unavailable());
        }
        let found = told.into_iter().filter_map(|it| {
            let Value::BulkString(found) = it else {
                return None;
            };
            Some(Bytes::from(found))
        });
        // An answer rather than a lock.
        let found = found.max_by_key(Bytes::len);
        let taken = found.and_then(|found| record(claim, &found));
        taken.map(Claimed::Taken).ok_or_else(unavailable)
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        let lease_for = millis(lease_for);
        match self.is_done(RENEW, lease, &[lease_for.as_bytes()]).await {
            true => Ok(Renewed::Kept),
            false => Ok(Renewed::Lost),
        }
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let (keep_for, answer) = (millis(keep_for), codec::encode_response(response));
        let args: [&[u8]; 2] = [keep_for.as_bytes(), &answer];
        match self.is_done(COMPLETE, lease, &args).await {
            true => Ok(Completed::Stored(Receipt {
                created_at: Timestamp::from_millis(0),
                completed_at: Timestamp::from_millis(0),
                expires_at: Timestamp::from_millis(0),
            })),
            false => Err(unavailable()),
        }
    }

    async fn release(&self, lease: &Lease, _: Release) -> Result<Released, StoreError> {
        self.is_done(RELEASE, lease, &[]).await;
        Ok(Released::Ended)
    }

    async fn settled(&self, _: &Slot, _: &Token, at_most: Duration) -> Result<(), StoreError> {
        tokio::time::sleep(at_most.min(LOOK_EVERY)).await;
        Ok(())
    }

    fn operate(&self) -> Option<&dyn Operate> {
        self.sound.operate()
    }
}

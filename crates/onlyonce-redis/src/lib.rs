//! Records in Redis: standalone, behind Sentinel, or in a Cluster. A claim is one native pipeline,
//! everything else one short script on one key, and all deadlines are on Redis's clock.
//!
//! ```no_run
//! # async fn open() -> Result<(), onlyonce_redis::OpenError> {
//! use onlyonce_redis::RedisStore;
//!
//! let store = RedisStore::open("redis://:secret@127.0.0.1:6379/0?prefix=shop").await?;
//! # Ok(()) }
//! ```
//!
//! | URL | servers |
//! |---|---|
//! | `redis://[user:password@]host[:port][/db]` | one server |
//! | `rediss://…` | the same over TLS |
//! | `redis+sentinel://[user:password@]s1[:port],s2,s3/master[/db]` | whichever the sentinels call the master |
//! | `redis+cluster://[user:password@]h1[:port],h2,…` | a cluster; some of its servers are enough |
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `prefix` | what the names of all keys and channels begin with | `onlyonce` |
//! | `connections` | shared connections a server; not a pool, each carries any number of requests | cores |
//! | `timeout_ms` | how long an answer may take | 5000 |
//! | `wait_replicas` | so many replicas must confirm before anybody hears of a claim or an answer, also of one that is replayed | 0 |
//! | `wait_timeout_ms` | how long they may take for that | 1000 |
//! | `eviction` | `refuse` a server that may evict records, or only `warn`; looked at again every second, and then new keys are refused | `refuse` |
//! | `claim` | `script` claims as on Redis 6.2 | `auto` |
//! | `tls` | `yes` or `no`, for Sentinel and Cluster | `no` |
//! | `ca` | a file of certificates (PEM) to trust instead of the usual ones | |
//! | `sentinel_user`, `sentinel_password` | who we are to the sentinels | |
//!
//! A user with restricted rights needs `~prefix:* &prefix:*` and the commands that docs/stores.md lists.
//!
//! What Redis loses is lost: with replication alone, a failover forgets what had not been
//! replicated. `appendonly yes`, `appendfsync always` and `wait_replicas` shrink that window.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_core::operate::Operate;
use onlyonce_core::store::Receipt;
use onlyonce_core::{
    Claim, Claimed, Completed, Lease, OsEntropy, Record, Release, Released, Renewed, Response,
    Slot, Store, StoreError, StoreErrorKind, Timestamp, Token, async_trait, codec,
};

use self::eviction::EvictionWatch;
use self::fleet::Fleet;
use self::node::Want;
pub use self::quorum::{QuorumMember, RedisQuorum, Standing};
use self::reply::Reply;
use self::scripts::{Scripts, Step};
use self::trouble::Trouble;
use self::url::Settings;
use self::value::millis;
pub use onlyonce_storekit::OpenError;

mod check;
mod claim;
mod cluster;
mod dial;
mod ear;
mod eviction;
mod fleet;
mod link;
mod node;
mod operate;
mod quorum;
mod reply;
mod scan;
mod scripts;
mod settled;
mod trouble;
mod url;
mod value;

const NAME: &str = "redis";

/// Records in Redis. See [the module](self) for its URLs.
pub struct RedisStore {
    fleet: Fleet,
    eviction: EvictionWatch,
    scripts: Scripts,
    /// What a key's name begins with, colon included.
    prefix: Vec<u8>,
    native_claim: bool,
    sharded: bool,
    entropy: OsEntropy,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &String::from_utf8_lossy(&self.prefix))
            .field("native_claim", &self.native_claim)
            .finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Connects to the servers that `url` names, and checks that records are safe there.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let settings = Arc::new(Settings::of(url)?);
        let roots = check::roots(&settings)?;
        let fleet = Fleet::new(&settings, roots);
        let (version, eviction) = check::servers(&fleet, &settings).await?;
        let dialect = version.dialect(&settings);
        let store = Self {
            fleet,
            eviction,
            scripts: Scripts::new(dialect),
            prefix: format!("{}:", settings.prefix).into_bytes(),
            // It cannot write what it reads, which replicas would have to confirm.
            native_claim: dialect.flags && !dialect.covering,
            sharded: dialect.sharded,
            entropy: OsEntropy::new(),
        };
        // What may not run scripts here should hear of it now.
        store.look(&Slot::from_bytes([0; Slot::BYTES])).await?;
        Ok(store)
    }

    /// The slot's key, which is also the channel its waiters listen to.
    fn key(&self, slot: &Slot) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.prefix.len() + 2 * Slot::BYTES);
        key.extend_from_slice(&self.prefix);
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in slot.as_bytes() {
            key.push(DIGITS[usize::from(byte >> 4)]);
            key.push(DIGITS[usize::from(byte & 15)]);
        }
        key
    }

    /// Runs a script on the slot's key.
    async fn run(&self, step: &Step, key: &[u8], args: &[&[u8]]) -> Result<Reply, StoreError> {
        let answer = self
            .fleet
            .run(step, key, args, Want::Confirmed, true)
            .await?;
        Reply::read(answer)
    }

    /// What is in the slot, in one atomic look.
    async fn look(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.look_by(&self.scripts.look, Want::Plain, slot).await
    }

    async fn look_by(
        &self,
        look: &Step,
        want: Want,
        slot: &Slot,
    ) -> Result<Option<Record>, StoreError> {
        let key = self.key(slot);
        let answer = self.fleet.run(look, &key, &[], want, true).await?;
        match Reply::read(answer)? {
            Reply::Found(record) => Ok(Some(record)),
            Reply::Absent => Ok(None),
            Reply::Acted(_) | Reply::Dead | Reply::Full => Err(Trouble::Odd.into()),
        }
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        if let Some(unsafe_now) = self.eviction.refusal() {
            match self.claim_known(claim).await {
                Err(error) if error.kind == StoreErrorKind::Full => Err(unsafe_now),
                other => other,
            }
        } else if self.native_claim {
            self.claim_natively(claim).await
        } else {
            self.claim_by_script(claim).await
        }
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        let lease_for = millis(lease_for).to_string();
        let args: [&[u8]; 2] = [lease.token.as_bytes(), lease_for.as_bytes()];
        let key = self.key(&lease.slot);
        match self.run(&self.scripts.renew, &key, &args).await? {
            Reply::Acted(_) => Ok(Renewed::Kept),
            Reply::Absent => Ok(Renewed::Lost),
            Reply::Found(_) | Reply::Dead | Reply::Full => Err(Trouble::Odd.into()),
        }
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let (keep_for, asked_for, answer) = (
            millis(keep_for).to_string(),
            millis(lease.keep_for).to_string(),
            codec::encode_response(response),
        );
        let state = value::finished_as(response).as_bytes();
        let args: [&[u8]; 5] = [
            lease.token.as_bytes(),
            keep_for.as_bytes(),
            state,
            &answer,
            asked_for.as_bytes(),
        ];
        let key = self.key(&lease.slot);
        match self.run(&self.scripts.complete, &key, &args).await? {
            Reply::Acted(told) => Ok(Completed::Stored(Receipt {
                created_at: Timestamp::from_millis(told.number(0)?),
                completed_at: Timestamp::from_millis(told.number(1)?),
                expires_at: Timestamp::from_millis(told.number(2)?),
            })),
            Reply::Found(record) => Ok(Completed::Found(record)),
            Reply::Absent => Ok(Completed::Absent),
            Reply::Dead | Reply::Full => Err(Trouble::Odd.into()),
        }
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        let dead_for = millis(lease.lease_for).to_string();
        let why: &[u8] = match why {
            Release::NotRun => b"n",
            Release::Unknown => b"u",
        };
        let args: [&[u8]; 3] = [lease.token.as_bytes(), dead_for.as_bytes(), why];
        let key = self.key(&lease.slot);
        match self.run(&self.scripts.release, &key, &args).await? {
            Reply::Acted(_) => Ok(Released::Ended),
            Reply::Found(record) => Ok(Released::Found(record)),
            Reply::Absent | Reply::Dead | Reply::Full => Err(Trouble::Odd.into()),
        }
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        match tokio::time::timeout(at_most, self.wait_for(slot, seen)).await {
            Ok(settled) => settled,
            Err(_) => Ok(()),
        }
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

/// Locks, also after a panic elsewhere: every critical section leaves its data whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

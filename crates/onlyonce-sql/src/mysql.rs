//! MariaDB 10.6 or later, and MySQL 8.0 by the same statements. A claim of an empty slot and a
//! completion are one round trip each, which carries what many ask at the same time; everything
//! else is a read, a decision of the reference store, and a write that fails if anybody else was
//! faster. All times are the server's. A replay locks nothing.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    Claim, Claimed, Completed, Lease, Operate, OsEntropy, Release, Released, Renewed, Response,
    Slot, Store, StoreError, SystemClock, Token, async_trait,
};
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};

use self::batches::{Gathered, ask, gather};
use self::lines::{Lines, Terms};
use self::nodes::{Callers, Moves, Nodes};
use self::server::{Server, Stepped, alive};
use self::statements::Statements;
use self::verbs::{Claiming, Completing, Looking, Verb};
use super::shared::{Replaced, SqlOptions};
use super::steps::whole;
use onlyonce_storekit::OpenError;

mod batches;
mod connect;
mod hosts;
mod lines;
mod nodes;
mod operate;
mod rows;
mod server;
mod session;
mod statements;
mod text;
mod trouble;
mod verbs;
mod within;

/// Batches of claims, and as many of completions, on their way at the same time.
const WORKERS: usize = 2;
/// Larger answers go by themselves, as they are, instead of spelled out with others.
const SPELLED_BYTES_MAX: usize = 64 << 10;
/// How often a slot is looked at that changes while it is looked at.
const LOOKS_MAX: usize = 100;
/// Who waits for another process looks this often, less and less.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Records in a MariaDB or MySQL database: `mysql://` or `mariadb://`.
///
/// Tested with MariaDB 10.11. MySQL 8.0 takes the same statements, but is untested.
///
/// Options of the URL, besides those of [`SqlOptions`] and those of the connection itself
/// (`ssl-mode`, `ssl-ca`, `ssl-cert`, `ssl-key`, `socket` and so on): none.
///
/// The URL may name the nodes of a Galera cluster: `mariadb://app@a:3306,b:3307,c/shop`. The first that
/// takes writes is used, in their order, until it fails; then the next one. What is read is what the
/// whole cluster had agreed on when it was asked.
///
/// The tables are InnoDB's. With a binary log, its format must be `MIXED` or `ROW`. An answer that
/// is not at least 64 KiB smaller than the server's `max_allowed_packet` is too large. Who waits for a claim that another process
/// holds asks again after 20 to 500 milliseconds: these servers cannot call.
///
/// ```no_run
/// # async fn open() -> Result<(), onlyonce_sql::OpenError> {
/// use onlyonce_sql::MySqlStore;
///
/// let store = MySqlStore::open("mysql://app@db/shop?table=shop_once&archive=true").await?;
/// # Ok(()) }
/// ```
pub struct MySqlStore {
    server: Arc<Server>,
    pool: MySqlPool,
    claims: Gathered<Claiming>,
    completions: Gathered<Completing>,
    looks: Gathered<Looking>,
    entropy: OsEntropy,
    /// Held by who adds up replays.
    counting: tokio::sync::Mutex<()>,
}

impl MySqlStore {
    /// Connects to the server that `url` names, or to the first of its servers that takes writes, and
    /// makes or migrates the tables.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let (options, servers) = connect::parse(url)?;
        let first = servers.first().cloned().unwrap_or_default();
        let moves = Arc::new(Moves::default());
        let seen = Arc::clone(&moves);
        let pool = MySqlPoolOptions::new()
            .max_connections(options.connections)
            .acquire_timeout(options.timeout)
            // Callers belong on the node that the store uses.
            .before_acquire(move |_, about| {
                let is_current = seen.is_since(about.age);
                Box::pin(async move { Ok(is_current) })
            })
            .connect_lazy_with(first);
        Self::start(servers, Callers::new(pool, moves), options).await
    }

    /// Uses the database of `pool`, by connections of its own with the same settings: they need a
    /// session of their own kind, and must not wait for handlers that hold connections.
    pub async fn with_pool(pool: MySqlPool, options: SqlOptions) -> Result<Self, OpenError> {
        let server = MySqlConnectOptions::clone(&pool.connect_options());
        let callers = Callers::new(pool, Arc::default());
        Self::start(vec![server], callers, options).await
    }

    async fn start(
        servers: Vec<MySqlConnectOptions>,
        callers: Callers,
        options: SqlOptions,
    ) -> Result<Self, OpenError> {
        let table = options.check()?;
        let pool = callers.pool().clone();
        let terms = Terms {
            connections: options.connections as usize,
            timeout: options.timeout,
        };
        let nodes = Nodes::new(servers, terms, callers);
        let packet_bytes_max = connect::prepare(&nodes, &table).await?;
        let server = Arc::new(Server {
            lines: Lines::new(nodes, packet_bytes_max, terms),
            statements: Statements::new(table),
            waiters: Arc::default(),
            archive: options.archive,
            replaced: Replaced::default(),
            clock: SystemClock::new(),
        });
        Ok(Self {
            claims: gather(&server, WORKERS, options.batch_max),
            completions: gather(&server, WORKERS, options.batch_max),
            looks: gather(&server, 1, options.batch_max),
            entropy: OsEntropy::new(),
            counting: tokio::sync::Mutex::default(),
            pool,
            server,
        })
    }

    /// A pool on the same database, for transactions of the caller.
    pub fn pool(&self) -> &MySqlPool {
        &self.pool
    }

    /// Claims a slot that holds something to be replaced, or that somebody may have locked.
    async fn contest(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        for _ in 0..LOOKS_MAX {
            let step = self
                .server
                .step(&claim.slot, |held, now| verbs::claim(held, claim, now));
            match step.await? {
                // Lapsed, but not ours to take: its holder may still work on it.
                Stepped::Took(Claimed::Taken(record)) if record.is_lapsed() => {
                    let locked = self.server.is_locked(&claim.slot, &record.token).await?;
                    let record = if locked { alive(record) } else { record };
                    return Ok(Claimed::Taken(record));
                }
                Stepped::Took(claimed) => return Ok(claimed),
                Stepped::Locked(held, now) => match held.entry.get(now) {
                    // Ours already, but with less than the lease that a grant promises.
                    Some(record) if record.token == claim.token => break,
                    Some(record) => return Ok(Claimed::Taken(alive(record))),
                    None => {}
                },
            }
        }
        Err(trouble::Trouble::raced().to_error())
    }
}

#[async_trait]
impl Store for MySqlStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        match ask(&self.claims, Claiming::new(claim, &self.entropy)).await? {
            Some(claimed) => Ok(claimed),
            None => self.contest(claim).await,
        }
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        let lease_for = whole(lease_for);
        let step = self.server.step(&lease.slot, |held, now| {
            held.entry.renew(lease, lease_for, now)
        });
        match step.await? {
            Stepped::Took(renewed) => Ok(renewed),
            // It was ours before it was locked, or there would have been nothing to write.
            Stepped::Locked(..) => Ok(Renewed::Busy),
        }
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let completing = Completing::new(lease, response, keep_for);
        if completing.bytes() <= SPELLED_BYTES_MAX
            && let Some(completed) = ask(&self.completions, completing).await?
        {
            return Ok(completed);
        }
        let keep_for = whole(keep_for);
        let completed = self
            .server
            .step_at_last(&lease.slot, |held, now| {
                held.entry.complete(lease, response, keep_for, now)
            })
            .await?;
        // Finished in a transaction of its holder: nobody here has been told.
        self.server.waiters.wake(&lease.slot);
        Ok(completed)
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        self.server
            .step_at_last(&lease.slot, |held, now| held.release(lease, why, now))
            .await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        let watch = self.server.waiters.watch(slot);
        let enough = tokio::time::sleep(at_most);
        tokio::pin!(enough);
        let mut pause = PAUSE_MIN;
        loop {
            // Registered before the row is looked at: a change in between is not missed.
            let changed = watch.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let lease_left = match ask(&self.looks, Looking(*slot)).await? {
                Some((token, lease_left)) if token == *seen => lease_left,
                Some(_) => return Ok(()),
                // Lapsed, but its holder works on it.
                None if self.server.is_locked(slot, seen).await? => PAUSE_MAX,
                None => return Ok(()),
            };
            tokio::select! {
                biased;
                () = &mut enough => return Ok(()),
                () = changed => {}
                () = tokio::time::sleep(lease_left.min(pause)) => {}
            }
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    fn response_bytes_max(&self) -> Option<usize> {
        Some(self.server.response_bytes_max())
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

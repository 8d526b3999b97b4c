//! PostgreSQL 12 or later. Every verb is one statement, and one statement carries what many ask at
//! the same time. All times are the server's; a replay writes nothing and takes no transaction id,
//! unless commits wait for a standby: then it waits too.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onlyonce_core::{
    Claim, Claimed, Clock, Completed, Lease, Operate, Release, Released, Renewed, Response, Slot,
    Store, StoreError, SystemClock, Token, async_trait,
};
use sqlx::postgres::{PgPool, PgPoolOptions};

pub use options::PostgresOptions;

use self::batches::{Gathered, ask, gather};
use self::hosts::Hosts;
use self::lines::{Lines, Terms};
use self::options::Target;
use self::server::Server;
use self::source::{Held, Source};
use self::statements::Statements;
use self::verbs::{Claiming, Completing, Looking, Releasing, Renewing};
use self::waiting::{Listening, Waiting};
use super::shared::Replaced;
use onlyonce_storekit::OpenError;

mod arg;
mod batches;
mod hosts;
mod inside;
mod lines;
mod migrate;
mod operate;
mod options;
mod places;
mod row;
mod running;
mod server;
mod source;
mod standing;
mod statements;
mod target;
#[cfg(test)]
mod tests;
mod trouble;
mod verbs;
mod waiting;

/// Tasks that claim, and as many that complete, each with a batch of its own on its way. More make
/// batches smaller; fewer leave the server idle while it waits for its disk.
const WORKERS_MAX: usize = 4;
/// The largest answer. A value has at most 1 GiB, and half of it where it is spelled in digits.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// Records in a PostgreSQL database.
///
/// ```no_run
/// # async fn open() -> Result<(), onlyonce_sql::OpenError> {
/// use onlyonce_sql::PostgresStore;
///
/// let store = PostgresStore::open("postgres://app@db/shop?table=shop_once&archive=true").await?;
/// # Ok(()) }
/// ```
///
/// Options of the URL, besides those of the connection itself (`sslmode`, `sslrootcert`,
/// `application_name`, `options[search_path]` and so on):
///
/// | option | meaning | default |
/// |---|---|---|
/// | `table` | what its tables are called | `onlyonce_records` |
/// | `connections` | how many it opens, besides one that listens and, for a moment, one that cancels | 8 |
/// | `batch_max` | how many questions one statement carries | 128 |
/// | `notify` | announce ends of claims to other processes, and listen for theirs | `true` |
/// | `archive` | a sweep moves finished records to `{table}_archive` | `false` |
/// | `pooled` | behind a pooler of transactions, such as PgBouncer: keeps nothing in a session | `false` |
/// | `timeout_ms` | how long a statement may take | 5000 |
/// | `connect_timeout_ms` | how long connecting may take | 3000 |
/// | `target_session_attrs` | `read-write`: only a server that takes writes is used | |
///
/// A primary and its standbys are named together,
/// `postgres://app@a:5432,b:5432/shop?target_session_attrs=read-write`: the store writes to the primary, and
/// to the one that is promoted within seconds. What survives that: `docs/stores.md`.
pub struct PostgresStore {
    server: Arc<Server>,
    claims: Gathered<Claiming>,
    renewals: Gathered<Renewing>,
    completions: Gathered<Completing>,
    releases: Gathered<Releasing>,
    looks: Gathered<Looking>,
    /// With whom to listen and for what, if at all: only once somebody waits.
    listen: Option<(Source, String)>,
    listening: OnceLock<Listening>,
}

impl PostgresStore {
    /// Connects to the server that `url` names, and makes or migrates the tables.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let (options, target) = options::read(url)?;
        let source = match target {
            Target::One(connect) => {
                let pool = PgPoolOptions::new()
                    .max_connections(options.sql.connections)
                    .acquire_timeout(options.connect_timeout)
                    .connect_with(*connect);
                Source::Pool(pool.await.map_err(migrate::refused)?)
            }
            Target::Writable(hosts) => Source::Hosts(Hosts::new(hosts, options.connect_timeout)),
        };
        Self::on(source, options, true).await
    }

    /// Checks the URL of such a store, without connecting.
    pub fn check_url(url: &str) -> Result<(), OpenError> {
        options::read(url).map(drop)
    }

    /// The same on a pool that is there already. Each statement borrows a connection and gives it
    /// back, which costs a round trip more than connections of the store's own: to be fast, and
    /// never to wait for handlers that hold connections themselves, prefer [`open`](Self::open).
    pub async fn with_pool(
        pool: PgPool,
        options: impl Into<PostgresOptions>,
    ) -> Result<Self, OpenError> {
        Self::on(Source::Pool(pool), options.into(), false).await
    }

    async fn on(source: Source, options: PostgresOptions, own: bool) -> Result<Self, OpenError> {
        let table = options.check()?;
        let mut connection = match &source {
            Source::Pool(pool) => Held::Pooled(pool.acquire().await.map_err(migrate::refused)?),
            Source::Hosts(hosts) => Held::Own(hosts.connect().await.map_err(StoreError::from)?.0),
        };
        migrate::migrate(connection.get(), &table).await?;
        drop(connection);
        let channel = waiting::channel(&table);
        let listen = (options.notify && !options.pooled).then(|| (source.clone(), channel.clone()));
        let lines = Arc::new(Lines::new(
            source,
            Terms {
                connections: options.sql.connections as usize,
                keep: own,
                pooled: options.pooled,
                timeout: options.sql.timeout,
            },
        ));
        let statements = Arc::new(Statements::new(&table, options.sql.archive));
        let announcements = options.notify.then(|| {
            let (lines, statements) = (Arc::clone(&lines), Arc::clone(&statements));
            waiting::announce(lines, statements, channel)
        });
        let server = Arc::new(Server {
            lines,
            statements,
            waiting: Arc::new(Waiting::default()),
            announcements,
            clock: SystemClock::new(),
            replaced: Replaced::default(),
        });
        let workers = (options.sql.connections as usize / 2).clamp(1, WORKERS_MAX);
        let batch_max = options.sql.batch_max;
        Ok(Self {
            claims: gather(&server, workers, batch_max),
            completions: gather(&server, workers, batch_max),
            renewals: gather(&server, 1, batch_max),
            releases: gather(&server, 1, batch_max),
            looks: gather(&server, 1, batch_max),
            listen,
            listening: OnceLock::new(),
            server,
        })
    }

    fn listen(&self) {
        if let Some((source, channel)) = &self.listen {
            self.listening.get_or_init(|| {
                let waiting = Arc::clone(&self.server.waiting);
                Listening::start(source.clone(), channel.clone(), waiting)
            });
        }
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        ask(&self.claims, Claiming(claim.clone())).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        let lease = lease.clone();
        ask(&self.renewals, Renewing { lease, lease_for }).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        if response.bytes() > RESPONSE_BYTES_MAX {
            return Err(trouble::too_large());
        }
        let completing = Completing::new(lease, response, keep_for);
        ask(&self.completions, completing).await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        let lease = lease.clone();
        ask(&self.releases, Releasing { lease, why }).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.listen();
        let clock = &self.server.clock;
        let until = clock.now().saturating_add(at_most);
        let watch = self.server.waiting.slots.watch(slot);
        let mut pause = None;
        loop {
            // Registered before the record is read: a change in between is not missed.
            let changed = watch.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let look = Looking {
                slot: *slot,
                seen: *seen,
            };
            let Some(lease_left) = ask(&self.looks, look).await? else {
                return Ok(());
            };
            let left = until.saturating_sub(clock.now());
            if left.is_zero() {
                return Ok(());
            }
            let patience = self.server.waiting.patience(pause);
            pause = Some(patience);
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep(left.min(lease_left).min(patience)) => {}
            }
        }
    }

    fn response_bytes_max(&self) -> Option<usize> {
        Some(RESPONSE_BYTES_MAX)
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

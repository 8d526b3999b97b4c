//! The database: SQLite or PostgreSQL, by its URL. Business rows and the idempotency record of the
//! request that made them are in one database, so that one transaction commits both or neither.
//! The SQL is the same text for both; only what has to differ is here.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use onlyonce::store::{Completed, Renewed};
use onlyonce::stores::OpenError;
use onlyonce::stores::sql::{PostgresStore, SqliteStore};
use onlyonce::{Execution, Store};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgRow, Postgres};
use sqlx::sqlite::{Sqlite, SqliteRow};
use sqlx::{FromRow, Transaction};
use thiserror::Error;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::reply::{Fault, Reply};

const SCHEMA: &str = include_str!("schema.sql");
/// Held while tables are made: two processes that make the same one at once would collide.
const LOCK: &str = "SELECT pg_advisory_xact_lock(8315163)";
const CONNECTIONS_MAX: u32 = 8;
/// How long a request waits for a connection to a database that does not answer.
const CONNECT_MAX: Duration = Duration::from_secs(5);

macro_rules! bind {
    ($query:expr, $args:expr) => {{
        let mut query = $query;
        for arg in $args {
            query = match *arg {
                Arg::Text(text) => query.bind(text),
                Arg::Maybe(text) => query.bind(text),
                Arg::Number(number) => query.bind(number),
            };
        }
        query
    }};
}

/// The rows and the records. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Db {
    /// There is one that writes at a time. Those of this process queue up: to be woken in turn is
    /// faster than to try again and again.
    Sqlite(Arc<SqliteStore>, Arc<Mutex<()>>),
    Postgres(Arc<PostgresStore>, PgPool),
}

/// Why a database cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DbError {
    /// It is neither of the two kinds.
    #[error(
        "the database must be sqlite:PATH or postgres://…, so that rows and records share a transaction"
    )]
    Kind,
    /// The store of the records cannot be opened on it.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The tables of the rows cannot be made in it.
    #[error("the demo's tables cannot be made in the database")]
    Tables(#[from] sqlx::Error),
}

impl Db {
    pub(crate) async fn open(url: &str) -> Result<Self, DbError> {
        if url.starts_with("sqlite:") {
            let store = SqliteStore::open(url).await?;
            let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await?;
            sqlx::raw_sql(SCHEMA).execute(&mut *tx).await?;
            tx.commit().await?;
            Ok(Self::Sqlite(Arc::new(store), Arc::default()))
        } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
            let store = PostgresStore::open(url).await?;
            let options = PgConnectOptions::from_str(url)?;
            let pool = PgPoolOptions::new()
                .max_connections(CONNECTIONS_MAX)
                .acquire_timeout(CONNECT_MAX)
                .connect_with(options)
                .await?;
            let mut tx = pool.begin().await?;
            sqlx::raw_sql(LOCK).execute(&mut *tx).await?;
            sqlx::raw_sql(SCHEMA).execute(&mut *tx).await?;
            tx.commit().await?;
            Ok(Self::Postgres(Arc::new(store), pool))
        } else {
            Err(DbError::Kind)
        }
    }

    /// The store of the idempotency records.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store, _) => Arc::clone(store) as _,
            Self::Postgres(store, _) => Arc::clone(store) as _,
        }
    }

    /// What metrics and log call it.
    pub(crate) fn backend(&self) -> &'static str {
        match self {
            Self::Sqlite(..) => "sqlite",
            Self::Postgres(..) => "postgres",
        }
    }

    /// Begins work of a request. If that is a keyed one, its claim is held until the work ends.
    pub(crate) async fn work(&self, execution: Option<&Execution>) -> Result<Work, Fault> {
        let mut work = Work {
            tx: self.begin().await?,
            execution: execution.cloned(),
        };
        work.lock().await?;
        Ok(work)
    }

    /// Begins work that answers nobody.
    pub(crate) async fn plain_work(&self) -> Result<Work, sqlx::Error> {
        let tx = self.begin().await?;
        let execution = None;
        Ok(Work { tx, execution })
    }

    async fn begin(&self) -> Result<Tx, sqlx::Error> {
        Ok(match self {
            // To read first and write later fails where another has written in between.
            Self::Sqlite(store, queue) => {
                let turn = Arc::clone(queue).lock_owned().await;
                let tx = store.pool().begin_with("BEGIN IMMEDIATE").await?;
                Tx::Sqlite {
                    tx,
                    store: Arc::clone(store),
                    _turn: turn,
                }
            }
            Self::Postgres(store, pool) => Tx::Postgres(pool.begin().await?, Arc::clone(store)),
        })
    }

    /// Changes rows in a transaction of their own; says how many.
    pub(crate) async fn run(
        &self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<u64, sqlx::Error> {
        let mut work = self.plain_work().await?;
        let changed = work.run(sql, args).await?;
        work.commit().await?;
        Ok(changed)
    }

    /// Reads rows outside of any work.
    pub(crate) async fn all<T: Row>(&self, sql: &'static str, args: &[Arg<'_>]) -> Rows<T> {
        match self {
            Self::Sqlite(store, _) => {
                let query = bind!(sqlx::query_as::<Sqlite, T>(sql), args);
                query.fetch_all(store.pool()).await
            }
            Self::Postgres(_, pool) => {
                let query = bind!(sqlx::query_as::<Postgres, T>(sql), args);
                query.fetch_all(pool).await
            }
        }
    }
}

enum Tx {
    Sqlite {
        tx: Transaction<'static, Sqlite>,
        store: Arc<SqliteStore>,
        _turn: OwnedMutexGuard<()>,
    },
    Postgres(Transaction<'static, Postgres>, Arc<PostgresStore>),
}

/// One transaction. Dropped before it is finished, nothing of it happened.
pub(crate) struct Work {
    tx: Tx,
    execution: Option<Execution>,
}

/// A value of a statement.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Text(&'a str),
    Maybe(Option<&'a str>),
    Number(i64),
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Arg<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<Option<&'a str>> for Arg<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Maybe(text)
    }
}

impl From<i64> for Arg<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// A row that either database can give.
pub(crate) trait Row:
    for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{
}

impl<T> Row for T where T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin
{}

pub(crate) type Rows<T> = Result<Vec<T>, sqlx::Error>;

impl Work {
    /// Changes rows; says how many.
    pub(crate) async fn run(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<u64, sqlx::Error> {
        Ok(match &mut self.tx {
            Tx::Sqlite { tx, .. } => {
                let query = bind!(sqlx::query::<Sqlite>(sql), args);
                query.execute(&mut **tx).await?.rows_affected()
            }
            Tx::Postgres(tx, _) => {
                let query = bind!(sqlx::query::<Postgres>(sql), args);
                query.execute(&mut **tx).await?.rows_affected()
            }
        })
    }

    /// The rows that a statement gives.
    pub(crate) async fn all<T: Row>(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Rows<T> {
        match &mut self.tx {
            Tx::Sqlite { tx, .. } => {
                let query = bind!(sqlx::query_as::<Sqlite, T>(sql), args);
                query.fetch_all(&mut **tx).await
            }
            Tx::Postgres(tx, _) => {
                let query = bind!(sqlx::query_as::<Postgres, T>(sql), args);
                query.fetch_all(&mut **tx).await
            }
        }
    }

    /// The digest of the idempotency key, where there is one.
    pub(crate) fn slot(&self) -> Option<String> {
        let lease = self.execution.as_ref().and_then(Execution::lease);
        lease.map(|lease| lease.slot.to_string())
    }

    /// Commits the rows, and with them the answer of a keyed request: a retry that comes right
    /// after a crash finds both or neither.
    pub(crate) async fn finish(mut self, reply: Reply) -> Result<Reply, Fault> {
        if let Some(execution) = self.execution.take()
            && let Some(lease) = execution.lease()
        {
            let response = reply.stored(execution.took());
            let keep_for = lease.keep_for;
            let completed = match &mut self.tx {
                Tx::Sqlite { tx, store, .. } => {
                    store.complete_in(tx, lease, &response, keep_for).await?
                }
                Tx::Postgres(tx, store) => {
                    store.complete_in(tx, lease, &response, keep_for).await?
                }
            };
            match completed {
                Completed::Stored(_) => {}
                Completed::Found(_) | Completed::Absent => return Err(Fault::overtaken()),
            }
        }
        self.commit().await?;
        Ok(reply)
    }

    /// Commits rows that belong to no answer.
    pub(crate) async fn commit(self) -> Result<(), sqlx::Error> {
        match self.tx {
            Tx::Sqlite { tx, .. } => tx.commit().await,
            Tx::Postgres(tx, _) => tx.commit().await,
        }
    }

    async fn lock(&mut self) -> Result<(), Fault> {
        let Some(lease) = self.execution.as_ref().and_then(Execution::lease) else {
            return Ok(());
        };
        let locked = match &mut self.tx {
            Tx::Sqlite { tx, store, .. } => store.lock_in(tx, lease).await?,
            Tx::Postgres(tx, store) => store.lock_in(tx, lease).await?,
        };
        match locked {
            Renewed::Kept => Ok(()),
            Renewed::Lost | Renewed::Busy => Err(Fault::overtaken()),
        }
    }
}

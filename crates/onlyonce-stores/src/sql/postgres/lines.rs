//! Connections to the server. A store of its own keeps them at hand between statements, because a
//! pool asks each connection whether it is alive on its way in and out, which costs a round trip.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::operate::Connections;
use onlyonce_core::{Clock, SystemClock};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool, PgRow};
use sqlx::{AssertSqlSafe, Connection, Postgres};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::arg::{self, Arg};
use super::statements::Statement;
use super::trouble::{Then, Trouble};
use crate::sql::shared::lock;

/// A connection that said nothing for this long is asked first whether it is still there.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// A connection is handed back to the pool at this age, which may replace it.
const AGE_MAX: Duration = Duration::from_secs(30 * 60);

pub(super) struct Lines {
    pool: PgPool,
    idle: Mutex<Vec<Line>>,
    free: Semaphore,
    exhausted: AtomicU64,
    terms: Terms,
    clock: SystemClock,
}

/// How connections are used.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// How many are used at the same time.
    pub(super) connections: usize,
    /// Whether they stay here between statements, or go back to the pool each time.
    pub(super) keep: bool,
    /// Whether nothing may be prepared, because the next statement may meet another session.
    pub(super) pooled: bool,
    /// How long a statement may take.
    pub(super) timeout: Duration,
}

struct Line {
    connection: PoolConnection<Postgres>,
    born: Duration,
    silent_since: Duration,
}

impl Lines {
    pub(super) fn new(pool: PgPool, terms: Terms) -> Self {
        Self {
            pool,
            idle: Mutex::default(),
            free: Semaphore::new(terms.connections),
            exhausted: AtomicU64::new(0),
            terms,
            clock: SystemClock::new(),
        }
    }

    /// How many are in use, and how often there were too few.
    pub(super) fn connections(&self) -> Connections {
        let idle = self.free.available_permits().min(self.terms.connections);
        Connections {
            active: (self.terms.connections - idle) as u64,
            exhausted: self.exhausted.load(Ordering::Relaxed),
        }
    }

    fn count_exhausted(&self) {
        if self.free.available_permits() == 0 {
            self.exhausted.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    /// Runs one statement by itself: one round trip, and a transaction of its own.
    pub(super) async fn ask(&self, what: &Statement, args: &[Arg]) -> Result<Vec<PgRow>, Trouble> {
        self.ask_within(self.terms.timeout, what, args).await
    }

    /// The same with another bound on its time.
    pub(super) async fn ask_within(
        &self,
        at_most: Duration,
        what: &Statement,
        args: &[Arg],
    ) -> Result<Vec<PgRow>, Trouble> {
        self.count_exhausted();
        let turn = timeout(at_most, self.free.acquire()).await;
        let _turn = turn.map_err(|_| Trouble::late())?;
        let mut again = what.repeatable;
        loop {
            let mut line = self.take().await?;
            let asked = timeout(at_most, self.send(&mut line.connection, what, args)).await;
            let trouble = match asked {
                Ok(Ok(rows)) => {
                    self.put_back(line);
                    return Ok(rows);
                }
                Ok(Err(error)) => Trouble::from(error),
                Err(_) => {
                    line.connection.close_on_drop();
                    return Err(Trouble::late());
                }
            };
            if trouble.then != Then::Reconnect {
                self.put_back(line);
                return Err(trouble);
            }
            // What broke this connection has probably broken the others too.
            line.connection.close_on_drop();
            lock(&self.idle).clear();
            if !again {
                return Err(trouble);
            }
            again = false;
        }
    }

    async fn send(
        &self,
        connection: &mut PgConnection,
        what: &Statement,
        args: &[Arg],
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        if self.terms.pooled || args.is_empty() {
            let text = AssertSqlSafe(arg::inline(&what.sql, args));
            return sqlx::raw_sql(text).fetch_all(connection).await;
        }
        let query = sqlx::query(AssertSqlSafe(Arc::clone(&what.sql)));
        arg::bind(query, args).fetch_all(connection).await
    }

    async fn take(&self) -> Result<Line, Trouble> {
        loop {
            let Some(mut line) = lock(&self.idle).pop() else {
                return Ok(Line {
                    connection: self.pool.acquire().await?,
                    born: self.clock.now(),
                    silent_since: self.clock.now(),
                });
            };
            if self.clock.now().saturating_sub(line.silent_since) < SILENCE_MAX {
                return Ok(line);
            }
            let there = timeout(self.terms.timeout, line.connection.ping()).await;
            if matches!(there, Ok(Ok(()))) {
                return Ok(line);
            }
            line.connection.close_on_drop();
        }
    }

    fn put_back(&self, mut line: Line) {
        let now = self.clock.now();
        line.silent_since = now;
        if self.terms.keep && now.saturating_sub(line.born) < AGE_MAX {
            lock(&self.idle).push(line);
        }
    }
}

/// Without a runtime, a connection cannot be handed back: then it is only closed.
impl Drop for Lines {
    fn drop(&mut self) {
        if Handle::try_current().is_err() {
            for line in lock(&self.idle).drain(..) {
                drop(line.connection.leak());
            }
        }
    }
}

//! Connections to the server, kept at hand between statements. Not a pool of the driver's: that
//! asks each connection whether it is alive on its way back, which costs a round trip.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt;
use onlyonce_core::operate::Connections;
use onlyonce_core::{Clock, SystemClock};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlQueryResult, MySqlRow};
use sqlx::{ConnectOptions, Connection, Either};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::text::Text;
use super::trouble::{Then, Trouble};
use crate::sql::shared::lock;

/// What every session of ours needs. Locks are not waited for long: a row that is locked for more
/// than a moment is one that its holder works on.
const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET SESSION innodb_lock_wait_timeout = 1, SESSION autocommit = 1, \
     SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'";

/// A connection that said nothing for this long is asked first whether it is still there.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The connections of one store.
pub(super) struct Lines {
    connect: MySqlConnectOptions,
    idle: Mutex<Vec<Idle>>,
    free: Semaphore,
    exhausted: AtomicU64,
    terms: Terms,
    clock: SystemClock,
}

/// How connections are used.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// How many there are at most.
    pub(super) connections: usize,
    /// How long a statement may take, or connecting.
    pub(super) timeout: Duration,
}

struct Idle {
    connection: MySqlConnection,
    silent_since: Duration,
}

/// What the statements of a text answered, in their order.
#[derive(Default)]
pub(super) struct Answered {
    /// How many rows each statement changed.
    pub(super) changed: Vec<u64>,
    /// What they read.
    pub(super) rows: Vec<MySqlRow>,
}

impl Lines {
    pub(super) fn new(connect: MySqlConnectOptions, terms: Terms) -> Self {
        Self {
            // Statements hold what was answered to somebody: they are not for a log.
            connect: connect.disable_statement_logging(),
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

    /// Runs statements that may be repeated, in one round trip. If the connection turns out to be
    /// gone, another one is tried.
    pub(super) async fn ask(&self, text: &Text) -> Result<Answered, Trouble> {
        match self.ask_once(text).await {
            Err(trouble) if trouble.then == Then::Reconnect => self.ask_once(text).await,
            answered => answered,
        }
    }

    /// Runs statements that must not be repeated, in one round trip.
    pub(super) async fn ask_once(&self, text: &Text) -> Result<Answered, Trouble> {
        let mut line = self.line().await?;
        let answered = line.ask(text).await;
        match &answered {
            Ok(_) => line.keep(),
            Err(trouble) => match trouble.then {
                Then::Locked | Then::Duplicate | Then::Repeat | Then::Split => {
                    if !text.is_transaction() || line.ask(&Text::of("ROLLBACK")).await.is_ok() {
                        line.keep();
                    }
                }
                // Closed, which ends a transaction too.
                Then::Reconnect | Then::Tell => {}
            },
        }
        answered
    }

    /// A connection for statements that belong together. It is closed unless it is kept.
    pub(super) async fn line(&self) -> Result<Line<'_>, Trouble> {
        self.count_exhausted();
        let turn = timeout(self.terms.timeout, self.free.acquire()).await;
        let turn = turn.map_err(|_| Trouble::late())?;
        let turn = turn.map_err(|_| Trouble::late())?;
        let connection = match self.idle_line().await {
            Some(connection) => connection,
            None => {
                let opened = timeout(self.terms.timeout, self.open()).await;
                opened.map_err(|_| Trouble::late())??
            }
        };
        Ok(Line {
            lines: self,
            connection: Some(connection),
            _turn: turn,
        })
    }

    async fn idle_line(&self) -> Option<MySqlConnection> {
        loop {
            let mut idle = lock(&self.idle).pop()?;
            if self.clock.now().saturating_sub(idle.silent_since) < SILENCE_MAX {
                return Some(idle.connection);
            }
            let there = timeout(self.terms.timeout, idle.connection.ping()).await;
            if matches!(there, Ok(Ok(()))) {
                return Some(idle.connection);
            }
        }
    }

    async fn open(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = self.connect.connect().await?;
        sqlx::raw_sql(SESSION).execute(&mut connection).await?;
        Ok(connection)
    }
}

/// A connection in use.
pub(super) struct Line<'a> {
    lines: &'a Lines,
    /// There until it is kept or closed.
    connection: Option<MySqlConnection>,
    _turn: SemaphorePermit<'a>,
}

impl Line<'_> {
    /// Runs statements in one round trip.
    pub(super) async fn ask(&mut self, text: &Text) -> Result<Answered, Trouble> {
        let at_most = self.lines.terms.timeout;
        let connection = self.connection()?;
        let asked = async {
            let mut answered = Answered::default();
            let mut answers = sqlx::raw_sql(text.clone().into_sql()).fetch_many(connection);
            while let Some(answer) = answers.try_next().await? {
                answered.take(answer);
            }
            Ok(answered)
        };
        let ended = timeout(at_most, asked).await;
        self.ended(ended)
    }

    /// Runs one prepared statement.
    pub(super) async fn run(
        &mut self,
        query: sqlx::query::Query<'_, sqlx::MySql, sqlx::mysql::MySqlArguments>,
    ) -> Result<MySqlQueryResult, Trouble> {
        let at_most = self.lines.terms.timeout;
        let connection = self.connection()?;
        let asked = query.execute(connection);
        let ended = timeout(at_most, asked).await;
        self.ended(ended)
    }

    /// Gives the connection back for others.
    pub(super) fn keep(mut self) {
        if let Some(connection) = self.connection.take() {
            let silent_since = self.lines.clock.now();
            lock(&self.lines.idle).push(Idle {
                connection,
                silent_since,
            });
        }
    }

    fn connection(&mut self) -> Result<&mut MySqlConnection, Trouble> {
        let gone = || Trouble::unavailable(Then::Reconnect, "the connection is gone");
        self.connection.as_mut().ok_or_else(gone)
    }

    fn ended<T>(
        &mut self,
        asked: Result<Result<T, sqlx::Error>, tokio::time::error::Elapsed>,
    ) -> Result<T, Trouble> {
        match asked {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let trouble = Trouble::from(error);
                if trouble.then == Then::Reconnect {
                    self.connection = None;
                    // What broke this connection has probably broken the others too.
                    lock(&self.lines.idle).clear();
                }
                Err(trouble)
            }
            Err(_) => {
                self.connection = None;
                Err(Trouble::late())
            }
        }
    }
}

impl Answered {
    fn take(&mut self, answer: Either<MySqlQueryResult, MySqlRow>) {
        match answer {
            Either::Left(result) => self.changed.push(result.rows_affected()),
            Either::Right(row) => self.rows.push(row),
        }
    }
}

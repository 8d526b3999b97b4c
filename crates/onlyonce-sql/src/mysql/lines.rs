//! Connections to the server, kept at hand between statements. Not a pool of the driver's: that
//! asks each connection whether it is alive on its way back, which costs a round trip.

use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::TryStreamExt;
use onlyonce_core::operate::Connections;
use onlyonce_core::{Clock, SystemClock};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlQueryResult, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Either};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::rows::Write;
use super::session;
use super::text::Text;
use super::trouble::{Then, Trouble};
use crate::shared::{Asking, GIVEN_UP_MAX, GivenUp, Running, lock};

/// A connection that said nothing for this long is asked first whether it is still there.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The connections of one store.
pub(super) struct Lines {
    connect: MySqlConnectOptions,
    idle: Mutex<Vec<Idle>>,
    free: Arc<Semaphore>,
    exhausted: AtomicU64,
    /// The newest connection takes no larger statement.
    packet_bytes_max: AtomicUsize,
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
    pub(super) fn new(connect: MySqlConnectOptions, packet_bytes_max: usize, terms: Terms) -> Self {
        Self {
            // Statements hold what was answered to somebody: they are not for a log.
            connect: connect.disable_statement_logging(),
            idle: Mutex::default(),
            free: Arc::new(Semaphore::new(terms.connections)),
            exhausted: AtomicU64::new(0),
            packet_bytes_max: AtomicUsize::new(packet_bytes_max),
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

    /// The server takes no larger statement, as far as is known.
    pub(super) fn packet_bytes_max(&self) -> usize {
        self.packet_bytes_max.load(Ordering::Relaxed)
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
        let turn = Arc::clone(&self.free).acquire_owned();
        let turn = timeout(self.terms.timeout, turn).await;
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
            held: Some((connection, turn)),
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

    async fn open(&self) -> Result<MySqlConnection, Trouble> {
        let mut connection = self.connect.connect().await?;
        let packet_bytes_max = session::begin(&mut connection, self.terms.timeout).await?;
        session::check_packet(packet_bytes_max)
            .map_err(|why| Trouble::unavailable(Then::Tell, &why))?;
        self.packet_bytes_max
            .store(packet_bytes_max, Ordering::Relaxed);
        Ok(connection)
    }
}

/// A connection in use, in its place.
pub(super) struct Line<'a> {
    lines: &'a Lines,
    /// There until it is kept, closed or given up.
    held: Option<(MySqlConnection, OwnedSemaphorePermit)>,
}

/// Waits for the end of what is given up: the server ends it, see [`session::begin`].
struct Await;

impl<T: Send + 'static> GivenUp<T> for Await {
    async fn see_off(self, asking: Asking<T>) {
        // Its connection is closed either way.
        drop(timeout(GIVEN_UP_MAX, asking).await);
    }
}

impl Line<'_> {
    /// Runs statements in one round trip.
    pub(super) async fn ask(&mut self, text: &Text) -> Result<Answered, Trouble> {
        let sql = text.clone().into_sql();
        self.see_through(|mut connection| async move {
            let answered = read_all(&mut connection, sql).await;
            (connection, answered)
        })
        .await
    }

    /// Runs one prepared statement.
    pub(super) async fn run(&mut self, write: Write) -> Result<MySqlQueryResult, Trouble> {
        self.see_through(|mut connection| async move {
            let written = write.execute(&mut connection).await;
            (connection, written)
        })
        .await
    }

    /// Gives the connection back for others.
    pub(super) fn keep(mut self) {
        if let Some((connection, _turn)) = self.held.take() {
            let silent_since = self.lines.clock.now();
            lock(&self.lines.idle).push(Idle {
                connection,
                silent_since,
            });
        }
    }

    /// Asks on the connection, which is there afterwards if it can be used again.
    async fn see_through<T, F>(
        &mut self,
        ask: impl FnOnce(MySqlConnection) -> F,
    ) -> Result<T, Trouble>
    where
        T: Send + 'static,
        F: Future<Output = (MySqlConnection, Result<T, sqlx::Error>)> + Send + 'static,
    {
        let gone = || Trouble::unavailable(Then::Reconnect, "the connection is gone");
        let (connection, turn) = self.held.take().ok_or_else(gone)?;
        let running = Running::new(turn, Await, ask(connection));
        let ended = timeout(self.lines.terms.timeout, running).await;
        let ((connection, asked), turn) = ended.map_err(|_| Trouble::late())?;
        let trouble = match asked {
            Ok(answer) => {
                self.held = Some((connection, turn));
                return Ok(answer);
            }
            Err(error) => Trouble::from(error),
        };
        if trouble.then == Then::Reconnect {
            // What broke this connection has probably broken the others too.
            lock(&self.lines.idle).clear();
        } else {
            self.held = Some((connection, turn));
        }
        Err(trouble)
    }
}

async fn read_all(
    connection: &mut MySqlConnection,
    sql: AssertSqlSafe<String>,
) -> Result<Answered, sqlx::Error> {
    let mut answered = Answered::default();
    let mut answers = sqlx::raw_sql(sql).fetch_many(connection);
    while let Some(answer) = answers.try_next().await? {
        answered.take(answer);
    }
    Ok(answered)
}

impl Answered {
    fn take(&mut self, answer: Either<MySqlQueryResult, MySqlRow>) {
        match answer {
            Either::Left(result) => self.changed.push(result.rows_affected()),
            Either::Right(row) => self.rows.push(row),
        }
    }
}

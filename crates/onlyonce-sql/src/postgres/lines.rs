//! Connections to the server. A store of its own keeps them at hand between statements, because a
//! pool asks each connection whether it is alive on its way in and out, which costs a round trip.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::operate::Connections;
use onlyonce_core::{Clock, SystemClock};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::arg::{self, Arg};
use super::options;
use super::places::{Places, moved};
use super::running::{Backend, Cancel, Ended};
use super::source::{Held, Source};
use super::statements::Statement;
use super::trouble::{Then, Trouble};
use crate::shared::{Running, lock};

/// A connection that said nothing for this long is asked first whether it is still there.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// A connection is handed back to the pool at this age, which may replace it.
const AGE_MAX: Duration = Duration::from_secs(30 * 60);

pub(super) struct Lines {
    pub(super) source: Source,
    places: Mutex<Arc<Places>>,
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

/// A connection.
pub(super) struct Line {
    /// There until it is dropped.
    connection: Option<Held>,
    /// The server's process behind it, where that is known and stays the same.
    backend: Option<Backend>,
    born: Duration,
    silent_since: Duration,
    /// Whether it is to be closed rather than used again.
    spoilt: bool,
}

/// What is sent: a statement to be prepared, or a text with its values spelled in.
enum Sent {
    Prepared(Arc<str>),
    Spelled(String),
}

impl Lines {
    pub(super) fn new(source: Source, terms: Terms) -> Self {
        let places = Places::new(source.chosen(), terms.connections);
        Self {
            source,
            places: Mutex::new(places),
            exhausted: AtomicU64::new(0),
            terms,
            clock: SystemClock::new(),
        }
    }

    /// The places of the server that takes writes now.
    fn places(&self) -> Arc<Places> {
        let mut places = lock(&self.places);
        let chosen = self.source.chosen();
        if places.chosen != chosen {
            places.free.close();
            *places = Places::new(chosen, self.terms.connections);
        }
        Arc::clone(&places)
    }

    /// How many are in use, and how often there were too few.
    pub(super) fn connections(&self) -> Connections {
        let free = self.places().free.available_permits();
        let idle = free.min(self.terms.connections);
        Connections {
            active: (self.terms.connections - idle) as u64,
            exhausted: self.exhausted.load(Ordering::Relaxed),
        }
    }

    fn count_exhausted(&self, places: &Places) {
        if places.free.available_permits() == 0 {
            self.exhausted.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn terms(&self) -> Terms {
        self.terms
    }

    /// Runs one statement by itself: one round trip, and a transaction of its own.
    pub(super) async fn ask(
        self: &Arc<Self>,
        what: &Statement,
        args: impl Into<Arc<[Arg]>>,
    ) -> Result<Vec<PgRow>, Trouble> {
        self.ask_within(self.terms.timeout, what, args).await
    }

    /// The same with another bound on its time.
    pub(super) async fn ask_within(
        self: &Arc<Self>,
        at_most: Duration,
        what: &Statement,
        args: impl Into<Arc<[Arg]>>,
    ) -> Result<Vec<PgRow>, Trouble> {
        let args = args.into();
        let mut again = what.repeatable;
        loop {
            let trouble = match self.ask_once(at_most, what, &args).await {
                Ok(rows) => return Ok(rows),
                Err(trouble) => trouble,
            };
            if trouble.then != Then::Reconnect || !again {
                return Err(trouble);
            }
            again = false;
        }
    }

    async fn ask_once(
        self: &Arc<Self>,
        at_most: Duration,
        what: &Statement,
        args: &Arc<[Arg]>,
    ) -> Result<Vec<PgRow>, Trouble> {
        let places = self.places();
        self.count_exhausted(&places);
        let turn = places.turn(at_most).await?;
        let line = self.take(&places).await?;
        let cancel = Cancel {
            lines: Arc::clone(self),
            places: Arc::clone(&places),
            backend: line.backend,
        };
        let asking = send(line, self.sent(at_most, what, args), Arc::clone(args));
        let running = Running::new(turn, cancel, asking);
        // Dropped before its end, it is cancelled.
        let (Ended { mut line, rows }, _turn) = tokio::select! {
            biased;
            ended = timeout(at_most, running) => ended.map_err(|_| Trouble::late())?,
            () = self.source.left(places.chosen) => return Err(moved()),
        };
        let trouble = match rows {
            Ok(rows) => {
                self.put_back(&places, line);
                return Ok(rows);
            }
            Err(error) => Trouble::from(error),
        };
        if trouble.then == Then::Reconnect {
            // What broke this connection has probably broken the others too.
            line.spoil();
            drop(line);
            lock(&places.idle).clear();
        } else {
            self.put_back(&places, line);
        }
        Err(trouble)
    }

    fn sent(&self, at_most: Duration, what: &Statement, args: &[Arg]) -> Sent {
        if self.terms.pooled {
            let before = options::before_each(at_most);
            return Sent::Spelled(before + &arg::inline(&what.sql, args));
        }
        if args.is_empty() {
            return Sent::Spelled(what.sql.to_string());
        }
        Sent::Prepared(Arc::clone(&what.sql))
    }

    async fn take(&self, places: &Places) -> Result<Line, Trouble> {
        loop {
            let idle = lock(&places.idle).pop();
            let Some(mut line) = idle else {
                return self.open(places).await;
            };
            if self.clock.now().saturating_sub(line.silent_since) < SILENCE_MAX {
                return Ok(line);
            }
            line.spoil();
            let there = timeout(self.terms.timeout, line.connection().ping()).await;
            if matches!(there, Ok(Ok(()))) {
                line.spoilt = false;
                return Ok(line);
            }
        }
    }

    async fn open(&self, places: &Places) -> Result<Line, Trouble> {
        let (connection, chosen) = self.source.connect().await?;
        if chosen != places.chosen {
            return Err(moved());
        }
        let mut line = Line {
            connection: Some(connection),
            backend: None,
            born: self.clock.now(),
            silent_since: self.clock.now(),
            spoilt: false,
        };
        if self.terms.keep && !self.terms.pooled {
            line.spoil();
            let backend = timeout(self.terms.timeout, Backend::of(line.connection())).await;
            line.backend = backend.map_err(|_| Trouble::late())??;
            line.spoilt = false;
        }
        Ok(line)
    }

    fn put_back(&self, places: &Places, mut line: Line) {
        let now = self.clock.now();
        line.silent_since = now;
        if self.terms.keep && now.saturating_sub(line.born) < AGE_MAX {
            lock(&places.idle).push(line);
        }
    }
}

async fn send(mut line: Line, what: Sent, args: Arc<[Arg]>) -> Ended {
    // Dropped half-way, it has a statement on it.
    line.spoilt = true;
    let rows = match what {
        Sent::Spelled(text) => {
            let query = sqlx::raw_sql(AssertSqlSafe(text));
            query.fetch_all(line.connection()).await
        }
        Sent::Prepared(sql) => {
            let query = arg::bind(sqlx::query(AssertSqlSafe(sql)), &args);
            query.fetch_all(line.connection()).await
        }
    };
    line.spoilt = false;
    Ended { line, rows }
}

impl Line {
    fn connection(&mut self) -> &mut PgConnection {
        let held = self.connection.as_mut();
        held.expect("it is there until dropped").get()
    }

    /// Has it closed rather than used again.
    pub(super) fn spoil(&mut self) {
        self.spoilt = true;
    }
}

/// A pool takes back what is whole. Without a runtime it cannot: then it is only closed.
impl Drop for Line {
    fn drop(&mut self) {
        let Some(Held::Pooled(mut connection)) = self.connection.take() else {
            return;
        };
        if Handle::try_current().is_err() {
            drop(connection.leak());
        } else if self.spoilt {
            connection.close_on_drop();
        }
    }
}

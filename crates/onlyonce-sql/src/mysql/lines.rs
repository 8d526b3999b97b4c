//! Connections to the server, kept at hand between statements. Not a pool of the driver's: that
//! asks each connection whether it is alive on its way back, which costs a round trip.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt;
use onlyonce_core::operate::Connections;
use onlyonce_core::{Clock, SystemClock};
use sqlx::mysql::{MySqlConnection, MySqlQueryResult, MySqlRow};
use sqlx::{AssertSqlSafe, Connection, Either};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::nodes::{Idle, Node, Nodes};
use super::rows::Write;
use super::text::Text;
use super::trouble::{Then, Trouble};
use crate::shared::{Asking, GIVEN_UP_MAX, GivenUp, Running, lock};

/// A connection that said nothing for this long is asked first whether it is still there.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How often the same is tried again after a deadlock, or after another node was faster. Sorted
/// batches hardly ever have a deadlock.
const REPEATS_MAX: u32 = 20;
const REPEAT_PAUSE: Duration = Duration::from_millis(2);

/// The connections of one store.
pub(super) struct Lines {
    nodes: Nodes,
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

/// What the statements of a text answered, in their order.
#[derive(Default)]
pub(super) struct Answered {
    /// How many rows each statement changed.
    pub(super) changed: Vec<u64>,
    /// What they read.
    pub(super) rows: Vec<MySqlRow>,
}

impl Lines {
    pub(super) fn new(nodes: Nodes, packet_bytes_max: usize, terms: Terms) -> Self {
        Self {
            nodes,
            exhausted: AtomicU64::new(0),
            packet_bytes_max: AtomicUsize::new(packet_bytes_max),
            terms,
            clock: SystemClock::new(),
        }
    }

    /// How many are in use, and how often there were too few.
    pub(super) fn connections(&self) -> Connections {
        let free = self.nodes.current().free.available_permits();
        let idle = free.min(self.terms.connections);
        Connections {
            active: (self.terms.connections - idle) as u64,
            exhausted: self.exhausted.load(Ordering::Relaxed),
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
    /// gone, another one is tried; if others were faster, the same again.
    pub(super) async fn ask(&self, text: &Text) -> Result<Answered, Trouble> {
        self.ask_again(text, Locks::Waits).await
    }

    /// The same for statements that wait for no lock: they read, or skip what is locked.
    pub(super) async fn read(&self, text: &Text) -> Result<Answered, Trouble> {
        self.ask_again(text, Locks::Never).await
    }

    async fn ask_again(&self, text: &Text, locks: Locks) -> Result<Answered, Trouble> {
        let (mut reconnects, mut repeats) = (0, 0);
        loop {
            let trouble = match self.ask_at(text, locks).await {
                Ok(answered) => return Ok(answered),
                Err(trouble) => trouble,
            };
            match trouble.then {
                Then::Reconnect if reconnects < self.nodes.count() => reconnects += 1,
                Then::Repeat if repeats < REPEATS_MAX => {
                    repeats += 1;
                    tokio::time::sleep(REPEAT_PAUSE * repeats).await;
                }
                Then::Reconnect
                | Then::Repeat
                | Then::Locked
                | Then::Duplicate
                | Then::Split
                | Then::Tell => return Err(trouble),
            }
        }
    }

    /// Runs statements that must not be repeated, in one round trip.
    pub(super) async fn ask_once(&self, text: &Text) -> Result<Answered, Trouble> {
        self.ask_at(text, Locks::Waits).await
    }

    async fn ask_at(&self, text: &Text, locks: Locks) -> Result<Answered, Trouble> {
        let mut line = self.line().await?;
        let trouble = match line.ask(text).await {
            Ok(answered) => {
                line.keep();
                return Ok(answered);
            }
            Err(trouble) => trouble,
        };
        match (trouble.then, locks) {
            // No row was waited for: the node did not catch up with its cluster.
            (Then::Locked, Locks::Never) => {
                self.nodes.leave(&line.node);
                let why = "a table is locked, or the node is cut off from its cluster";
                return Err(Trouble::unavailable(Then::Reconnect, why));
            }
            (Then::Locked | Then::Duplicate | Then::Repeat | Then::Split, _) => {
                if !text.is_transaction() || line.ask(&Text::of("ROLLBACK")).await.is_ok() {
                    line.keep();
                }
            }
            // Closed, which ends a transaction too.
            (Then::Reconnect | Then::Tell, _) => {}
        }
        Err(trouble)
    }

    /// A connection for statements that belong together. It is closed unless it is kept.
    pub(super) async fn line(&self) -> Result<Line<'_>, Trouble> {
        let (mut node, mut turn) = self.place().await?;
        if let Some(connection) = self.idle_line(&node).await {
            return Ok(Line::new(self, node, connection, turn));
        }
        let reached = match self.nodes.reach(&node, false).await {
            Ok(reached) => reached,
            // All of them were asked: once more would hardly help.
            Err(trouble) if self.nodes.count() > 1 => {
                return Err(trouble.with_then(Then::Tell));
            }
            Err(trouble) => return Err(trouble),
        };
        let elsewhere = || Trouble::unavailable(Then::Reconnect, "the store uses another server");
        let used = self.nodes.settle(&node, &reached).ok_or_else(elsewhere)?;
        if !Arc::ptr_eq(&used, &node) {
            node = used;
            let free = Arc::clone(&node.free).acquire_owned();
            let free = timeout(self.terms.timeout, free).await;
            turn = free
                .map_err(|_| Trouble::late())?
                .map_err(|_| Trouble::late())?;
        }
        self.packet_bytes_max
            .store(reached.packet_bytes_max, Ordering::Relaxed);
        Ok(Line::new(self, node, reached.connection, turn))
    }

    /// A place for a connection to the server in use.
    async fn place(&self) -> Result<(Arc<Node>, OwnedSemaphorePermit), Trouble> {
        let mut moves = self.nodes.moves();
        let place = async {
            loop {
                moves.mark_unchanged();
                let node = self.nodes.current();
                if node.free.available_permits() == 0 {
                    self.exhausted.fetch_add(1, Ordering::Relaxed);
                }
                let free = Arc::clone(&node.free).acquire_owned();
                tokio::select! {
                    biased;
                    turn = free => return Ok((node, turn.map_err(|_| Trouble::late())?)),
                    // Others may have found a server that answers.
                    _ = moves.changed() => {}
                }
            }
        };
        match timeout(self.terms.timeout, place).await {
            Ok(place) => place,
            Err(_) => {
                self.nodes.leave(&self.nodes.current());
                Err(Trouble::late())
            }
        }
    }

    async fn idle_line(&self, node: &Node) -> Option<MySqlConnection> {
        loop {
            let mut idle = lock(&node.idle).pop()?;
            if self.clock.now().saturating_sub(idle.silent_since) < SILENCE_MAX {
                return Some(idle.connection);
            }
            match timeout(self.terms.timeout, idle.connection.ping()).await {
                Ok(Ok(())) => return Some(idle.connection),
                Ok(Err(_)) => {}
                // The others would keep us waiting too.
                Err(_) => {
                    self.nodes.leave(node);
                    return None;
                }
            }
        }
    }
}

/// Whether statements may wait for a lock.
#[derive(Clone, Copy)]
enum Locks {
    Waits,
    Never,
}

/// A connection in use, in its place.
pub(super) struct Line<'a> {
    lines: &'a Lines,
    node: Arc<Node>,
    /// There until it is kept, closed or given up.
    held: Option<(MySqlConnection, OwnedSemaphorePermit)>,
}

/// Waits for the end of what is given up: the server ends it, see [`session::begin`](super::session::begin).
struct Await;

impl<T: Send + 'static> GivenUp<T> for Await {
    async fn see_off(self, asking: Asking<T>) {
        // Its connection is closed either way.
        drop(timeout(GIVEN_UP_MAX, asking).await);
    }
}

impl<'a> Line<'a> {
    fn new(
        lines: &'a Lines,
        node: Arc<Node>,
        connection: MySqlConnection,
        turn: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            lines,
            node,
            held: Some((connection, turn)),
        }
    }

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
            lock(&self.node.idle).push(Idle {
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
        let ((connection, asked), turn) = ended.map_err(|_| {
            self.lines.nodes.leave(&self.node);
            Trouble::late()
        })?;
        let trouble = match asked {
            Ok(answer) => {
                self.held = Some((connection, turn));
                return Ok(answer);
            }
            Err(error) => Trouble::from(error),
        };
        if trouble.then == Then::Reconnect {
            // What broke this connection has probably broken the others too.
            lock(&self.node.idle).clear();
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

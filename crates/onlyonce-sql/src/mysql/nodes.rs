//! The servers that a URL names, and the one of them that this process uses: the first that takes
//! writes, in the order of the URL, and that one until it fails.
//!
//! All nodes of a Galera cluster take writes, but what one process asks belongs on one of them. The
//! locks of a node are its own: on another node a renewal would end the transaction that has the
//! record locked. And the same rows written on two nodes are certification failures, so processes
//! with the same URL had better be on the same node.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::{Clock, SystemClock};
use sqlx::ConnectOptions;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlPool};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::lines::Terms;
use super::session::{self, Begun, Standing};
use super::trouble::{NAME, Then, Trouble};
use crate::shared::lock;

/// Beyond this, the clocks of two nodes are told to be apart: a lease counts by the clock of the node
/// that is asked.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(1);

/// The servers of one store.
pub(super) struct Nodes {
    /// At least one, in the order of the URL.
    connect: Vec<MySqlConnectOptions>,
    terms: Terms,
    nodes: Vec<Arc<Node>>,
    /// Which of them is in use.
    current: watch::Sender<usize>,
    /// By how much the clock of the node in use is ahead of ours, in milliseconds.
    ahead: Mutex<Option<i128>>,
    clock: SystemClock,
    callers: Callers,
}

/// One server. Its places are its own: statements that hang on a node that was left take none of the
/// next one's, and are not joined by others when it is used again.
pub(super) struct Node {
    /// Its place in the URL.
    at: usize,
    pub(super) idle: Mutex<Vec<Idle>>,
    pub(super) free: Arc<Semaphore>,
}

/// A connection at hand.
pub(super) struct Idle {
    pub(super) connection: MySqlConnection,
    pub(super) silent_since: Duration,
}

/// A connection to one of the servers.
pub(super) struct Reached {
    pub(super) connection: MySqlConnection,
    pub(super) packet_bytes_max: usize,
    at: usize,
    standing: Standing,
    /// The server's clock less ours.
    ahead: i128,
}

/// The pool for the callers' own transactions, which follows where the store goes.
pub(super) struct Callers {
    pool: MySqlPool,
    moves: Arc<Moves>,
}

/// When a store last went to another node.
#[derive(Default)]
pub(super) struct Moves {
    clock: SystemClock,
    /// In milliseconds of the clock; nothing happened as long as it is zero.
    last: AtomicU64,
}

impl Moves {
    fn note(&self) {
        self.last.store(self.now(), Ordering::Release);
    }

    /// Whether a connection of this age leads to the node in use.
    pub(super) fn is_since(&self, age: Duration) -> bool {
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        match self.last.load(Ordering::Acquire) {
            0 => true,
            last => self.now().saturating_sub(age) > last,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.now().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Callers {
    pub(super) fn new(pool: MySqlPool, moves: Arc<Moves>) -> Self {
        Self { pool, moves }
    }

    pub(super) fn pool(&self) -> &MySqlPool {
        &self.pool
    }

    fn follow(&self, connect: &MySqlConnectOptions) {
        self.pool.set_connect_options(connect.clone());
        self.moves.note();
    }
}

impl Node {
    fn new(at: usize, places: usize) -> Arc<Self> {
        Arc::new(Self {
            at,
            idle: Mutex::default(),
            free: Arc::new(Semaphore::new(places)),
        })
    }
}

impl Nodes {
    /// The servers of `connect`, which names at least one.
    pub(super) fn new(connect: Vec<MySqlConnectOptions>, terms: Terms, callers: Callers) -> Self {
        // Statements hold what was answered to somebody: they are not for a log.
        let silent = |it: MySqlConnectOptions| it.disable_statement_logging();
        let nodes = 0..connect.len();
        Self {
            connect: connect.into_iter().map(silent).collect(),
            terms,
            nodes: nodes.map(|at| Node::new(at, terms.connections)).collect(),
            current: watch::Sender::new(0),
            ahead: Mutex::default(),
            clock: SystemClock::new(),
            callers,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.connect.len()
    }

    /// The one in use.
    pub(super) fn current(&self) -> Arc<Node> {
        Arc::clone(&self.nodes[*self.current.borrow()])
    }

    /// Tells whenever another one is in use.
    pub(super) fn moves(&self) -> watch::Receiver<usize> {
        self.current.subscribe()
    }

    /// Connects to `node`, or to the next one that takes writes. `patient` is for what may take its
    /// time.
    pub(super) async fn reach(&self, node: &Node, patient: bool) -> Result<Reached, Trouble> {
        let count = self.count();
        let share = self.terms.timeout / u32::try_from(count).unwrap_or(u32::MAX);
        let (mut behind, mut why) = (None, None::<Trouble>);
        for step in 0..count {
            let opened = timeout(share, self.open((node.at + step) % count, patient)).await;
            match opened.unwrap_or_else(|_| Err(silent(patient))) {
                Ok(reached) => match reached.standing {
                    // Servers that know nothing of each other have other records each.
                    Standing::Alone if count > 1 => {
                        let stray =
                            "it names several servers, and this one is no node of a Galera cluster";
                        why = Some(Trouble::unavailable(Then::Tell, stray));
                    }
                    Standing::Alone | Standing::Ready => return Ok(reached),
                    // Better than none: it takes writes, later than the others.
                    Standing::Behind => behind = behind.or(Some(reached)),
                },
                // What a server says is told rather than that another one is not there.
                Err(trouble) if trouble.then == Then::Tell => why = Some(trouble),
                Err(trouble) => why = why.or(Some(trouble)),
            }
        }
        behind.ok_or_else(|| why.unwrap_or_else(Trouble::late))
    }

    async fn open(&self, at: usize, patient: bool) -> Result<Reached, Trouble> {
        let mut connection = self.connect[at].connect().await?;
        let at_most = (!patient).then_some(self.terms.timeout);
        let Begun {
            packet_bytes_max,
            standing,
            now,
        } = session::begin(&mut connection, at_most).await?;
        let standing = standing.map_err(|out| Trouble::unavailable(Then::Reconnect, out))?;
        session::check_packet(packet_bytes_max)
            .map_err(|why| Trouble::unavailable(Then::Tell, &why))?;
        Ok(Reached {
            connection,
            packet_bytes_max,
            at,
            standing,
            ahead: i128::from(now) - self.clock.now().as_millis().cast_signed(),
        })
    }

    /// Uses the node that was reached in place of `from`: the node that is in use then, or nothing
    /// if others have gone elsewhere meanwhile.
    pub(super) fn settle(&self, from: &Node, reached: &Reached) -> Option<Arc<Node>> {
        self.go(from.at, reached.at);
        let current = self.current();
        if current.at != reached.at {
            return None;
        }
        self.compare_clocks(reached);
        Some(current)
    }

    /// Gives up a node that does not answer; the next connection is one to the node after it. Where
    /// there is only one, it stays.
    pub(super) fn leave(&self, node: &Node) {
        self.go(node.at, (node.at + 1) % self.count());
    }

    /// Goes from one node to another, unless somebody was faster.
    fn go(&self, from: usize, to: usize) {
        let connect = &self.connect[to];
        let went = self.current.send_if_modified(|current| {
            let goes = *current == from && from != to;
            if goes {
                *current = to;
                self.callers.follow(connect);
            }
            goes
        });
        if !went {
            return;
        }
        lock(&self.nodes[from].idle).clear();
        tracing::warn!(
            target: "onlyonce",
            event = "idempotency.storage.moved",
            store = NAME,
            server = format!("{}:{}", connect.get_host(), connect.get_port()),
            "the store uses another server of its URL"
        );
    }

    /// Tells of a node whose clock is another one: leases that a process was granted by the clock of
    /// one node are judged by that of the next.
    fn compare_clocks(&self, reached: &Reached) {
        let before = lock(&self.ahead).replace(reached.ahead);
        let apart = before.map_or(0, |before| reached.ahead - before);
        if apart.unsigned_abs() > CLOCKS_APART_MAX.as_millis() && self.count() > 1 {
            tracing::warn!(
                target: "onlyonce",
                event = "idempotency.storage.clocks_apart",
                store = NAME,
                ahead_millis = i64::try_from(apart).unwrap_or(i64::MAX),
                "the clocks of the servers differ: leases and records end by as much sooner or later"
            );
        }
    }
}

/// A server that does not answer: who opens a store may wait for it and try again.
fn silent(patient: bool) -> Trouble {
    let late = Trouble::late();
    match patient {
        true => late.with_then(Then::Reconnect),
        false => late,
    }
}

//! Those who wait for the end of a claim, and how they hear of it: from this process at once, from
//! others by NOTIFY. What gets lost only delays: everyone also asks from time to time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onlyonce_core::Slot;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::arg::Arg;
use super::lines::Lines;
use super::source::Source;
use super::statements::Statements;
use crate::shared::{Table, Waiters};

/// How often who waits asks, while the server tells of changes.
const ASK_WHILE_TOLD: Duration = Duration::from_secs(1);
/// How often, and growing to how rarely, while it does not.
const ASK_FIRST: Duration = Duration::from_millis(10);
const ASK_UNTOLD: Duration = Duration::from_millis(250);
/// How soon a lost connection is tried again.
const RECONNECT_MIN: Duration = Duration::from_millis(100);
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// How long announcements are gathered after one was sent. The first goes at once.
const GATHER_FOR: Duration = Duration::from_millis(5);
/// How many slots one notification names: 65 bytes each, of the 8000 there may be.
const TOLD_MAX: usize = 120;
const ANNOUNCED_MAX: usize = 20 * TOLD_MAX;

/// Who waits in this process, and whether the server tells them of changes elsewhere.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) slots: Waiters,
    told: AtomicBool,
}

impl Waiting {
    /// How long to wait before asking again, after having waited `last`.
    pub(super) fn patience(&self, last: Option<Duration>) -> Duration {
        if self.told.load(Ordering::Acquire) {
            return ASK_WHILE_TOLD;
        }
        last.map_or(ASK_FIRST, |last| ASK_UNTOLD.min(last * 2))
    }
}

/// The name under which the claims' ends of this table are told.
pub(super) fn channel(table: &Table) -> String {
    format!("{table}_settled")
}

/// Announces to other processes whose claims have ended, many in one statement and never in one
/// that stores: a transaction that notifies holds up all others that do until it is on disk.
pub(super) fn announce(
    lines: Arc<Lines>,
    statements: Arc<Statements>,
    channel: String,
) -> mpsc::UnboundedSender<Slot> {
    let (announcements, mut waiting) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut slots: Vec<Slot> = Vec::new();
        while waiting.recv_many(&mut slots, ANNOUNCED_MAX).await > 0 {
            let told = slots.chunks(TOLD_MAX).map(|slots| {
                let slots: Vec<String> = slots.iter().map(Slot::to_string).collect();
                Some(slots.join(" "))
            });
            let args = [Arg::Text(Some(channel.clone())), Arg::Texts(told.collect())];
            if let Err(trouble) = lines.ask(&statements.notify, args).await {
                let error = trouble.to_error();
                tracing::debug!(%error, "claims that ended were not announced");
            }
            slots.clear();
            tokio::time::sleep(GATHER_FOR).await;
        }
    });
    announcements
}

/// Listens to what other processes announce, on a connection of its own, until dropped.
pub(super) struct Listening(JoinHandle<()>);

impl Listening {
    pub(super) fn start(source: Source, channel: String, waiting: Arc<Waiting>) -> Self {
        Self(tokio::spawn(async move {
            let mut pause = RECONNECT_MIN;
            loop {
                let chosen = source.chosen();
                let options = source.options(chosen);
                let listening = listen(&options, &channel, &waiting);
                let ended = tokio::select! {
                    ended = listening => ended,
                    // Where it listened, nothing is announced any more.
                    () = source.left(chosen) => Ok(()),
                };
                match ended {
                    // It had been connected.
                    Ok(()) => pause = RECONNECT_MIN,
                    Err(_) => pause = RECONNECT_MAX.min(pause * 2),
                }
                waiting.told.store(false, Ordering::Release);
                // What was announced meanwhile is lost: everyone asks.
                waiting.slots.wake_all();
                tokio::time::sleep(pause).await;
            }
        }))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Listens until the connection is lost.
async fn listen(
    options: &PgConnectOptions,
    channel: &str,
    waiting: &Waiting,
) -> Result<(), sqlx::Error> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .acquire_timeout(RECONNECT_MAX)
        .connect_with(options.clone().disable_statement_logging())
        .await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.listen(channel).await?;
    waiting.told.store(true, Ordering::Release);
    waiting.slots.wake_all();
    while let Ok(Some(told)) = listener.try_recv().await {
        for slot in told.payload().split(' ').filter_map(Slot::from_hex) {
            waiting.slots.wake(&slot);
        }
    }
    Ok(())
}

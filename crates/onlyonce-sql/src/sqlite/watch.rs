//! Changes made by other processes: a look, many times a second while anybody waits, whether
//! anything at all was committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};

use crate::shared::Waiters;

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Looks for commits of others while somebody waits.
pub(super) struct Lookout {
    options: SqliteConnectOptions,
    waiters: Arc<Waiters>,
    looking: AtomicBool,
}

impl Lookout {
    pub(super) fn new(options: SqliteConnectOptions, waiters: Arc<Waiters>) -> Self {
        Self {
            options,
            waiters,
            looking: AtomicBool::new(false),
        }
    }

    /// Makes sure that somebody looks. Whoever waits must have said so before.
    pub(super) fn look(self: &Arc<Self>) {
        if !self.looking.swap(true, Ordering::SeqCst) {
            tokio::spawn(Arc::clone(self).run());
        }
    }

    async fn run(self: Arc<Self>) {
        let mut connection = None;
        // What was committed before the first look is not known: the first look wakes everybody.
        let mut seen = None;
        loop {
            if self.waiters.is_empty() {
                self.looking.store(false, Ordering::SeqCst);
                // Somebody may have come just before, and seen us looking.
                if self.waiters.is_empty() || self.looking.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
            let version = self.version(&mut connection).await;
            if version.is_none() || version != seen {
                self.waiters.wake_all();
            }
            seen = version;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// A number that changes with every commit of another connection; nothing if that cannot be
    /// told.
    async fn version(&self, connection: &mut Option<SqliteConnection>) -> Option<i64> {
        if connection.is_none() {
            *connection = self.options.connect().await.ok();
        }
        let version = sqlx::query_scalar("PRAGMA data_version");
        let version = version.fetch_one(connection.as_mut()?).await.ok();
        if version.is_none() {
            *connection = None;
        }
        version
    }
}

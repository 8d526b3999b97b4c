//! Operations that survive everything: on disk with their keys before they are first sent, and
//! there until they are done or have failed for good.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::Key;
use sqlx::{Connection as _, Sqlite, SqliteConnection, Transaction};
use tokio::sync::watch;

use self::attempted::Observer;
use self::folder::{Access, Folder};
use self::intake::Intake;
use crate::cause::Cause;
use crate::keys::Keys;
use crate::operation::Operation;
use crate::retry::Retry;
use crate::sender::Sender;

mod attempted;
mod deliver;
mod elsewhere;
mod enqueue;
mod entries;
mod error;
mod folder;
mod group;
mod intake;
mod manage;
mod outcome;
mod rows;
mod settle;

pub use self::attempted::{AttemptOutcome, Attempted};
pub use self::entries::{Entries, Entry, State};
pub use self::error::QueueError;
pub use self::group::{Group, GroupId, GroupStatus};

/// A durable queue of operations, in a folder of its own. Clones are the same queue.
///
/// [`enqueue`](Self::enqueue) returns once the operation and its key are on disk. Something must
/// [`run`](Self::run) it, or [`drain`](Self::drain) it now and then; both may be dropped at any
/// point, as the process may be killed at any point: the operation is sent again, under the same
/// key, and the service does the rest.
#[derive(Clone)]
pub struct Queue {
    shared: Arc<Shared>,
}

struct Shared {
    sender: Sender,
    options: QueueOptions,
    backoff: Retry,
    keys: Keys,
    database: tokio::sync::Mutex<SqliteConnection>,
    /// Operations that are being sent. It changes only with the database locked, but for the end
    /// of an attempt.
    in_flight: Mutex<BTreeSet<OperationId>>,
    /// Moves with every change to what waits or is in flight.
    changed: watch::Sender<()>,
    /// Held by the one that sends.
    delivering: tokio::sync::Mutex<()>,
    /// What is to be queued, and waits for the database.
    intake: Intake,
    /// Gets to know what came of each attempt.
    observer: Observer,
    folder: Folder,
}

/// How a queue behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Operations sent at the same time. Those of one group never are. What is sent at the same time
    /// also shares the waits for the disk, before and after.
    pub parallel: usize,
    /// Operations that are not done, failed ones included.
    pub operations_max: u64,
    /// Their bytes.
    pub bytes_max: u64,
    /// How long the success log remembers what is done.
    pub log_for: Duration,
    /// How long a service remembers a key, at least. An operation that may have run that long ago,
    /// less the time of an attempt, is not sent again: it fails as [`Cause::Expired`].
    pub key_life: Duration,
    /// How often the service may fail on its own account before the operation fails for good. Being
    /// offline, overload and lost answers do not count: the key's life bounds those.
    pub failures_max: u32,
    /// The first pause between two attempts is at most this long.
    pub backoff_min: Duration,
    /// No pause is longer, but by the service's own wish. Longer than a sender's own: a day
    /// without a network should not cost a battery.
    pub backoff_max: Duration,
}

impl Default for QueueOptions {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            parallel: 4,
            operations_max: 10_000,
            bytes_max: 256 * 1024 * 1024,
            log_for: DAY,
            key_life: DAY,
            failures_max: 10,
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(5 * 60),
        }
    }
}

/// Names an operation of a queue. It is not the operation's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(i64);

impl OperationId {
    /// The operation of this number: see [`number`](Self::number).
    pub const fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// Its number in its queue, which stays the same and is never another operation's.
    pub const fn number(self) -> i64 {
        self.0
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What became of a wish to enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The operation: the new one, or the one that was known.
    pub id: OperationId,
    /// Whether it was not known before.
    pub is_new: bool,
}

/// An operation after it was edited.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Edited {
    /// Its new key.
    pub key: Key,
    /// Whether the operation as it was before may have taken effect, so that both will have.
    pub may_have_run: bool,
}

/// How far an operation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// It will be sent, or sent again.
    Waiting {
        /// How often it was sent.
        attempts: u32,
        /// Why it is not done yet.
        cause: Option<Cause>,
    },
    /// A compensation that is not needed so far.
    Spare,
    /// It is done.
    Done {
        /// The status of the service's answer; nothing if we were only told that it is done.
        status: Option<u16>,
        /// The answer's body, unless it was larger than 64 KiB.
        answer: Option<Bytes>,
    },
    /// It failed for good.
    Failed {
        /// Why.
        cause: Cause,
        /// What the service said.
        detail: String,
        /// How often it was sent.
        attempts: u32,
    },
}

/// An operation that failed for good, with its key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedOperation {
    /// Its name in the queue.
    pub id: OperationId,
    /// Its key.
    pub key: Key,
    /// The operation.
    pub operation: Operation,
    /// The group that it is part of.
    pub group: Option<GroupId>,
    /// Why it failed.
    pub cause: Cause,
    /// What the service said.
    pub detail: String,
    /// How often it was sent.
    pub attempts: u32,
}

/// How many operations there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Still to be done.
    pub waiting: u64,
    /// Compensations that are not needed so far.
    pub spare: u64,
    /// Failed for good.
    pub failed: u64,
    /// In the success log.
    pub done: u64,
}

impl Queue {
    /// Opens the queue in `folder`, which is made if it is not there. One queue at a time owns a
    /// folder.
    pub async fn open(folder: impl AsRef<Path>, sender: Sender) -> Result<Self, QueueError> {
        Self::open_with(folder, sender, QueueOptions::default()).await
    }

    /// The same with other options.
    pub async fn open_with(
        folder: impl AsRef<Path>,
        sender: Sender,
        options: QueueOptions,
    ) -> Result<Self, QueueError> {
        let folder = Folder::open(folder.as_ref(), Access::Alone).await?;
        let mut database = folder.connect().await?;
        // Pauses counted on the clock of a process that is gone.
        sqlx::query("UPDATE operations SET due_at = 0 WHERE state = 'waiting' AND due_at <> 0")
            .execute(&mut database)
            .await?;
        Ok(Self::on(folder, database, sender, options))
    }

    /// Opens a queue that several processes share: each can put operations in, look at them and change
    /// them, and one at a time can send ([`run`](Self::run), [`drain`](Self::drain) and
    /// [`send_due`](Self::send_due) of the others fail with [`QueueError::Sending`]). A process that dies
    /// gives up its rights with its life.
    ///
    /// Pauses between attempts outlast the process that began them, so they go by the machine's date.
    /// An operation that is edited or discarded while another process is sending it is not waited for:
    /// `may_have_run` says so.
    pub async fn open_shared(
        folder: impl AsRef<Path>,
        sender: Sender,
        options: QueueOptions,
    ) -> Result<Self, QueueError> {
        let folder = Folder::open(folder.as_ref(), Access::Shared).await?;
        let database = folder.connect().await?;
        Ok(Self::on(folder, database, sender, options))
    }

    fn on(
        folder: Folder,
        database: SqliteConnection,
        sender: Sender,
        options: QueueOptions,
    ) -> Self {
        let keys = Keys::new(
            Arc::clone(sender.own_clock()),
            Arc::clone(sender.own_entropy()),
        );
        let backoff = Retry {
            backoff_min: options.backoff_min,
            backoff_max: options.backoff_max,
            ..sender.own_retry().clone()
        };
        Self {
            shared: Arc::new(Shared {
                sender,
                options,
                backoff,
                keys,
                database: tokio::sync::Mutex::new(database),
                in_flight: Mutex::default(),
                changed: watch::Sender::new(()),
                delivering: tokio::sync::Mutex::default(),
                intake: Intake::default(),
                observer: Observer::default(),
                folder,
            }),
        }
    }

    /// Tells `observer` what came of each attempt, once that is on disk.
    pub fn observe(&self, observer: impl Fn(&Attempted) + Send + Sync + 'static) {
        self.shared.observer.set(observer);
    }

    /// The database, once this operation is not being sent: nor will it be, as long as the
    /// database is locked.
    async fn lock_landed(&self, id: OperationId) -> tokio::sync::MutexGuard<'_, SqliteConnection> {
        let mut changes = self.shared.changed.subscribe();
        loop {
            changes.borrow_and_update();
            let database = self.shared.database.lock().await;
            if !self.shared.in_flight().contains(&id) {
                return database;
            }
            drop(database);
            // The sender lives as long as this queue does.
            let _ = changes.changed().await;
        }
    }

    /// Commits. What was written is on disk, in the file that the next process will open.
    async fn commit(&self, transaction: Transaction<'_, Sqlite>) -> Result<(), QueueError> {
        transaction.commit().await?;
        self.shared.folder.check()
    }

    /// The time, for what ends with this process, or with the last of those that share the folder.
    fn now(&self) -> i64 {
        if self.shared.folder.is_shared() {
            return self.wall();
        }
        millis(self.shared.sender.own_clock().now())
    }

    /// The date, for what must outlast this process.
    fn wall(&self) -> i64 {
        let now = self.shared.sender.own_clock().wall().as_millis();
        i64::try_from(now).unwrap_or(i64::MAX)
    }

    /// What was done after this is in the success log.
    fn log_start(&self) -> i64 {
        self.wall() - millis(self.shared.options.log_for)
    }
}

impl Shared {
    fn in_flight(&self) -> MutexGuard<'_, BTreeSet<OperationId>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins a transaction that writes.
async fn begin<'c>(
    folder: &Folder,
    connection: &'c mut SqliteConnection,
) -> Result<Transaction<'c, Sqlite>, QueueError> {
    folder.check()?;
    Ok(connection.begin_with("BEGIN IMMEDIATE").await?)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

//! Operations that survive everything: on disk with their keys before they are first sent, and
//! there until they are done or have failed for good.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::{Key, KeyRule};
use sqlx::{Connection as _, Sqlite, SqliteConnection, Transaction};
use tokio::sync::watch;

use self::folder::Folder;
use self::rows::{New, Place};
use crate::cause::Cause;
use crate::keys::Keys;
use crate::operation::Operation;
use crate::retry::Retry;
use crate::sender::Sender;

mod deliver;
mod error;
mod folder;
mod group;
mod outcome;
mod rows;

pub use self::error::QueueError;
pub use self::group::{Group, GroupId, GroupStatus};

/// How many failed operations are listed at once.
const FAILED_LISTED_MAX: u32 = 1000;

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
    _folder: Folder,
}

/// How a queue behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Operations sent at the same time. Those of one group never are.
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
        let folder = Folder::open(folder.as_ref()).await?;
        let mut database = folder.connect().await?;
        // Pauses counted on the clock of a process that is gone.
        sqlx::query("UPDATE operations SET due_at = 0 WHERE due_at <> 0")
            .execute(&mut database)
            .await?;
        let keys = Keys::new(
            Arc::clone(sender.own_clock()),
            Arc::clone(sender.own_entropy()),
        );
        let backoff = Retry {
            backoff_min: options.backoff_min,
            backoff_max: options.backoff_max,
            ..sender.own_retry().clone()
        };
        Ok(Self {
            shared: Arc::new(Shared {
                sender,
                options,
                backoff,
                keys,
                database: tokio::sync::Mutex::new(database),
                in_flight: Mutex::default(),
                changed: watch::Sender::new(()),
                delivering: tokio::sync::Mutex::default(),
                _folder: folder,
            }),
        })
    }

    /// Queues an operation under a new random key. It is on disk when this returns.
    pub async fn enqueue(&self, operation: Operation) -> Result<OperationId, QueueError> {
        let key = self.shared.keys.v4();
        Ok(self.add(&key, &operation, Known::ByKey).await?.id)
    }

    /// Queues an operation under a key that names the work, such as a [`job_key`](crate::job_key).
    /// The same operation under the same key is queued once, also after it was done, as long as
    /// the success log goes back.
    pub async fn enqueue_as(
        &self,
        key: &Key,
        operation: Operation,
    ) -> Result<Enqueued, QueueError> {
        self.add(key, &operation, Known::ByKey).await
    }

    /// Queues an operation unless one that means the same is known: waiting, failed, or done as
    /// long as the success log goes back. Field order and white space of JSON do not count.
    pub async fn enqueue_unless_known(&self, operation: Operation) -> Result<Enqueued, QueueError> {
        let key = self.shared.keys.v4();
        self.add(&key, &operation, Known::ByContent).await
    }

    /// Queues a group. All of it is on disk when this returns, or nothing.
    pub async fn enqueue_group(&self, group: Group) -> Result<GroupId, QueueError> {
        if group.steps.is_empty() {
            return Err(QueueError::EmptyGroup);
        }
        let mut database = self.shared.database.lock().await;
        let mut transaction = begin(&mut database).await?;
        outcome::sweep(&mut transaction, self.log_start()).await?;
        if let Some((id, content)) = rows::group_by_name(&mut transaction, &group).await? {
            return if content == group.content().to_bytes() {
                Ok(id)
            } else {
                Err(QueueError::KeyInUse)
            };
        }
        self.make_room(&mut transaction, group.parts()).await?;
        let id = rows::insert_group(&mut transaction, &group).await?;
        let steps = i64::try_from(group.steps.len()).unwrap_or(i64::MAX);
        for (step, (operation, undo)) in (0..).zip(&group.steps) {
            let place = Place {
                group: id.0,
                rank: step,
                is_undo: false,
            };
            self.add_part(&mut transaction, operation, place).await?;
            if let Some(undo) = undo {
                let place = Place {
                    rank: group::undo_rank(steps, step),
                    is_undo: true,
                    ..place
                };
                self.add_part(&mut transaction, undo, place).await?;
            }
        }
        transaction.commit().await?;
        drop(database);
        self.shared.changed.send_replace(());
        Ok(id)
    }

    /// Puts another operation in the place of one that is not done, or that failed. It has a new
    /// key and starts anew; if the old one is being sent, this waits for the end of that attempt.
    pub async fn edit(&self, id: OperationId, operation: Operation) -> Result<Edited, QueueError> {
        let mut database = self.lock_landed(id).await;
        let mut transaction = begin(&mut database).await?;
        let found = rows::find(&mut transaction, id).await?;
        let (_, row) = found.ok_or(QueueError::NotThere)?;
        if row.group.is_some() {
            return Err(QueueError::InGroup);
        }
        let key = self.shared.keys.v4();
        rows::replace(&mut transaction, id, &key, &operation).await?;
        transaction.commit().await?;
        drop(database);
        self.shared.changed.send_replace(());
        let may_have_run = row.sent_at.is_some();
        Ok(Edited { key, may_have_run })
    }

    /// Sends an operation that failed again, under the same key: after its cause was removed, or
    /// its outcome resolved.
    pub async fn retry(&self, id: OperationId) -> Result<(), QueueError> {
        let mut database = self.shared.database.lock().await;
        let found = rows::find(&mut database, id).await?;
        let (state, row) = found.ok_or(QueueError::NotThere)?;
        if row.group.is_some_and(|place| !place.is_undo) {
            return Err(QueueError::InGroup);
        }
        if state == "failed" {
            sqlx::query(
                "UPDATE operations SET state = 'waiting', failures = 0, due_at = 0, \
                 ended_at = NULL WHERE id = ?",
            )
            .bind(id.0)
            .execute(&mut *database)
            .await?;
        }
        drop(database);
        self.shared.changed.send_replace(());
        Ok(())
    }

    /// Forgets an operation that is not done. If it is being sent, this waits for the end of that
    /// attempt. A step of a group can be discarded only after it has failed.
    pub async fn discard(&self, id: OperationId) -> Result<(), QueueError> {
        let mut database = self.lock_landed(id).await;
        let mut transaction = begin(&mut database).await?;
        let found = sqlx::query_as(
            "SELECT state, group_id FROM operations WHERE id = ? AND state <> 'done'",
        );
        let found = found.bind(id.0).fetch_optional(&mut *transaction).await?;
        let (state, group): (String, Option<i64>) = found.ok_or(QueueError::NotThere)?;
        if group.is_some() && state != "failed" {
            return Err(QueueError::InGroup);
        }
        sqlx::query("DELETE FROM operations WHERE id = ?")
            .bind(id.0)
            .execute(&mut *transaction)
            .await?;
        if let Some(group) = group {
            outcome::advance(&mut transaction, group, self.wall()).await?;
        }
        transaction.commit().await?;
        drop(database);
        self.shared.changed.send_replace(());
        Ok(())
    }

    /// How far an operation is; nothing if it was never there, was discarded, or was done longer
    /// ago than the success log goes back.
    pub async fn status(&self, id: OperationId) -> Result<Option<Status>, QueueError> {
        rows::status(&mut *self.shared.database.lock().await, id).await
    }

    /// Waits until an operation is done or has failed for good.
    pub async fn settled(&self, id: OperationId) -> Result<Status, QueueError> {
        let mut changes = self.shared.changed.subscribe();
        loop {
            changes.borrow_and_update();
            match self.status(id).await?.ok_or(QueueError::NotThere)? {
                Status::Waiting { .. } | Status::Spare => {}
                settled @ (Status::Done { .. } | Status::Failed { .. }) => return Ok(settled),
            }
            // The sender lives as long as this queue does.
            let _ = changes.changed().await;
        }
    }

    /// The operations that failed for good, the oldest first; at most a thousand.
    pub async fn failed(&self) -> Result<Vec<FailedOperation>, QueueError> {
        let rows = rows::failed(&mut *self.shared.database.lock().await, FAILED_LISTED_MAX).await?;
        Ok(rows
            .into_iter()
            .map(|row| FailedOperation {
                id: row.id,
                key: row.key,
                operation: row.operation,
                group: row.group.map(|place| GroupId(place.group)),
                cause: row.cause.unwrap_or(Cause::Rejected),
                detail: row.detail,
                attempts: row.attempts,
            })
            .collect())
    }

    /// How far a group is; nothing if it was never there or ended longer ago than the success log
    /// goes back.
    pub async fn group(&self, id: GroupId) -> Result<Option<GroupStatus>, QueueError> {
        let mut database = self.shared.database.lock().await;
        let found = sqlx::query_as(
            "SELECT state, EXISTS (SELECT 1 FROM operations WHERE group_id = groups.id AND \
             state = 'failed' AND is_undo = 1) FROM groups WHERE id = ?",
        );
        let found: Option<(String, bool)> = found.bind(id.0).fetch_optional(&mut *database).await?;
        Ok(found.map(|(state, is_stuck)| match state.as_str() {
            "done" => GroupStatus::Done,
            "undone" => GroupStatus::Undone,
            "undoing" if is_stuck => GroupStatus::Stuck,
            "undoing" => GroupStatus::Undoing,
            _ => GroupStatus::Running,
        }))
    }

    /// How many operations there are.
    pub async fn stats(&self) -> Result<Stats, QueueError> {
        let mut database = self.shared.database.lock().await;
        let counts: Vec<(String, i64)> =
            sqlx::query_as("SELECT state, COUNT(*) FROM operations GROUP BY state")
                .fetch_all(&mut *database)
                .await?;
        let count = |state: &str| {
            let found = counts.iter().find(|(name, _)| name == state);
            found.map_or(0, |(_, count)| count.unsigned_abs())
        };
        Ok(Stats {
            waiting: count("waiting"),
            spare: count("spare"),
            failed: count("failed"),
            done: count("done"),
        })
    }

    /// Whether the operation of this key is known to be done.
    pub async fn has_succeeded(&self, key: &Key) -> Result<bool, QueueError> {
        let since = self.log_start();
        let mut database = self.shared.database.lock().await;
        let found = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM operations WHERE key = ? AND state = 'done' AND ended_at > ?)",
        );
        let found = found.bind(key.expose()).bind(since);
        Ok(found.fetch_one(&mut *database).await?)
    }

    /// Notes that the operation of this key is done, as the application knows from elsewhere. If it
    /// is queued, it is not sent any more.
    pub async fn mark_success(&self, key: &Key) -> Result<(), QueueError> {
        let now = self.wall();
        let mut database = self.shared.database.lock().await;
        let mut transaction = begin(&mut database).await?;
        match rows::by_key(&mut transaction, key).await? {
            Some((id, _, _)) => outcome::done(&mut transaction, id, None, now).await?,
            None => outcome::note(&mut transaction, key, now).await?,
        }
        transaction.commit().await?;
        drop(database);
        self.shared.changed.send_replace(());
        Ok(())
    }

    async fn add(
        &self,
        key: &Key,
        operation: &Operation,
        known: Known,
    ) -> Result<Enqueued, QueueError> {
        // Kept as it will be read back.
        Key::new(key.expose(), &KeyRule::any()).map_err(|_| QueueError::KeyInUse)?;
        let mut database = self.shared.database.lock().await;
        let mut transaction = begin(&mut database).await?;
        outcome::sweep(&mut transaction, self.log_start()).await?;
        if let Some((id, _, content)) = rows::by_key(&mut transaction, key).await? {
            let is_told = content.is_empty();
            if !is_told && content != operation.content().to_bytes() {
                return Err(QueueError::KeyInUse);
            }
            return Ok(Enqueued { id, is_new: false });
        }
        if known == Known::ByContent
            && let Some(id) = rows::by_content(&mut transaction, operation).await?
        {
            return Ok(Enqueued { id, is_new: false });
        }
        self.make_room(&mut transaction, [operation]).await?;
        let new = New {
            key,
            operation,
            place: None,
            now: self.wall(),
        };
        let id = rows::insert(&mut transaction, new).await?;
        transaction.commit().await?;
        drop(database);
        self.shared.changed.send_replace(());
        Ok(Enqueued { id, is_new: true })
    }

    async fn add_part(
        &self,
        transaction: &mut SqliteConnection,
        operation: &Operation,
        place: Place,
    ) -> Result<(), QueueError> {
        let new = New {
            key: &self.shared.keys.v4(),
            operation,
            place: Some(place),
            now: self.wall(),
        };
        rows::insert(transaction, new).await.map(drop)
    }

    /// Refuses what would be too much.
    async fn make_room(
        &self,
        transaction: &mut SqliteConnection,
        operations: impl IntoIterator<Item = &Operation>,
    ) -> Result<(), QueueError> {
        let (count, bytes) = rows::held(transaction).await?;
        let (mut held, mut held_bytes) = (count.unsigned_abs(), bytes.unsigned_abs());
        for operation in operations {
            held += 1;
            held_bytes += rows::size(operation).unsigned_abs();
        }
        let options = &self.shared.options;
        let full = |held, max, unit| Err(QueueError::Full { held, max, unit });
        if held > options.operations_max {
            return full(count.unsigned_abs(), options.operations_max, "operations");
        }
        if held_bytes > options.bytes_max {
            return full(bytes.unsigned_abs(), options.bytes_max, "bytes");
        }
        Ok(())
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

/// By what an operation is recognised when it is queued.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    ByKey,
    ByContent,
}

impl Shared {
    fn in_flight(&self) -> MutexGuard<'_, BTreeSet<OperationId>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins a transaction that writes.
async fn begin(connection: &mut SqliteConnection) -> Result<Transaction<'_, Sqlite>, QueueError> {
    Ok(connection.begin_with("BEGIN IMMEDIATE").await?)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

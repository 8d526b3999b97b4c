//! Putting operations in: alone, by a key that names the work, by their content, or as a group.
//! What is put in is on disk when the caller hears of it.

use onlyonce_core::{Key, KeyRule};
use sqlx::SqliteConnection;

use super::error::QueueError;
use super::group::{self, Group, GroupId};
use super::rows::{self, New, Place};
use super::{Enqueued, OperationId, Queue, begin, outcome};
use crate::operation::Operation;

/// By what an operation is recognised when it is queued.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    ByKey,
    ByContent,
}

impl Queue {
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
}

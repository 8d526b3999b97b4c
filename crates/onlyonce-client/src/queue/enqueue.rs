//! Putting operations in: alone, many at once, by a key that names the work, by their content, or as
//! a group. An operation is on disk when the call returns.

use onlyonce_core::{Key, KeyRule};
use sqlx::SqliteConnection;

use super::error::QueueError;
use super::group::{self, Group, GroupId};
use super::intake::{Given, Wanted};
use super::rows::{self, New, Place};
use super::{Enqueued, OperationId, Queue, QueueOptions};
use crate::keys::key_header;
use crate::operation::Operation;

impl Queue {
    /// Queues an operation under a new random key. It is on disk when this returns. Operations that
    /// are queued at the same time share the wait for the disk.
    pub async fn enqueue(&self, operation: Operation) -> Result<OperationId, QueueError> {
        let wanted = Wanted::new(&self.shared.keys, operation);
        let ids = self.put_in(wanted).await?.all();
        Ok(ids[0])
    }

    /// Queues operations, each under a new random key, and gives their names in the same order. All
    /// of them are on disk when this returns, or none.
    pub async fn enqueue_all(
        &self,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Result<Vec<OperationId>, QueueError> {
        let keyed = operations.into_iter();
        let keyed = keyed.map(|operation| (self.shared.keys.v4(), operation));
        Ok(self.put_in(Wanted::All(keyed.collect())).await?.all())
    }

    /// Queues an operation under a key that names the work, such as a [`job_key`](crate::job_key).
    /// The same operation under the same key is queued once, also after it was done, as long as
    /// the success log goes back.
    pub async fn enqueue_as(
        &self,
        key: &Key,
        operation: Operation,
    ) -> Result<Enqueued, QueueError> {
        let given = self.put_in(Wanted::Named(key.clone(), operation)).await?;
        Ok(given.one())
    }

    /// Queues an operation unless one that means the same is known: waiting, failed, or done as
    /// long as the success log goes back. Field order and white space of JSON do not count.
    pub async fn enqueue_unless_known(&self, operation: Operation) -> Result<Enqueued, QueueError> {
        let key = self.shared.keys.v4();
        let given = self.put_in(Wanted::UnlessKnown(key, operation)).await?;
        Ok(given.one())
    }

    /// Queues a group. All of it is on disk when this returns, or nothing.
    pub async fn enqueue_group(&self, group: Group) -> Result<GroupId, QueueError> {
        if group.steps.is_empty() {
            return Err(QueueError::EmptyGroup);
        }
        Ok(self.put_in(Wanted::Group(group)).await?.group())
    }

    /// Writes what is wanted, if there is room and nothing against it. What is wrong with the wish is
    /// found before anything is written. Operations that need no look at others are put off: they are
    /// written together, by [`write_plain`](Self::write_plain).
    pub(super) async fn write<'w>(
        &self,
        transaction: &mut SqliteConnection,
        room: &mut Room,
        wanted: &'w Wanted,
    ) -> Result<Written<'w>, QueueError> {
        Ok(Written::Given(match wanted {
            Wanted::Named(key, operation) => {
                let known = known_by_key(transaction, key, operation).await?;
                let one = self.write_one(transaction, room, (key, operation), known);
                Given::One(one.await?)
            }
            Wanted::UnlessKnown(key, operation) => {
                let known = rows::by_content(transaction, operation).await?;
                let one = self.write_one(transaction, room, (key, operation), known);
                Given::One(one.await?)
            }
            Wanted::All(operations) => {
                room.take(operations.iter().map(|(_, operation)| operation))?;
                return Ok(Written::Later(operations));
            }
            Wanted::Group(group) => Given::Group(self.write_group(transaction, room, group).await?),
        }))
    }

    /// Writes what was put off, and completes the answers.
    pub(super) async fn write_plain(
        &self,
        transaction: &mut SqliteConnection,
        written: Vec<Result<Written<'_>, QueueError>>,
    ) -> Result<Vec<Result<Given, QueueError>>, QueueError> {
        let plain = written.iter().flat_map(|written| match written {
            Ok(Written::Later(operations)) => *operations,
            Ok(Written::Given(_)) | Err(_) => &[],
        });
        let plain: Vec<_> = plain
            .map(|(key, operation)| self.row(key, operation, None))
            .collect();
        let mut ids = rows::insert_all(transaction, &plain).await?.into_iter();
        let given = written.into_iter().map(|written| {
            Ok(match written? {
                Written::Given(given) => given,
                Written::Later(operations) => {
                    Given::All(ids.by_ref().take(operations.len()).collect())
                }
            })
        });
        Ok(given.collect())
    }

    async fn write_one(
        &self,
        transaction: &mut SqliteConnection,
        room: &mut Room,
        (key, operation): (&Key, &Operation),
        known: Option<OperationId>,
    ) -> Result<Enqueued, QueueError> {
        if let Some(id) = known {
            return Ok(Enqueued { id, is_new: false });
        }
        room.take([operation])?;
        let id = self.insert(transaction, key, operation, None).await?;
        Ok(Enqueued { id, is_new: true })
    }

    async fn write_group(
        &self,
        transaction: &mut SqliteConnection,
        room: &mut Room,
        group: &Group,
    ) -> Result<GroupId, QueueError> {
        if let Some((id, content)) = rows::group_by_name(transaction, group).await? {
            return if content == group.content().to_bytes() {
                Ok(id)
            } else {
                Err(QueueError::KeyInUse)
            };
        }
        room.take(group.parts())?;
        let id = rows::insert_group(transaction, group).await?;
        let steps = i64::try_from(group.steps.len()).unwrap_or(i64::MAX);
        for (step, (operation, undo)) in (0..).zip(&group.steps) {
            let place = Place {
                group: id.0,
                rank: step,
                is_undo: false,
            };
            let key = self.shared.keys.v4();
            self.insert(transaction, &key, operation, Some(place))
                .await?;
            if let Some(undo) = undo {
                let place = Place {
                    rank: group::undo_rank(steps, step),
                    is_undo: true,
                    ..place
                };
                let key = self.shared.keys.v4();
                self.insert(transaction, &key, undo, Some(place)).await?;
            }
        }
        Ok(id)
    }

    async fn insert(
        &self,
        transaction: &mut SqliteConnection,
        key: &Key,
        operation: &Operation,
        place: Option<Place>,
    ) -> Result<OperationId, QueueError> {
        rows::insert(transaction, self.row(key, operation, place)).await
    }

    fn row<'a>(&self, key: &'a Key, operation: &'a Operation, place: Option<Place>) -> New<'a> {
        New {
            key,
            operation,
            place,
            created_at: self.wall(),
            // The date of one process may be ahead of another's.
            due_at: if self.shared.folder.is_shared() {
                0
            } else {
                self.now()
            },
        }
    }
}

/// What became of a wish so far.
pub(super) enum Written<'w> {
    Given(Given),
    /// There is room for these, and nothing against them.
    Later(&'w [(Key, Operation)]),
}

/// The operation of this key, if it means the same.
async fn known_by_key(
    transaction: &mut SqliteConnection,
    key: &Key,
    operation: &Operation,
) -> Result<Option<OperationId>, QueueError> {
    // Kept as it will be read back.
    Key::new(key.expose(), &KeyRule::any()).map_err(|_| QueueError::KeyInUse)?;
    key_header(key)?;
    let Some((id, _, content)) = rows::by_key(transaction, key).await? else {
        return Ok(None);
    };
    let is_told = content.is_empty();
    if !is_told && content != operation.content().to_bytes() {
        return Err(QueueError::KeyInUse);
    }
    Ok(Some(id))
}

/// What is given is what was wanted: see [`Queue::write`].
impl Given {
    fn one(self) -> Enqueued {
        match self {
            Self::One(one) => one,
            Self::All(_) | Self::Group(_) => unreachable!("one operation was wanted"),
        }
    }

    fn all(self) -> Vec<OperationId> {
        match self {
            Self::All(ids) => ids,
            Self::One(_) | Self::Group(_) => unreachable!("all of several operations were wanted"),
        }
    }

    fn group(self) -> GroupId {
        match self {
            Self::Group(id) => id,
            Self::One(_) | Self::All(_) => unreachable!("a group was wanted"),
        }
    }
}

/// How much more the queue takes.
pub(super) struct Room {
    held: u64,
    held_bytes: u64,
    operations_max: u64,
    bytes_max: u64,
}

impl Room {
    pub(super) async fn left(
        transaction: &mut SqliteConnection,
        options: &QueueOptions,
    ) -> Result<Self, QueueError> {
        let (held, held_bytes) = rows::held(transaction).await?;
        Ok(Self {
            held: held.unsigned_abs(),
            held_bytes: held_bytes.unsigned_abs(),
            operations_max: options.operations_max,
            bytes_max: options.bytes_max,
        })
    }

    /// Takes room for these; refuses what would be too much.
    fn take<'a>(
        &mut self,
        operations: impl IntoIterator<Item = &'a Operation>,
    ) -> Result<(), QueueError> {
        let (mut held, mut held_bytes) = (self.held, self.held_bytes);
        for operation in operations {
            held += 1;
            held_bytes += rows::size(operation).unsigned_abs();
        }
        let full = |held, max, unit| Err(QueueError::Full { held, max, unit });
        if held > self.operations_max {
            return full(self.held, self.operations_max, "operations");
        }
        if held_bytes > self.bytes_max {
            return full(self.held_bytes, self.bytes_max, "bytes");
        }
        (self.held, self.held_bytes) = (held, held_bytes);
        Ok(())
    }
}

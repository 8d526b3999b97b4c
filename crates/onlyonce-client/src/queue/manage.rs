//! What an application may ask about its operations, and change about those that are not done.

use onlyonce_core::Key;

use super::error::QueueError;
use super::group::{GroupId, GroupStatus};
use super::{Edited, FailedOperation, OperationId, Queue, Stats, Status, begin, outcome, rows};
use crate::cause::Cause;
use crate::operation::Operation;

/// How many failed operations are listed at once.
const FAILED_LISTED_MAX: u32 = 1000;

impl Queue {
    /// Puts another operation in the place of one that is not done, or that failed. It has a new
    /// key and starts anew; if the old one is being sent, this waits for the end of that attempt.
    pub async fn edit(&self, id: OperationId, operation: Operation) -> Result<Edited, QueueError> {
        let mut database = self.lock_landed(id).await;
        let mut transaction = begin(&self.shared.folder, &mut database).await?;
        let found = rows::find(&mut transaction, id).await?;
        let (_, row) = found.ok_or(QueueError::NotThere)?;
        if row.group.is_some() {
            return Err(QueueError::InGroup);
        }
        let key = self.shared.keys.v4();
        rows::replace(&mut transaction, id, &key, &operation).await?;
        self.commit(transaction).await?;
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
                 ended_at = NULL WHERE id = ? AND state = 'failed'",
            )
            .bind(id.0)
            .execute(&mut *database)
            .await?;
        }
        self.shared.folder.check()?;
        drop(database);
        self.shared.changed.send_replace(());
        Ok(())
    }

    /// Forgets an operation that is not done; returns whether it may have taken effect. If it is being
    /// sent, this waits for the end of that attempt. A step of a group can be discarded only after it has
    /// failed.
    pub async fn discard(&self, id: OperationId) -> Result<bool, QueueError> {
        let mut database = self.lock_landed(id).await;
        let mut transaction = begin(&self.shared.folder, &mut database).await?;
        let found = sqlx::query_as(
            "SELECT state, group_id, sent_at IS NOT NULL FROM operations WHERE id = ? AND \
             state <> 'done'",
        );
        let found = found.bind(id.0).fetch_optional(&mut *transaction).await?;
        let (state, group, may_have_run): (String, Option<i64>, bool) =
            found.ok_or(QueueError::NotThere)?;
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
        self.commit(transaction).await?;
        drop(database);
        self.shared.changed.send_replace(());
        Ok(may_have_run)
    }

    /// How far an operation is; nothing if it was never there, was discarded, or was done longer
    /// ago than the success log goes back.
    pub async fn status(&self, id: OperationId) -> Result<Option<Status>, QueueError> {
        rows::status(&mut *self.shared.database.lock().await, id).await
    }

    /// Waits until an operation is done or has failed for good.
    pub async fn settled(&self, id: OperationId) -> Result<Status, QueueError> {
        let mut changes = self.shared.changed.subscribe();
        let mut seen = None;
        loop {
            changes.borrow_and_update();
            match self.status(id).await?.ok_or(QueueError::NotThere)? {
                Status::Waiting { .. } | Status::Spare => {}
                settled @ (Status::Done { .. } | Status::Failed { .. }) => return Ok(settled),
            }
            tokio::select! {
                // The other end lives as long as this queue does.
                _ = changes.changed() => {}
                () = self.changed_elsewhere(&mut seen), if self.shared.folder.is_shared() => {}
            }
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
        let mut transaction = begin(&self.shared.folder, &mut database).await?;
        match rows::by_key(&mut transaction, key).await? {
            Some((id, _, _)) => outcome::done(&mut transaction, id, None, now).await?,
            None => outcome::note(&mut transaction, key, now).await?,
        }
        self.commit(transaction).await?;
        drop(database);
        self.shared.changed.send_replace(());
        Ok(())
    }
}

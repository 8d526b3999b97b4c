//! Operations as they are listed: all that is known about each of them.

use std::time::Duration;

use onlyonce_core::{Key, KeyRule, Timestamp};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row as _, Sqlite};

use super::error::QueueError;
use super::group::GroupId;
use super::{OperationId, Queue, Status, rows};
use crate::operation::Operation;

/// How many are listed at once.
const LISTED_MAX: u32 = 1000;

/// An operation and all that is known about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Its name in the queue.
    pub id: OperationId,
    /// Its key.
    pub key: Key,
    /// The operation. Of one that is done, headers and body are not kept; of one that was only noted as
    /// done, nothing is.
    pub operation: Option<Operation>,
    /// How far it is.
    pub status: Status,
    /// The group that it is part of.
    pub group: Option<GroupId>,
    /// Whether it is a compensation.
    pub is_undo: bool,
    /// How often it was sent.
    pub attempts: u32,
    /// What the service or the network said last.
    pub detail: String,
    /// When it was queued, on this machine's clock.
    pub created_at: Timestamp,
    /// When it was first sent so that it may have taken effect.
    pub sent_at: Option<Timestamp>,
    /// When it was done, or failed for good.
    pub ended_at: Option<Timestamp>,
    /// In what time it may be sent again, if it waits.
    pub due_in: Option<Duration>,
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Still to be done.
    Waiting,
    /// A compensation that is not needed so far.
    Spare,
    /// Failed for good.
    Failed,
    /// In the success log.
    Done,
}

/// Which operations to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// Only of this state.
    pub state: Option<State>,
    /// Only of this group.
    pub group: Option<GroupId>,
    /// Only those that were queued after this one.
    pub after: Option<OperationId>,
    /// At most so many; a thousand at most, and if it is 0.
    pub limit: u32,
}

impl State {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Spare => "spare",
            Self::Failed => "failed",
            Self::Done => "done",
        }
    }

    /// The state that a status is of.
    pub const fn of(status: &Status) -> Self {
        match status {
            Status::Waiting { .. } => Self::Waiting,
            Status::Spare => Self::Spare,
            Status::Done { .. } => Self::Done,
            Status::Failed { .. } => Self::Failed,
        }
    }
}

impl Queue {
    /// Operations with all that is known about them, in the order in which they were queued.
    pub async fn entries(&self, wanted: Entries) -> Result<Vec<Entry>, QueueError> {
        let mut select = QueryBuilder::<Sqlite>::new("SELECT * FROM operations WHERE id > ");
        select.push_bind(wanted.after.map_or(0, |id| id.0));
        if let Some(state) = wanted.state {
            select.push(" AND state = ").push_bind(state.name());
        }
        if let Some(group) = wanted.group {
            select.push(" AND group_id = ").push_bind(group.0);
        }
        let limit = match wanted.limit {
            0 => LISTED_MAX,
            limit => limit.min(LISTED_MAX),
        };
        select.push(" ORDER BY id LIMIT ").push_bind(limit);
        let mut database = self.shared.database.lock().await;
        let found = select.build().fetch_all(&mut *database).await?;
        let mut entries = Vec::with_capacity(found.len());
        for row in &found {
            let id = OperationId(row.try_get("id")?);
            // Discarded since, by another process.
            if let Some(status) = rows::status(&mut database, id).await? {
                entries.push(self.read_entry(row, id, status)?);
            }
        }
        Ok(entries)
    }

    /// All that is known about one operation.
    pub async fn entry(&self, id: OperationId) -> Result<Option<Entry>, QueueError> {
        let mut database = self.shared.database.lock().await;
        let found = sqlx::query("SELECT * FROM operations WHERE id = ?").bind(id.0);
        let Some(row) = found.fetch_optional(&mut *database).await? else {
            return Ok(None);
        };
        let status = rows::status(&mut database, id).await?;
        status
            .map(|status| self.read_entry(&row, id, status))
            .transpose()
    }

    fn read_entry(
        &self,
        row: &SqliteRow,
        id: OperationId,
        status: Status,
    ) -> Result<Entry, QueueError> {
        let key: String = row.try_get("key")?;
        let url: String = row.try_get("url")?;
        let group: Option<i64> = row.try_get("group_id")?;
        let detail: Option<String> = row.try_get("detail")?;
        let due_at: i64 = row.try_get("due_at")?;
        let is_waiting = matches!(status, Status::Waiting { .. });
        Ok(Entry {
            id,
            key: Key::new(&key, &KeyRule::any()).map_err(|why| rows::damaged(id.0, why))?,
            operation: match url.as_str() {
                "" => None,
                _ => Some(rows::operation(row, id.0)?),
            },
            status,
            group: group.map(GroupId),
            is_undo: row.try_get("is_undo")?,
            attempts: row.try_get("attempts")?,
            detail: detail.unwrap_or_default(),
            created_at: date(row.try_get("created_at")?),
            sent_at: row.try_get::<Option<i64>, _>("sent_at")?.map(date),
            ended_at: row.try_get::<Option<i64>, _>("ended_at")?.map(date),
            due_in: is_waiting.then(|| {
                let left = due_at.saturating_sub(self.now());
                Duration::from_millis(u64::try_from(left).unwrap_or(0))
            }),
        })
    }
}

fn date(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis.unsigned_abs())
}

//! The queue's rows: what is read from and written to the database, a function a statement.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Method};
use onlyonce_core::{Key, KeyRule};
use sqlx::query_builder::Separated;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row as _, Sqlite, SqliteConnection};

use super::error::QueueError;
use super::group::{Group, GroupId};
use super::{OperationId, Status};
use crate::cause::Cause;
use crate::operation::Operation;

/// Rows that one statement writes: each is a trip to the database's thread.
pub(super) const ROWS_AT_ONCE: usize = 64;

/// See [`due`].
pub(super) const DUE: &str = "SELECT * FROM operations AS it INDEXED BY operations_by_due WHERE state = 'waiting' AND due_at <= ? AND id NOT IN \
    (SELECT value FROM json_each(?)) AND (group_id IS NULL OR NOT EXISTS (SELECT 1 FROM \
    operations AS before WHERE before.group_id = it.group_id AND before.rank < it.rank AND \
    (before.state = 'waiting' OR (before.state = 'failed' AND before.is_undo = 1)))) \
    ORDER BY due_at, id LIMIT ?";
/// See [`next_due`].
pub(super) const NEXT_DUE: &str = "SELECT MIN(due_at) FROM operations INDEXED BY operations_by_due WHERE state = 'waiting' AND \
    due_at > ?";

/// An operation with what is known about it.
pub(super) struct Row {
    pub(super) id: OperationId,
    pub(super) key: Key,
    pub(super) operation: Operation,
    pub(super) attempts: u32,
    pub(super) failures: u32,
    pub(super) sent_at: Option<i64>,
    pub(super) group: Option<Place>,
    pub(super) cause: Option<Cause>,
    pub(super) detail: String,
}

/// Where an operation stands in a group.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) group: i64,
    pub(super) rank: i64,
    pub(super) is_undo: bool,
}

/// A new row's state.
#[derive(Clone, Copy)]
pub(super) struct New<'a> {
    pub(super) key: &'a Key,
    pub(super) operation: &'a Operation,
    pub(super) place: Option<Place>,
    pub(super) created_at: i64,
    pub(super) due_at: i64,
}

/// Inserts rows, many with each statement, and gives their names in the same order.
pub(super) async fn insert_all(
    connection: &mut SqliteConnection,
    all: &[New<'_>],
) -> Result<Vec<OperationId>, QueueError> {
    let mut ids = Vec::with_capacity(all.len());
    for some in all.chunks(ROWS_AT_ONCE) {
        let mut insert = QueryBuilder::<Sqlite>::new(
            "INSERT INTO operations (key, state, content, method, url, headers, body, bytes, \
             group_id, rank, is_undo, created_at, due_at) ",
        );
        insert.push_values(some, |mut row, new| bind(&mut row, new));
        insert.push(" RETURNING key, id");
        let inserted: Vec<(String, i64)> =
            insert.build_query_as().fetch_all(&mut *connection).await?;
        // In whichever order they come back.
        let inserted: BTreeMap<String, i64> = inserted.into_iter().collect();
        for new in some {
            let id = inserted.get(new.key.expose());
            ids.push(OperationId(*id.ok_or(sqlx::Error::RowNotFound)?));
        }
    }
    Ok(ids)
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    new: New<'_>,
) -> Result<OperationId, QueueError> {
    let ids = insert_all(connection, &[new]).await?;
    Ok(ids[0])
}

fn bind<'a>(row: &mut Separated<'_, Sqlite, &'static str>, new: &New<'a>) {
    let New {
        operation, place, ..
    } = *new;
    let is_undo = place.is_some_and(|place| place.is_undo);
    row.push_bind(new.key.expose().to_owned())
        .push_bind(if is_undo { "spare" } else { "waiting" })
        .push_bind(operation.content().to_bytes().to_vec())
        .push_bind(operation.method().as_str().to_owned())
        .push_bind(operation.url().as_str().to_owned())
        .push_bind(written(operation.headers()))
        .push_bind(operation.bytes().to_vec())
        .push_bind(size(operation))
        .push_bind(place.map(|place| place.group))
        .push_bind(place.map_or(0, |place| place.rank))
        .push_bind(is_undo)
        .push_bind(new.created_at)
        .push_bind(new.due_at);
}

/// Puts another operation, under another key, in the place of one that is not done.
pub(super) async fn replace(
    connection: &mut SqliteConnection,
    id: OperationId,
    key: &Key,
    operation: &Operation,
) -> Result<(), QueueError> {
    sqlx::query(
        "UPDATE operations SET key = ?, state = 'waiting', content = ?, method = ?, url = ?, \
         headers = ?, body = ?, bytes = ?, attempts = 0, failures = 0, due_at = 0, sent_at = NULL, \
         ended_at = NULL, cause = NULL, detail = NULL WHERE id = ?",
    )
    .bind(key.expose())
    .bind(operation.content().to_bytes().to_vec())
    .bind(operation.method().as_str())
    .bind(operation.url().as_str())
    .bind(written(operation.headers()))
    .bind(operation.bytes().as_ref())
    .bind(size(operation))
    .bind(id.0)
    .execute(connection)
    .await?;
    Ok(())
}

/// Operations that may be sent now and are not `in_flight`, those first that have been due for
/// longest. One of a group waits for those before it.
pub(super) async fn due(
    connection: &mut SqliteConnection,
    now: i64,
    in_flight: &[i64],
    at_most: usize,
) -> Result<Vec<Row>, QueueError> {
    let rows = sqlx::query(DUE)
        .bind(now)
        .bind(list(in_flight))
        .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
        .fetch_all(connection)
        .await?;
    rows.iter().map(read).collect()
}

/// Notes that operations are about to be sent, unless they were before.
pub(super) async fn sent(
    connection: &mut SqliteConnection,
    ids: &[i64],
    wall: i64,
) -> Result<(), QueueError> {
    sqlx::query(
        "UPDATE operations SET sent_at = ? WHERE sent_at IS NULL AND id IN \
         (SELECT value FROM json_each(?))",
    )
    .bind(wall)
    .bind(list(ids))
    .execute(connection)
    .await?;
    Ok(())
}

fn list(ids: &[i64]) -> String {
    serde_json::to_string(ids).expect("numbers are JSON")
}

/// When the next operation that still waits may be sent.
pub(super) async fn next_due(
    connection: &mut SqliteConnection,
    now: i64,
) -> Result<Option<i64>, QueueError> {
    let next = sqlx::query_scalar(NEXT_DUE);
    Ok(next.bind(now).fetch_one(connection).await?)
}

pub(super) async fn find(
    connection: &mut SqliteConnection,
    id: OperationId,
) -> Result<Option<(String, Row)>, QueueError> {
    let found = sqlx::query("SELECT * FROM operations WHERE id = ? AND state <> 'done'");
    let found = found.bind(id.0).fetch_optional(connection).await?;
    found
        .map(|row| Ok((row.try_get("state")?, read(&row)?)))
        .transpose()
}

pub(super) async fn failed(
    connection: &mut SqliteConnection,
    at_most: u32,
) -> Result<Vec<Row>, QueueError> {
    let found = sqlx::query("SELECT * FROM operations WHERE state = 'failed' ORDER BY id LIMIT ?");
    let rows = found.bind(at_most).fetch_all(connection).await?;
    rows.iter().map(read).collect()
}

pub(super) async fn status(
    connection: &mut SqliteConnection,
    id: OperationId,
) -> Result<Option<Status>, QueueError> {
    let found = sqlx::query(
        "SELECT state, attempts, cause, detail, status, answer FROM operations WHERE id = ?",
    );
    let Some(row) = found.bind(id.0).fetch_optional(connection).await? else {
        return Ok(None);
    };
    let cause: Option<String> = row.try_get("cause")?;
    let cause = cause.as_deref().and_then(Cause::named);
    let state: String = row.try_get("state")?;
    let attempts = row.try_get("attempts")?;
    Ok(Some(match state.as_str() {
        "done" => Status::Done {
            status: row.try_get("status")?,
            answer: row
                .try_get::<Option<Vec<u8>>, _>("answer")?
                .map(Bytes::from),
        },
        "failed" => Status::Failed {
            cause: cause.ok_or_else(|| damaged(id.0, "its cause"))?,
            detail: row
                .try_get::<Option<String>, _>("detail")?
                .unwrap_or_default(),
            attempts,
        },
        "spare" => Status::Spare,
        _ => Status::Waiting { attempts, cause },
    }))
}

/// The operation of this key, whatever became of it, and what it means.
pub(super) async fn by_key(
    connection: &mut SqliteConnection,
    key: &Key,
) -> Result<Option<(OperationId, String, Vec<u8>)>, QueueError> {
    let found = sqlx::query_as("SELECT id, state, content FROM operations WHERE key = ?");
    let found: Option<(i64, String, Vec<u8>)> =
        found.bind(key.expose()).fetch_optional(connection).await?;
    Ok(found.map(|(id, state, content)| (OperationId(id), state, content)))
}

/// The newest operation that means the same.
pub(super) async fn by_content(
    connection: &mut SqliteConnection,
    operation: &Operation,
) -> Result<Option<OperationId>, QueueError> {
    let found = sqlx::query_scalar(
        "SELECT id FROM operations WHERE content = ? AND is_undo = 0 ORDER BY id DESC LIMIT 1",
    );
    let content = operation.content().to_bytes().to_vec();
    let found = found.bind(content).fetch_optional(connection).await?;
    Ok(found.map(OperationId))
}

/// The group of the same name, and what it means.
pub(super) async fn group_by_name(
    connection: &mut SqliteConnection,
    group: &Group,
) -> Result<Option<(GroupId, Vec<u8>)>, QueueError> {
    let Some(name) = &group.name else {
        return Ok(None);
    };
    let found = sqlx::query_as("SELECT id, content FROM groups WHERE name = ?");
    let found: Option<(i64, Vec<u8>)> =
        found.bind(name.expose()).fetch_optional(connection).await?;
    Ok(found.map(|(id, content)| (GroupId(id), content)))
}

pub(super) async fn insert_group(
    connection: &mut SqliteConnection,
    group: &Group,
) -> Result<GroupId, QueueError> {
    let inserted =
        sqlx::query("INSERT INTO groups (name, content, steps, state) VALUES (?, ?, ?, 'running')")
            .bind(group.name.as_ref().map(Key::expose))
            .bind(group.content().to_bytes().to_vec())
            .bind(i64::try_from(group.steps.len()).unwrap_or(i64::MAX))
            .execute(connection)
            .await?;
    Ok(GroupId(inserted.last_insert_rowid()))
}

/// How many operations are not done, and their bytes.
pub(super) async fn held(connection: &mut SqliteConnection) -> Result<(i64, i64), QueueError> {
    let held = sqlx::query_as("SELECT operations, bytes FROM held");
    Ok(held.fetch_one(connection).await?)
}

/// What a row takes on disk, about.
pub(super) fn size(operation: &Operation) -> i64 {
    let headers = operation.headers().iter();
    let headers: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    let bytes = operation.url().as_str().len() + headers + operation.bytes().len();
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn read(row: &SqliteRow) -> Result<Row, QueueError> {
    let id: i64 = row.try_get("id")?;
    let key: String = row.try_get("key")?;
    let group: Option<i64> = row.try_get("group_id")?;
    let place = |group| {
        Ok::<_, QueueError>(Place {
            group,
            rank: row.try_get("rank")?,
            is_undo: row.try_get("is_undo")?,
        })
    };
    let cause: Option<String> = row.try_get("cause")?;
    Ok(Row {
        id: OperationId(id),
        key: Key::new(&key, &KeyRule::any()).map_err(|why| damaged(id, why))?,
        operation: operation(row, id)?,
        attempts: row.try_get("attempts")?,
        failures: row.try_get("failures")?,
        sent_at: row.try_get("sent_at")?,
        group: group.map(place).transpose()?,
        cause: cause.as_deref().and_then(Cause::named),
        detail: row
            .try_get::<Option<String>, _>("detail")?
            .unwrap_or_default(),
    })
}

pub(super) fn operation(row: &SqliteRow, id: i64) -> Result<Operation, QueueError> {
    let method: String = row.try_get("method")?;
    let method = Method::from_bytes(method.as_bytes()).map_err(|why| damaged(id, why))?;
    let url: String = row.try_get("url")?;
    let headers: String = row.try_get("headers")?;
    let lines: Vec<(String, String)> =
        serde_json::from_str(&headers).map_err(|why| damaged(id, why))?;
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|why| damaged(id, why))?;
        let value = HeaderValue::from_str(&value).map_err(|why| damaged(id, why))?;
        headers.insert(name, value);
    }
    let body: Vec<u8> = row.try_get("body")?;
    Operation::kept(method, &url, headers, body.into()).map_err(|why| damaged(id, why))
}

/// Headers of an operation are text: they were made of it.
fn written(headers: &HeaderMap) -> String {
    let lines: Vec<(&str, &str)> = headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    serde_json::to_string(&lines).expect("pairs of text are JSON")
}

pub(super) fn damaged(id: i64, what: impl ToString) -> QueueError {
    let what = what.to_string();
    QueueError::Damaged { id, what }
}

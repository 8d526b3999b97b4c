//! What is written when an attempt is over. Each function is part of one transaction, so that an
//! operation is never done and waiting, nor a group half undone without its compensations.

use std::collections::BTreeSet;

use onlyonce_core::Key;
use sqlx::{QueryBuilder, Sqlite, SqliteConnection};

use super::OperationId;
use super::error::QueueError;
use super::group::undo_rank;
use super::rows::{Place, ROWS_AT_ONCE, Row};
use crate::cause::{Cause, Failure};
use crate::reply::Reply;

/// See [`sweep`]. It must not look at all that is done.
pub(super) const SWEEP: &str = "DELETE FROM operations INDEXED BY operations_by_end WHERE \
    state = 'done' AND ended_at <= ?";
/// A larger answer is not kept in the success log.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The operation is done. Its body is not needed any more.
pub(super) async fn done(
    transaction: &mut SqliteConnection,
    id: OperationId,
    reply: Option<&Reply>,
    now: i64,
) -> Result<(), QueueError> {
    let group: Option<Option<i64>> = sqlx::query_scalar(
        "UPDATE operations SET state = 'done', headers = '[]', body = x'', bytes = 0, \
         attempts = attempts + ?, ended_at = ?, cause = NULL, detail = NULL, status = ?, answer = ? \
         WHERE id = ? AND state <> 'done' RETURNING group_id",
    )
    .bind(i64::from(reply.is_some()))
    .bind(now)
    .bind(reply.map(|reply| reply.status.as_u16()))
    .bind(reply.and_then(kept))
    .bind(id.0)
    .fetch_optional(&mut *transaction)
    .await?;
    match group.flatten() {
        Some(group) => advance(transaction, group, now).await,
        None => Ok(()),
    }
}

/// These operations are done, as the service answered: the same as [`done`] for each, with fewer
/// statements.
pub(super) async fn done_all(
    transaction: &mut SqliteConnection,
    all: &[(&Row, &Reply)],
    now: i64,
) -> Result<(), QueueError> {
    let mut groups = BTreeSet::new();
    for some in all.chunks(ROWS_AT_ONCE) {
        let mut update = QueryBuilder::<Sqlite>::new("WITH ended (id, key, status, answer) AS (");
        update.push_values(some, |mut row, (sent, reply)| {
            row.push_bind(sent.id.0)
                .push_bind(sent.key.expose())
                .push_bind(reply.status.as_u16())
                .push_bind(kept(reply).map(<[u8]>::to_vec));
        });
        update.push(
            ") UPDATE operations SET state = 'done', headers = '[]', body = x'', bytes = 0, \
             attempts = attempts + 1, cause = NULL, detail = NULL, status = ended.status, \
             answer = ended.answer, ended_at = ",
        );
        update.push_bind(now);
        update.push(
            // One that was edited meanwhile is another operation.
            " FROM ended WHERE operations.id = ended.id AND operations.key = ended.key AND \
             state <> 'done' RETURNING group_id",
        );
        let ended: Vec<Option<i64>> = update
            .build_query_scalar()
            .fetch_all(&mut *transaction)
            .await?;
        groups.extend(ended.into_iter().flatten());
    }
    for group in groups {
        advance(transaction, group, now).await?;
    }
    Ok(())
}

/// What of an answer is kept.
fn kept(reply: &Reply) -> Option<&[u8]> {
    let is_kept = reply.is_whole && reply.body.len() <= ANSWER_BYTES_MAX;
    is_kept.then_some(&reply.body)
}

/// A key of which we were told that its operation is done.
pub(super) async fn note(
    transaction: &mut SqliteConnection,
    key: &Key,
    now: i64,
) -> Result<(), QueueError> {
    sqlx::query(
        "INSERT INTO operations (key, state, content, method, url, headers, body, bytes, \
         created_at, ended_at) VALUES (?, 'done', x'', '', '', '[]', x'', 0, ?, ?)",
    )
    .bind(key.expose())
    .bind(now)
    .bind(now)
    .execute(transaction)
    .await?;
    Ok(())
}

/// The operation will be tried again.
pub(super) async fn later(
    transaction: &mut SqliteConnection,
    row: &Row,
    failure: &Failure,
    due_at: i64,
) -> Result<(), QueueError> {
    // If the only attempt so far had no effect, the key is as good as new.
    let is_unsent = row.sent_at.is_none() && !failure.may_have_run();
    sqlx::query(
        "UPDATE operations SET attempts = attempts + 1, failures = failures + ?, due_at = ?, \
         cause = ?, detail = ?, sent_at = CASE WHEN ? THEN NULL ELSE sent_at END \
         WHERE id = ? AND key = ? AND state = 'waiting'",
    )
    .bind(i64::from(failure.cause == Cause::Failed))
    .bind(due_at)
    .bind(failure.cause.name())
    .bind(&failure.detail)
    .bind(is_unsent)
    .bind(row.id.0)
    .bind(row.key.expose())
    .execute(transaction)
    .await?;
    Ok(())
}

/// The operation failed for good. If it is a step of a group, the steps before it are undone.
pub(super) async fn failed(
    transaction: &mut SqliteConnection,
    row: &Row,
    failure: &Failure,
    now: i64,
) -> Result<(), QueueError> {
    let was_sent = failure.cause != Cause::Expired;
    let written = sqlx::query(
        "UPDATE operations SET state = 'failed', attempts = attempts + ?, ended_at = ?, cause = ?, \
         detail = ? WHERE id = ? AND key = ? AND state = 'waiting'",
    )
    .bind(i64::from(was_sent))
    .bind(now)
    .bind(failure.cause.name())
    .bind(&failure.detail)
    .bind(row.id.0)
    .bind(row.key.expose())
    .execute(&mut *transaction)
    .await?;
    match row.group {
        Some(place) if written.rows_affected() == 1 && !place.is_undo => {
            let may_have_run = failure.may_have_run() || row.sent_at.is_some();
            undo(transaction, place, may_have_run).await?;
            advance(transaction, place.group, now).await
        }
        Some(_) | None => Ok(()),
    }
}

/// Calls off the rest of a group, and the compensations of what was done in.
async fn undo(
    transaction: &mut SqliteConnection,
    place: Place,
    may_have_run: bool,
) -> Result<(), QueueError> {
    let steps =
        sqlx::query_scalar("UPDATE groups SET state = 'undoing' WHERE id = ? RETURNING steps");
    let steps: i64 = steps.bind(place.group).fetch_one(&mut *transaction).await?;
    let first = undo_rank(steps, place.rank) + i64::from(!may_have_run);
    sqlx::query(
        "DELETE FROM operations INDEXED BY operations_by_group WHERE group_id = ? AND \
         ((state = 'waiting' AND is_undo = 0) OR (state = 'spare' AND rank < ?))",
    )
    .bind(place.group)
    .bind(first)
    .execute(&mut *transaction)
    .await?;
    // Due at once: the time of an earlier process may be in the row.
    sqlx::query(
        "UPDATE operations INDEXED BY operations_by_group SET state = 'waiting', due_at = 0 WHERE \
         group_id = ? AND state = 'spare'",
    )
    .bind(place.group)
    .execute(transaction)
    .await?;
    Ok(())
}

/// Ends a group of which nothing is left to do. What was undone is not done any more.
pub(super) async fn advance(
    transaction: &mut SqliteConnection,
    group: i64,
    now: i64,
) -> Result<(), QueueError> {
    let ended: Option<String> = sqlx::query_scalar(
        "UPDATE groups SET state = CASE state WHEN 'running' THEN 'done' ELSE 'undone' END, \
         ended_at = ? WHERE id = ? AND ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM operations \
         WHERE group_id = groups.id AND (state = 'waiting' OR (state = 'failed' AND is_undo = 1))) \
         RETURNING state",
    )
    .bind(now)
    .bind(group)
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(state) = ended else {
        return Ok(());
    };
    sqlx::query(
        "DELETE FROM operations INDEXED BY operations_by_group WHERE group_id = ? AND \
         (state = 'spare' OR (state = 'done' AND is_undo = 0 AND ?))",
    )
    .bind(group)
    .bind(state == "undone")
    .execute(transaction)
    .await?;
    Ok(())
}

/// Forgets what was done before this.
pub(super) async fn sweep(
    transaction: &mut SqliteConnection,
    before: i64,
) -> Result<(), QueueError> {
    sqlx::query(SWEEP)
        .bind(before)
        .execute(&mut *transaction)
        .await?;
    sqlx::query(
        "DELETE FROM groups WHERE ended_at <= ? AND \
         NOT EXISTS (SELECT 1 FROM operations WHERE group_id = groups.id)",
    )
    .bind(before)
    .execute(transaction)
    .await?;
    Ok(())
}

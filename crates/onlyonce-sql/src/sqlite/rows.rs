//! Rows of one table, read and written on any connection.

use std::collections::BTreeMap;
use std::time::Duration;

use onlyonce_core::Slot;
use sqlx::SqliteConnection;

use super::statements::{SLOTS, Statements};
use super::time::Time;
use crate::steps::{Cells, Held, Misread, bind, read_held, read_slot, to_millis};

/// Rows by slot: each as it is, or why it cannot be read.
pub(super) type Rows = BTreeMap<Slot, Result<Held, Misread>>;

/// The rows of these slots, as far as there are any.
pub(super) async fn read(
    connection: &mut SqliteConnection,
    statements: &Statements,
    slots: &[Slot],
) -> Result<Rows, sqlx::Error> {
    let mut rows = Rows::new();
    for slots in slots.chunks(SLOTS[SLOTS.len() - 1]) {
        let n = SLOTS.partition_point(|fits| *fits < slots.len());
        let mut query = sqlx::query(statements.read(n));
        // The last slot fills what is left of the statement's list.
        for at in 0..SLOTS[n] {
            query = query.bind(slots[at.min(slots.len() - 1)].as_bytes().to_vec());
        }
        for row in query.fetch_all(&mut *connection).await? {
            // Found by its slot, it has one.
            if let Ok(slot) = read_slot(&row) {
                rows.insert(slot, read_held(&row));
            }
        }
    }
    Ok(rows)
}

/// One row, and the time just after it was read.
pub(super) async fn look<'c>(
    connection: impl sqlx::SqliteExecutor<'c>,
    statements: &Statements,
    time: &Time,
    slot: &Slot,
) -> Result<Option<(Result<Held, Misread>, Duration)>, sqlx::Error> {
    let query = sqlx::query(statements.look()).bind(slot.as_bytes().to_vec());
    let Some(row) = query.fetch_optional(connection).await? else {
        return Ok(None);
    };
    Ok(Some((read_held(&row), time.now())))
}

/// Writes a row as it has become; drops it where nothing is left to keep.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    statements: &Statements,
    slot: &Slot,
    held: &Held,
    now: Duration,
) -> Result<(), sqlx::Error> {
    let slot = slot.as_bytes().to_vec();
    let Some(cells) = Cells::of(held, now) else {
        let delete = sqlx::query(statements.delete()).bind(slot);
        delete.execute(connection).await?;
        return Ok(());
    };
    let put = bind!(sqlx::query(statements.put()).bind(slot), cells);
    put.execute(connection).await?;
    Ok(())
}

/// Copies the record of a slot to the archive before it is replaced.
pub(super) async fn archive(
    connection: &mut SqliteConnection,
    statements: &Statements,
    slot: &Slot,
    now: Duration,
) -> Result<(), sqlx::Error> {
    let archive = sqlx::query(statements.archive())
        .bind(to_millis(now))
        .bind(slot.as_bytes().to_vec());
    archive.execute(connection).await?;
    Ok(())
}

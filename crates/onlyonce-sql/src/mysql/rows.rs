//! Rows of one table, read and written one at a time.

use std::time::Duration;

use onlyonce_core::{Slot, Token};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, MySql};

use super::statements::{NOW, Statements};
use crate::steps::{
    Cells, Columns, Held, Misread, WRITTEN, bind, from_millis, read_held, read_slot, to_millis,
};

/// A row as it was read.
pub(super) struct Row {
    pub(super) held: Result<Held, Misread>,
    /// What nobody else has changed it to meanwhile.
    pub(super) seen: Seen,
    /// When it was read.
    pub(super) now: Duration,
}

/// Which state of a row it was.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) revision: i64,
    token: Vec<u8>,
}

impl Seen {
    /// Whether this is the state of a row of `token` at `revision`.
    pub(super) fn is(&self, revision: i64, token: &Token) -> bool {
        self.revision == revision && self.token == token.as_bytes()
    }
}

impl Row {
    /// Reads what [`Statements::read_one`] asks for.
    pub(super) fn read(row: &MySqlRow) -> Option<(Slot, Self)> {
        // Found by its slot, it has one; the others cannot be null.
        let slot = read_slot(row).ok()?;
        let seen = Seen {
            revision: row.int(15).ok()?,
            token: row.bytes(2).ok()?,
        };
        let now = from_millis(row.int(16).ok()?);
        let held = read_held(row);
        Some((slot, Self { held, seen, now }))
    }
}

/// A statement that writes one row, if it is still as it was seen.
pub(super) type Write = Query<'static, MySql, MySqlArguments>;

/// How long a decision is good for: what was decided longer ago is decided anew.
const DECISION_MAX: Duration = Duration::from_secs(1);

/// Writes a row as it has become; drops it where nothing is left to keep. It changes nothing if
/// somebody else was faster, if that was decided too long ago, or if the record was live then and
/// has expired since.
pub(super) fn write(
    statements: &Statements,
    slot: &Slot,
    seen: Option<&Seen>,
    held: &Held,
    was_live: bool,
    now: Duration,
) -> Option<Write> {
    let due = to_millis(now.saturating_add(DECISION_MAX));
    let slot = slot.as_bytes().to_vec();
    match (Cells::of(held, now), seen) {
        (None, None) => None,
        (Some(cells), None) => Some(insert(statements, slot, cells, due)),
        (None, Some(seen)) => {
            let sql = format!("DELETE FROM {{table}} WHERE {}", guard());
            let query = sqlx::query(AssertSqlSafe(statements.fill(&sql)));
            Some(guarded(query, slot, seen, due, was_live))
        }
        (Some(cells), Some(seen)) => {
            let assignments: Vec<_> = WRITTEN.iter().map(|it| format!("{it} = ?")).collect();
            let sql = format!(
                "UPDATE {{table}} SET {}, revision = revision + 1 WHERE {}",
                assignments.join(", "),
                guard()
            );
            let query = bind!(sqlx::query(AssertSqlSafe(statements.fill(&sql))), cells);
            Some(guarded(query, slot, seen, due, was_live))
        }
    }
}

/// Writes the row of a record that the caller has locked.
pub(super) fn overwrite(statements: &Statements, slot: &Slot, cells: Cells) -> Write {
    let assignments: Vec<_> = WRITTEN.iter().map(|it| format!("{it} = ?")).collect();
    let sql = format!(
        "UPDATE {{table}} SET {}, revision = revision + 1 WHERE slot = ?",
        assignments.join(", ")
    );
    let query = bind!(sqlx::query(AssertSqlSafe(statements.fill(&sql))), cells);
    query.bind(slot.as_bytes().to_vec())
}

fn insert(statements: &Statements, slot: Vec<u8>, cells: Cells, due: i64) -> Write {
    let columns = WRITTEN.join(", ");
    let marks = vec!["?"; WRITTEN.len()].join(", ");
    let sql = format!(
        "INSERT INTO {{table}} (slot, revision, {columns}) \
         SELECT ?, 1, {marks} FROM DUAL WHERE {NOW} < ?"
    );
    let query = sqlx::query(AssertSqlSafe(statements.fill(&sql))).bind(slot);
    bind!(query, cells).bind(due)
}

fn guard() -> String {
    format!("slot = ? AND revision = ? AND token = ? AND {NOW} < ? AND (? OR expires_at > {NOW})")
}

fn guarded(query: Write, slot: Vec<u8>, seen: &Seen, due: i64, was_live: bool) -> Write {
    query
        .bind(slot)
        .bind(seen.revision)
        .bind(seen.token.clone())
        .bind(due)
        .bind(!was_live)
}

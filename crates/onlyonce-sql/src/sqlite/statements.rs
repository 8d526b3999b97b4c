//! Every statement about one table, made once.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use crate::shared::Table;
use crate::steps::{READ_COLUMNS, WRITTEN};

/// A statement: safe, because nothing but a checked table name was put into it.
pub(super) type Sql = AssertSqlSafe<Arc<str>>;

/// How many slots one statement can read: any number is rounded up to one of these, so that few
/// statements need to be prepared.
pub(super) const SLOTS: [usize; 4] = [1, 8, 64, 256];

pub(super) struct Statements {
    table: Table,
    look: Arc<str>,
    read: [Arc<str>; SLOTS.len()],
    put: Arc<str>,
    delete: Arc<str>,
    archive: Arc<str>,
}

impl Statements {
    pub(super) fn new(table: Table) -> Self {
        let fill = |sql: &str| Arc::from(table.fill(sql));
        let read = |slots: usize| {
            let marks = vec!["?"; slots].join(", ");
            fill(&format!(
                "SELECT {READ_COLUMNS} FROM {{table}} WHERE slot IN ({marks})"
            ))
        };
        Self {
            look: fill(&format!(
                "SELECT {READ_COLUMNS} FROM {{table}} WHERE slot = ?"
            )),
            read: SLOTS.map(read),
            put: fill(&put()),
            delete: fill("DELETE FROM {table} WHERE slot = ?"),
            archive: fill(&archive("slot = ?")),
            table,
        }
    }

    /// A statement that is rarely needed.
    pub(super) fn rare(&self, sql: &str) -> Sql {
        AssertSqlSafe(self.table.fill(sql).into())
    }

    /// One row.
    pub(super) fn look(&self) -> Sql {
        AssertSqlSafe(Arc::clone(&self.look))
    }

    /// The rows of a number of slots that is the `n`th of [`SLOTS`].
    pub(super) fn read(&self, n: usize) -> Sql {
        AssertSqlSafe(Arc::clone(&self.read[n]))
    }

    /// Writes a whole row.
    pub(super) fn put(&self) -> Sql {
        AssertSqlSafe(Arc::clone(&self.put))
    }

    /// Drops one row.
    pub(super) fn delete(&self) -> Sql {
        AssertSqlSafe(Arc::clone(&self.delete))
    }

    /// Copies the record of one slot to the archive: bind the time, then the slot.
    pub(super) fn archive(&self) -> Sql {
        AssertSqlSafe(Arc::clone(&self.archive))
    }
}

fn put() -> String {
    let columns = WRITTEN.join(", ");
    let marks = vec!["?"; WRITTEN.len()].join(", ");
    let updates: Vec<_> = WRITTEN
        .iter()
        .map(|column| format!("{column} = excluded.{column}"))
        .collect();
    let updates = updates.join(", ");
    format!(
        "INSERT INTO {{table}} (slot, {columns}) VALUES (?, {marks}) \
         ON CONFLICT (slot) DO UPDATE SET {updates}"
    )
}

/// Copies the finished records that fulfil `condition` to the archive; the first value bound is
/// the time.
pub(super) fn archive(condition: &str) -> String {
    format!(
        "INSERT INTO {{table}}_archive (archived_at, slot, state, token, fingerprint, attempt, \
         created_at, completed_at, expired_at, replays, operation, actor, hint, meta, response) \
         SELECT ?, slot, state, token, fingerprint, attempt, created_at, completed_at, expires_at, \
         replays, operation, actor, hint, meta, response FROM {{table}} \
         WHERE state IN ('D', 'F') AND {condition}"
    )
}

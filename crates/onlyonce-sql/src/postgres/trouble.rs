//! What an error of the server means.

use onlyonce_core::{StoreError, StoreErrorKind};
use sqlx::error::DatabaseError;

use crate::shared::{self, Dialect};

pub(super) use crate::shared::Then;

pub(super) const NAME: &str = "postgres";

pub(super) type Trouble = shared::Trouble<Postgres>;

/// The errors of PostgreSQL.
#[derive(Clone, Copy, Debug)]
pub(super) enum Postgres {}

/// Stored bytes that cannot be read.
pub(super) fn corrupt(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::new(NAME, StoreErrorKind::Corrupt).caused_by(cause)
}

/// An answer that a value cannot hold.
pub(super) fn too_large() -> StoreError {
    StoreError::new(NAME, StoreErrorKind::TooLarge).caused_by("a value has too little room for it")
}

impl Dialect for Postgres {
    const NAME: &'static str = NAME;

    fn read(told: &dyn DatabaseError) -> (StoreErrorKind, Then, String) {
        let code = told.code().unwrap_or_default();
        let class = code.get(..2).unwrap_or_default();
        let (kind, then) = meaning(class, &code);
        (kind, then, words(class, &code, told.message()))
    }
}

fn meaning(class: &str, code: &str) -> (StoreErrorKind, Then) {
    match (class, code) {
        // Serialization failure, deadlock.
        ("40", _) => (StoreErrorKind::Unavailable, Then::Repeat),
        // Out of disk, out of memory.
        (_, "53100" | "53200") => (StoreErrorKind::Full, Then::Tell),
        // Too large for the server in some way; with one row, no repetition makes it smaller.
        ("54", _) => (StoreErrorKind::TooLarge, Then::Split),
        // Connection trouble, shutdown, a primary that has become a standby.
        ("08", _) | (_, "57P01" | "57P02" | "57P03" | "57P05" | "25006") => {
            (StoreErrorKind::Unavailable, Then::Reconnect)
        }
        // A prepared statement that is gone, there already, or older than the table.
        (_, "26000" | "42P05" | "0A000") => (StoreErrorKind::Unavailable, Then::Reconnect),
        // Too many connections, cancelled, locked, no such table, no right to it.
        ("28" | "3D" | "42" | "53" | "55" | "57" | "58", _) => {
            (StoreErrorKind::Unavailable, Then::Tell)
        }
        _ => (StoreErrorKind::Unavailable, Then::Split),
    }
}

/// The server's message, unless it may quote a row or a credential.
fn words(class: &str, code: &str, message: &str) -> String {
    match (class, code) {
        (_, "26000" | "42P05") => format!(
            "SQLSTATE {code}: a prepared statement is not where it was; behind a pooler of \
             transactions, open the store with pooled=true"
        ),
        ("08" | "25" | "42" | "53" | "54" | "55" | "57" | "58", _) => {
            format!("SQLSTATE {code}: {message}")
        }
        ("28", _) => format!("SQLSTATE {code}: the server refuses the login"),
        _ => format!("SQLSTATE {code}"),
    }
}

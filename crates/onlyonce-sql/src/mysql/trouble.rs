//! What an error of the server means.

use onlyonce_core::{StoreError, StoreErrorKind};
use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;

use crate::shared::{self, Dialect};
use crate::steps::Misread;
use onlyonce_storekit::OpenError;

pub(super) use crate::shared::Then;

pub(super) const NAME: &str = "mysql";

pub(super) type Trouble = shared::Trouble<MySql>;

/// The errors of MariaDB and MySQL.
#[derive(Clone, Copy, Debug)]
pub(super) enum MySql {}

/// An answer that the server takes in no statement.
pub(super) fn too_large() -> Trouble {
    Trouble::new(
        StoreErrorKind::TooLarge,
        Then::Tell,
        "with its row it is larger than the server's max_allowed_packet",
    )
}

/// A row that cannot be read.
pub(super) fn unreadable(why: &Misread) -> StoreError {
    StoreError::new(NAME, StoreErrorKind::Corrupt).caused_by(why.to_string())
}

impl Dialect for MySql {
    const NAME: &'static str = NAME;

    fn read(told: &dyn DatabaseError) -> (StoreErrorKind, Then, String) {
        match told.try_downcast_ref::<MySqlDatabaseError>() {
            Some(told) => {
                let (kind, then) = meaning(told.number(), told.message());
                (kind, then, words(told.number()))
            }
            None => {
                let cause = "the server refused the statement".to_owned();
                (StoreErrorKind::Unavailable, Then::Tell, cause)
            }
        }
    }
}

fn meaning(number: u16, message: &str) -> (StoreErrorKind, Then) {
    use StoreErrorKind::{Corrupt, Full, TooLarge, Unavailable};
    match number {
        // Deadlock, and a row that changed since it was first read. In a Galera cluster the first
        // is what a transaction gets that another node was faster than, also at its commit.
        1213 | 1020 => (Unavailable, Then::Repeat),
        1205 => (Unavailable, Then::Locked),
        // A row, or a procedure.
        1062 | 1304 => (Unavailable, Then::Duplicate),
        // Out of disk or memory; a table that is full.
        1021 | 1037 | 1038 | 1041 | 1114 => (Full, Then::Tell),
        1030 if message.contains("error 28") => (Full, Then::Tell),
        // A packet that is too large; with one row, no repetition makes it smaller.
        1153 => (TooLarge, Then::Split),
        // A table or index that is damaged.
        1034 | 1194 | 1195 | 1712 => (Corrupt, Then::Tell),
        // Shut down, killed, timed out on the way; a primary that has become a replica; a
        // node of a cluster that is not part of it, or was cut off during a commit: whether that
        // one counts is to be seen elsewhere.
        1053
        | 1077
        | 1079
        | 1080
        | 1152
        | 1158..=1161
        | 1184
        | 1927
        | 1290
        | 1836
        | 1047
        | 1180
        | 4031 => (Unavailable, Then::Reconnect),
        // Ended by the server or an operator, because it took too long.
        1317 | 1969 | 3024 => (Unavailable, Then::Tell),
        // Too many connections, no right, no such table or database, no space for a log.
        1040 | 1044 | 1045 | 1049 | 1129 | 1130 | 1142 | 1143 | 1146 | 1203 | 1226 => {
            (Unavailable, Then::Tell)
        }
        _ => (Unavailable, Then::Split),
    }
}

/// An error in words. The server's own message may quote a row or a login.
fn words(number: u16) -> String {
    let meaning = match number {
        1040 | 1203 | 1226 => "too many connections",
        1044 | 1045 | 1129 | 1130 | 1142 | 1143 => "the server refuses this login",
        1049 => "there is no such database",
        1146 => "a table is missing",
        1021 | 1030 | 1114 => "the server has no room left",
        1037 | 1038 | 1041 => "the server is out of memory",
        1053 | 1077 | 1079 => "the server is shutting down",
        1153 => "a packet larger than max_allowed_packet",
        1205 => "a row is locked",
        1317 | 1969 | 3024 => "the statement took too long and was ended",
        1213 | 1020 => "transactions were in each other's way",
        1290 | 1836 => "the server is read-only",
        1047 => "the node is not part of its cluster's majority",
        1180 => "the node was cut off from its cluster during a commit",
        1665 => "the binary log's format is STATEMENT: set binlog_format to MIXED or ROW",
        _ => "see the server's list of errors",
    };
    format!("error {number}: {meaning}")
}

/// What whoever opens the store is told.
pub(super) fn unopened(trouble: impl Into<Trouble>) -> OpenError {
    let trouble = trouble.into();
    match trouble.then {
        Then::Tell | Then::Split if trouble.kind == StoreErrorKind::Unavailable => {
            refused(trouble.words())
        }
        Then::Reconnect
        | Then::Repeat
        | Then::Locked
        | Then::Duplicate
        | Then::Tell
        | Then::Split => OpenError::Store(trouble.to_error()),
    }
}

pub(super) fn refused(why: impl Into<String>) -> OpenError {
    let why = why.into();
    OpenError::Refused { store: NAME, why }
}

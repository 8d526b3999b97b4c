//! What went wrong with a statement, and what that means for those who wait for it.

use onlyonce_core::{StoreError, StoreErrorKind};
use sqlx::mysql::MySqlDatabaseError;
use thiserror::Error;

use crate::open::OpenError;
use crate::sql::shared::Misread;

pub(super) const NAME: &str = "mysql";

/// A statement that failed. It can be told to everyone in its batch.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    kind: StoreErrorKind,
    pub(super) then: Then,
    cause: Cause,
}

/// What can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The connection is over, or of no use any more: another one may do.
    Reconnect,
    /// Two transactions were in each other's way: the same again.
    Repeat,
    /// Somebody has a row locked for long.
    Locked,
    /// A row is there already.
    Duplicate,
    /// Something about one of the rows: its neighbours may do better without it.
    Split,
    /// Nothing.
    Tell,
}

/// The cause, in words that give away no address, credential, key or body.
#[derive(Clone, Debug, Error)]
#[error("{0}")]
struct Cause(String);

impl Trouble {
    pub(super) fn unavailable(then: Then, cause: &str) -> Self {
        Self {
            kind: StoreErrorKind::Unavailable,
            then,
            cause: Cause(cause.to_owned()),
        }
    }

    /// No answer in time.
    pub(super) fn late() -> Self {
        Self::unavailable(Then::Tell, "no answer in time")
    }

    /// Somebody's transaction has the row, and goes on having it.
    pub(super) fn locked() -> Self {
        Self::unavailable(Then::Tell, "a transaction holds the record")
    }

    /// An answer that the server takes in no statement.
    pub(super) fn too_large() -> Self {
        Self {
            kind: StoreErrorKind::Full,
            then: Then::Tell,
            cause: Cause("the answer is larger than the server's max_allowed_packet".to_owned()),
        }
    }

    /// The error for one of those who asked.
    pub(super) fn to_error(&self) -> StoreError {
        StoreError::new(NAME, self.kind).caused_by(self.cause.clone())
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        trouble.to_error()
    }
}

/// A row that cannot be read.
pub(super) fn unreadable(why: &Misread) -> StoreError {
    StoreError::new(NAME, StoreErrorKind::Corrupt).caused_by(why.to_string())
}

impl From<sqlx::Error> for Trouble {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the driver has many errors that mean the same to us"
    )]
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(told) => match told.try_downcast_ref::<MySqlDatabaseError>() {
                Some(told) => Self::of_server(told.number(), told.message()),
                None => Self::unavailable(Then::Tell, "the server refused the statement"),
            },
            sqlx::Error::Io(io) => Self::unavailable(Then::Reconnect, &io.to_string()),
            sqlx::Error::Tls(tls) => Self::unavailable(Then::Reconnect, &tls.to_string()),
            sqlx::Error::Encode(_) => Self::unavailable(Then::Split, "a value cannot be sent"),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => Self {
                kind: StoreErrorKind::Corrupt,
                then: Then::Tell,
                cause: Cause("a column has an unexpected form".to_owned()),
            },
            _ => Self::unavailable(Then::Reconnect, "the connection is in disorder"),
        }
    }
}

impl Trouble {
    fn of_server(number: u16, message: &str) -> Self {
        use StoreErrorKind::{Corrupt, Full, Unavailable};
        let (kind, then) = match number {
            // Deadlock, and a row that changed since it was first read.
            1213 | 1020 => (Unavailable, Then::Repeat),
            1205 => (Unavailable, Then::Locked),
            1062 => (Unavailable, Then::Duplicate),
            // Out of disk or memory; a table that is full.
            1021 | 1037 | 1038 | 1041 | 1114 => (Full, Then::Tell),
            1030 if message.contains("error 28") => (Full, Then::Tell),
            // A packet that is too large.
            1153 => (Full, Then::Split),
            // A table or index that is damaged.
            1034 | 1194 | 1195 | 1712 => (Corrupt, Then::Tell),
            // Shut down, killed, timed out on the way; a primary that has become a replica; a
            // node of a cluster that is not part of it.
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
            | 4031 => (Unavailable, Then::Reconnect),
            // Too many connections, no right, no such table or database, no space for a log.
            1040 | 1044 | 1045 | 1049 | 1129 | 1130 | 1142 | 1143 | 1146 | 1203 | 1226 => {
                (Unavailable, Then::Tell)
            }
            _ => (Unavailable, Then::Split),
        };
        Self {
            kind,
            then,
            cause: Cause(words(number)),
        }
    }
}

/// What an error of the server means. Its own message may quote a row or a login.
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
        1213 | 1020 => "transactions were in each other's way",
        1290 | 1836 => "the server is read-only",
        1665 => "the binary log's format is STATEMENT: set binlog_format to MIXED or ROW",
        _ => "see the server's list of errors",
    };
    format!("error {number}: {meaning}")
}

/// What whoever opens the store is told.
pub(super) fn unopened(error: sqlx::Error) -> OpenError {
    let trouble = Trouble::from(error);
    match trouble.then {
        Then::Tell | Then::Split if trouble.kind == StoreErrorKind::Unavailable => {
            refused(trouble.cause.0)
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

//! What went wrong with a statement, and what that means for those who wait for it.

use onlyonce_core::{StoreError, StoreErrorKind};
use thiserror::Error;

pub(super) const NAME: &str = "postgres";

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

/// Stored bytes that cannot be read.
pub(super) fn corrupt(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::new(NAME, StoreErrorKind::Corrupt).caused_by(cause)
}

impl From<sqlx::Error> for Trouble {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what sqlx may add is no answer either"
    )]
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(told) => {
                Self::of_server(told.code().as_deref().unwrap_or_default(), told.message())
            }
            sqlx::Error::Io(io) => Self::unavailable(Then::Reconnect, &io.to_string()),
            sqlx::Error::PoolTimedOut => Self::unavailable(Then::Tell, "no connection in time"),
            sqlx::Error::PoolClosed => Self::unavailable(Then::Tell, "the pool is closed"),
            sqlx::Error::Encode(_) => Self::unavailable(Then::Split, "a value cannot be sent"),
            sqlx::Error::Tls(tls) => Self::unavailable(Then::Reconnect, &tls.to_string()),
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
    fn of_server(code: &str, message: &str) -> Self {
        let class = code.get(..2).unwrap_or_default();
        let (kind, then) = match (class, code) {
            // Serialization failure, deadlock.
            ("40", _) => (StoreErrorKind::Unavailable, Then::Repeat),
            // Out of disk, out of memory.
            (_, "53100" | "53200") => (StoreErrorKind::Full, Then::Tell),
            // Too large for the server in some way.
            ("54", _) => (StoreErrorKind::Full, Then::Split),
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
        };
        Self {
            kind,
            then,
            cause: Cause(words(class, code, message)),
        }
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

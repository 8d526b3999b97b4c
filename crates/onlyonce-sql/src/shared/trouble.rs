//! What went wrong with a statement, and what that means for those who wait for it.

use std::marker::PhantomData;

use onlyonce_core::{StoreError, StoreErrorKind};
use sqlx::error::DatabaseError;
use thiserror::Error;

/// A statement that failed. It can be told to everyone in its batch.
#[derive(Clone, Debug)]
pub(crate) struct Trouble<D> {
    pub(crate) kind: StoreErrorKind,
    pub(crate) then: Then,
    /// The server is well, but others were faster.
    contested: bool,
    cause: Cause,
    server: PhantomData<D>,
}

/// What can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The connection is over, or of no use any more: another one may do.
    Reconnect,
    /// Two transactions were in each other's way: the same again.
    Repeat,
    /// Somebody has a row locked for long.
    #[cfg(feature = "mysql")]
    Locked,
    /// A row is there already.
    #[cfg(feature = "mysql")]
    Duplicate,
    /// Something about one of the rows: its neighbours may do better without it.
    Split,
    /// Nothing.
    Tell,
}

/// How a kind of server tells of errors.
pub(crate) trait Dialect {
    /// The store's name.
    const NAME: &'static str;

    /// What an error of the server means, in words that quote no row and no login.
    fn read(told: &dyn DatabaseError) -> (StoreErrorKind, Then, String);
}

/// The cause, in words that give away no address, credential, key or body.
#[derive(Clone, Debug, Error)]
#[error("{0}")]
struct Cause(String);

impl<D: Dialect> Trouble<D> {
    pub(crate) fn new(kind: StoreErrorKind, then: Then, cause: impl Into<String>) -> Self {
        Self {
            kind,
            then,
            contested: then == Then::Repeat,
            cause: Cause(cause.into()),
            server: PhantomData,
        }
    }

    pub(crate) fn unavailable(then: Then, cause: &str) -> Self {
        Self::new(StoreErrorKind::Unavailable, then, cause)
    }

    /// No answer in time.
    pub(crate) fn late() -> Self {
        Self::unavailable(Then::Tell, "no answer in time")
    }

    /// Somebody's transaction has the row, and goes on having it.
    pub(crate) fn locked() -> Self {
        Self::unavailable(Then::Tell, "a transaction holds the record")
    }

    /// Others were faster to change the record, each time that it was tried.
    #[cfg(feature = "mysql")]
    pub(crate) fn raced() -> Self {
        Self {
            contested: true,
            ..Self::unavailable(Then::Tell, "others change the record faster")
        }
    }

    /// The same, with something else to be done about it.
    #[cfg(feature = "mysql")]
    pub(crate) fn with_then(self, then: Then) -> Self {
        Self { then, ..self }
    }

    /// The error for one of those who asked.
    pub(crate) fn to_error(&self) -> StoreError {
        let error = StoreError::new(D::NAME, self.kind).caused_by(self.cause.clone());
        match self.contested {
            true => error.contested(),
            false => error,
        }
    }

    /// The cause alone.
    #[cfg(feature = "mysql")]
    pub(crate) fn words(self) -> String {
        self.cause.0
    }

    /// The cause alone.
    #[cfg(feature = "postgres")]
    pub(crate) fn cause(&self) -> &str {
        &self.cause.0
    }
}

impl<D: Dialect> From<Trouble<D>> for StoreError {
    fn from(trouble: Trouble<D>) -> Self {
        trouble.to_error()
    }
}

impl<D: Dialect> From<sqlx::Error> for Trouble<D> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the driver has many errors that mean the same to us"
    )]
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(told) => {
                let (kind, then, cause) = D::read(&**told);
                Self::new(kind, then, cause)
            }
            sqlx::Error::Io(io) => Self::unavailable(Then::Reconnect, &io.to_string()),
            sqlx::Error::Tls(tls) => Self::unavailable(Then::Reconnect, &tls.to_string()),
            sqlx::Error::PoolTimedOut => Self::unavailable(Then::Tell, "no connection in time"),
            sqlx::Error::PoolClosed => Self::unavailable(Then::Tell, "the pool is closed"),
            sqlx::Error::Encode(_) => Self::unavailable(Then::Split, "a value cannot be sent"),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => Self::new(
                StoreErrorKind::Corrupt,
                Then::Tell,
                "a column has an unexpected form",
            ),
            _ => Self::unavailable(Then::Reconnect, "the connection is in disorder"),
        }
    }
}

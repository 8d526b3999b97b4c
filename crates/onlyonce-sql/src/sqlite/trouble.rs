//! What SQLite's errors mean to the caller of a store, and to whoever opens one.

use onlyonce_core::{StoreError, StoreErrorKind};

use crate::steps::Misread;
use onlyonce_storekit::OpenError;

pub(super) const NAME: &str = "sqlite";

/// SQLite's primary result codes that we tell apart.
const ERROR: i32 = 1;
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const NO_MEMORY: i32 = 7;
const READ_ONLY: i32 = 8;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANNOT_OPEN: i32 = 14;
const TOO_BIG: i32 = 18;
const CONSTRAINT: i32 = 19;
const NOT_A_DATABASE: i32 = 26;

/// The primary result code, where it was SQLite that failed.
fn code(error: &sqlx::Error) -> Option<i32> {
    let extended: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(extended & 0xff)
}

/// Whether somebody else held the lock all the time.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(code(error), Some(BUSY | LOCKED))
}

/// Whether the connection can still be used.
pub(super) fn is_harmless(error: &sqlx::Error) -> bool {
    matches!(
        code(error),
        Some(BUSY | LOCKED | FULL | TOO_BIG | CONSTRAINT)
    )
}

/// What the caller of a verb is told.
pub(super) fn failed(error: sqlx::Error) -> StoreError {
    let kind = match code(&error) {
        Some(FULL | NO_MEMORY) => StoreErrorKind::Full,
        Some(TOO_BIG) => StoreErrorKind::TooLarge,
        Some(CORRUPT | NOT_A_DATABASE) => StoreErrorKind::Corrupt,
        Some(_) | None => StoreErrorKind::Unavailable,
    };
    StoreError::new(NAME, kind).caused_by(error)
}

/// The same error for one more caller.
pub(super) fn again(error: &StoreError) -> StoreError {
    let cause = error.source.as_ref().map(ToString::to_string);
    StoreError::new(NAME, error.kind).caused_by(cause.unwrap_or_default())
}

/// A row that cannot be read.
pub(super) fn unreadable(why: &Misread) -> StoreError {
    StoreError::new(NAME, StoreErrorKind::Corrupt).caused_by(why.to_string())
}

/// What whoever opens the store is told, with what to do about it.
pub(super) fn unopened(error: sqlx::Error) -> OpenError {
    let why = match code(&error) {
        Some(CANNOT_OPEN) => {
            "its file cannot be opened: its folder must exist, and this user must be able to write there"
        }
        Some(READ_ONLY) => {
            "its file is read-only: this user must be able to write it, and to make files beside it"
        }
        Some(NOT_A_DATABASE | CORRUPT) => {
            "its file is damaged or no SQLite database: name another path, or restore it from a backup"
        }
        // Such as a file format of another time; SQLite's own words tell most.
        Some(ERROR) => return refused(format!("its file cannot be read: {error}")),
        Some(_) | None => return OpenError::Store(failed(error)),
    };
    refused(why)
}

pub(super) fn refused(why: impl Into<String>) -> OpenError {
    let why = why.into();
    OpenError::Refused { store: NAME, why }
}

//! What the SQL stores share: their options, the names and versions of their tables, what went
//! wrong with a statement, and who waits for a slot.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) use migrate::Migrations;
pub(super) use options::Table;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(super) use options::split;
pub use options::{SqlOptions, completion_name};
pub(super) use replaced::Replaced;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) use running::{Asking, GIVEN_UP_MAX, GivenUp, Running};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) use trouble::{Dialect, Then, Trouble};
pub(super) use waiters::Waiters;

mod migrate;
mod options;
mod replaced;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod running;
#[cfg(test)]
mod tests;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod trouble;
mod waiters;

/// Locks, also after a panic elsewhere: every critical section leaves its data whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

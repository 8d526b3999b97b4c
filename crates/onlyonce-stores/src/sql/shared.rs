//! What the SQL stores share: the names and options of their tables, time as columns hold it, a
//! row as the reference semantics see it, and who waits for a slot.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) use held::Held;
pub(super) use migrate::Migrations;
pub use options::SqlOptions;
pub(super) use options::{Table, split};
pub(super) use row::{Cells, Columns, Misread, READ_COLUMNS, in_state, read_held, read_slot};
pub(super) use waiters::Waiters;

mod held;
mod migrate;
mod options;
mod row;
#[cfg(test)]
mod tests;
mod waiters;

/// Durations beyond this, some eight thousand years, count as this: sums of them fit a column.
const MILLIS_MAX: i64 = 250_000_000_000_000;

/// `duration` in whole milliseconds: rounded up, so that no lease is shorter than asked, and
/// bounded, so that no deadline overflows.
pub(super) fn whole(duration: Duration) -> Duration {
    from_millis(to_millis(duration).min(MILLIS_MAX))
}

/// A moment or a duration as a column holds it.
pub(super) fn to_millis(duration: Duration) -> i64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// A moment or a duration as a column held it. What is before 1970 is as good as 1970.
pub(super) fn from_millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// Locks, also after a panic elsewhere: every critical section leaves its data whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

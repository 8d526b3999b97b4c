//! What the stores share that decide in their own process, by the steps of the reference store: a
//! row as those steps see it, its columns, and time as columns hold it.

use std::time::Duration;

pub(super) use held::Held;
pub(super) use row::{
    Cells, Columns, Dropped, Misread, READ_COLUMNS, WRITTEN, bind, ended_columns, in_state,
    read_held, read_slot,
};

mod held;
mod row;
#[cfg(test)]
mod tests;

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

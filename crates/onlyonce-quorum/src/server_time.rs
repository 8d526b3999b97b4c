//! What a process knows of a server's clock, so that it can say by that clock when a question is too late.
//! No two servers' clocks are compared.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::model::VOTE_GOOD_FOR;

/// An answer that a question was too late, so soon after it was asked, speaks of a clock that jumped: it is
/// asked once more.
const TOO_LATE_AFTER: Duration = Duration::from_secs(10);

/// The server's date when it was last heard of, and this process's time then.
#[derive(Debug, Default)]
pub struct ServerTime(Mutex<Option<(Duration, Duration)>>);

impl ServerTime {
    /// The server said that it is `date`, at `now` of this process's clock.
    pub fn heard(&self, date: Duration, now: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((date, now));
    }

    /// Until when, by its own clock, a question of `now` counts there. Nothing if it was never heard of.
    pub fn until(&self, now: Duration) -> Option<Duration> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (date, at) = known?;
        Some(date + now.saturating_sub(at) + VOTE_GOOD_FOR)
    }

    /// Whether a question that was too late is worth asking again.
    pub fn has_jumped(asked: Duration, now: Duration) -> bool {
        now.saturating_sub(asked) < TOO_LATE_AFTER
    }
}

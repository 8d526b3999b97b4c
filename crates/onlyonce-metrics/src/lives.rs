//! When keys end, counted in steps: a thousandth of a key's time is as near as a metric needs, and
//! it bounds how much is kept.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A step of the ends of keys that are kept equally long.
const STEPS: u32 = 1000;
const STEP_MIN: Duration = Duration::from_secs(1);

/// How many keys end when, by how long they are kept.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    ends: Mutex<BTreeMap<(Duration, Duration), u64>>,
}

impl Lives {
    /// A key was stored at `now`.
    pub(crate) fn begin(&self, now: Duration, keep_for: Duration) {
        self.resume(now + keep_for, keep_for);
    }

    /// A key that was stored earlier ends at `due`.
    pub(crate) fn resume(&self, due: Duration, keep_for: Duration) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let step = (end(due, keep_for), keep_for);
        *ends.entry(step).or_default() += 1;
    }

    /// A key that would have ended at `due` is gone; false if it was not begun here.
    pub(crate) fn cut_short(&self, due: Duration, keep_for: Duration) -> bool {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        // When it began is known to a second or so: the step before may be the one.
        let due = end(due, keep_for).saturating_sub(step(keep_for));
        let mut near = ends.range_mut((due, Duration::ZERO)..);
        let Some((_, count)) = near.find(|((_, kept), count)| *kept == keep_for && **count > 0)
        else {
            return false;
        };
        *count -= 1;
        true
    }

    /// The keys that have ended by `now`: how long they were kept, and how many.
    pub(crate) fn ended(&self, now: Duration) -> Vec<(Duration, u64)> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let later = ends.split_off(&(now + Duration::from_nanos(1), Duration::ZERO));
        let ended = std::mem::replace(&mut *ends, later);
        let ended = ended.into_iter().map(|((_, kept), count)| (kept, count));
        ended.filter(|(_, count)| *count > 0).collect()
    }
}

fn step(keep_for: Duration) -> Duration {
    (keep_for / STEPS).max(STEP_MIN)
}

/// The end of the step in which `due` lies.
fn end(due: Duration, keep_for: Duration) -> Duration {
    let step = step(keep_for).as_millis();
    let steps = due.as_millis().div_ceil(step);
    Duration::from_millis(u64::try_from(steps * step).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::Lives;
    use std::time::Duration;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn a_key_ends_after_its_time_and_not_before() {
        let lives = Lives::default();
        lives.begin(Duration::ZERO, DAY);

        assert_eq!(lives.ended(DAY - Duration::from_secs(1)), []);
        assert_eq!(lives.ended(DAY + DAY / 1000), [(DAY, 1)]);
        assert_eq!(lives.ended(DAY * 2), []);
    }

    #[test]
    fn a_forgotten_key_does_not_end_again() {
        let lives = Lives::default();
        lives.begin(Duration::ZERO, DAY);

        assert!(lives.cut_short(DAY, DAY));
        assert!(!lives.cut_short(DAY, DAY));
        assert_eq!(lives.ended(DAY * 2), []);
    }

    #[test]
    fn a_million_keys_of_a_day_take_a_thousand_steps() {
        let lives = Lives::default();
        for second in 0..1_000_000 {
            lives.begin(Duration::from_millis(second * 86), DAY);
        }

        assert!(lives.ends.lock().unwrap().len() <= 1002);
    }
}

//! Durations that decide nothing on a slow machine, and the measure of how slow it is.

use std::time::Duration;

use onlyonce_core::{Clock, SystemClock};

/// Outlives every test, however slow the machine.
pub(super) const LONG: Duration = Duration::from_secs(60);
/// Is over after [`PAST_SHORT`]; nothing may depend on its not being over before.
pub(super) const SHORT: Duration = Duration::from_millis(200);
pub(super) const PAST_SHORT: Duration = Duration::from_millis(300);
/// Time for a waiter to begin waiting. Nothing depends on its having done so.
pub(super) const A_MOMENT: Duration = Duration::from_millis(20);
/// By when a waiter must have been woken. Far more than a wake takes, far less than [`LONG`].
pub(super) const WAKE_MAX: Duration = Duration::from_secs(10);
/// Stores may round to milliseconds, and two clocks need not run quite alike.
pub(super) const SLACK: Duration = Duration::from_millis(20);

/// How much time passes around what a test does, so that a slow machine cannot fail it.
pub(super) struct Stopwatch {
    clock: SystemClock,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self {
            clock: SystemClock::new(),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.clock.now()
    }

    /// That `left`, just read, was `whole` at some moment since the start.
    pub(super) fn assert_counted_from_now(&self, left: Duration, whole: Duration) {
        assert!(left <= whole + SLACK, "{left:?} left of {whole:?}");
        let least = whole.saturating_sub(self.elapsed() + SLACK);
        assert!(left >= least, "{left:?} left of {whole:?}, not {least:?}");
    }
}

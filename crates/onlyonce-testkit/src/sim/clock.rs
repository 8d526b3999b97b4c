//! Virtual time. The store's clock only ticks; a process's clock can also jump, and stops for
//! good when its process crashes.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use onlyonce_core::{Clock, SystemClock, Timestamp};

/// A moment or a length of time in milliseconds: tokio's timers know nothing shorter.
pub(super) type Ms = u64;

/// By how much a clock jumps at most.
pub(super) const JUMP_MAX: Ms = 4000;
/// What the store's wall clock shows when a run begins.
const EPOCH: Ms = 1_700_000_000_000;
/// Where a process's clock begins: far enough from zero to jump back.
const PROCESS_ORIGIN_MS: i64 = 1_000_000_000;

pub(super) fn millis(ms: Ms) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn in_millis(time: Duration) -> Ms {
    Ms::try_from(time.as_millis()).expect("a run lasts minutes, not ages")
}

/// The date and time the store shows at `moment`.
pub(super) fn wall(moment: Ms) -> Timestamp {
    Timestamp::from_millis(EPOCH + moment)
}

pub(super) async fn pause(ms: Ms) {
    if ms > 0 {
        tokio::time::sleep(millis(ms)).await;
    }
}

/// The run's time, as the store sees it.
pub(super) struct StoreClock(SystemClock);

impl StoreClock {
    /// Starts at zero; must be made inside the runtime whose time is paused.
    pub(super) fn new() -> Self {
        Self(SystemClock::new())
    }

    pub(super) fn ms(&self) -> Ms {
        in_millis(self.0.now())
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        wall(self.ms())
    }
}

/// One process's own idea of the time.
pub(super) struct ProcessClock {
    ticking: SystemClock,
    offset_ms: AtomicI64,
    stopped: AtomicBool,
}

impl ProcessClock {
    pub(super) fn new() -> Self {
        Self {
            ticking: SystemClock::new(),
            offset_ms: AtomicI64::new(PROCESS_ORIGIN_MS),
            stopped: AtomicBool::new(false),
        }
    }

    pub(super) fn jump(&self, by_ms: i64) {
        self.offset_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// Shows zero from now on. For a crashed process everything is due in ages, so that its
    /// timers do not keep the rest of the run busy.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Clock for ProcessClock {
    fn now(&self) -> Duration {
        if self.stopped.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        let offset = self.offset_ms.load(Ordering::Relaxed);
        self.ticking.now() + millis(Ms::try_from(offset).unwrap_or(0))
    }

    fn wall(&self) -> Timestamp {
        wall(in_millis(self.now()))
    }
}

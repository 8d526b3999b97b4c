//! CLOCK_MONOTONIC: comparable between the processes of one machine, whatever their wall clocks
//! say. Read without libc, so that a process under a shifted clock tells the same time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Microseconds of CLOCK_MONOTONIC.
pub type Micros = u64;

pub(crate) fn now() -> Micros {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds * 1_000_000 + nanos / 1000
}

pub(crate) const fn micros(ms: u64) -> Micros {
    ms.saturating_mul(1000)
}

pub(crate) fn in_micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
}

/// Sleeps until `at`, or not at all if that is past.
pub(crate) async fn sleep_until(at: Micros) {
    let left = at.saturating_sub(now());
    if left > 0 {
        tokio::time::sleep(Duration::from_micros(left)).await;
    }
}

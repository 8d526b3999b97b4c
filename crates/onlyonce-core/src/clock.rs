//! Time, from one place. Leases and retention are durations on the store's clock; an
//! application clock is never compared with a stored one. `Timestamp`s are for people to read.

use std::fmt::{self, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where a process reads the time, so that tests and the simulator can move it.
pub trait Clock: Send + Sync + 'static {
    /// Time since an arbitrary origin; never goes back on a healthy machine.
    fn now(&self) -> Duration;

    /// The date and time to show. Nothing is decided by it but whether a key that carries its own
    /// time is still good ([`KeyTimeRule`](crate::policy::KeyTimeRule)).
    fn wall(&self) -> Timestamp;
}

/// The machine's own clocks. Follows tokio's paused time in tests.
#[derive(Debug)]
pub struct SystemClock {
    origin: tokio::time::Instant,
}

impl SystemClock {
    /// A clock whose origin is now.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the machine's clock"
    )]
    pub fn new() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the machine's clock"
    )]
    fn wall(&self) -> Timestamp {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Milliseconds since 1970 on the clock of its writer: shown, and compared only with
/// the time that a client's key carries.
#[derive(Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "u64")]
pub struct Timestamp(u64);

impl From<u64> for Timestamp {
    fn from(millis: u64) -> Self {
        Self::from_millis(millis)
    }
}

const RFC3339_BYTES: usize = "2025-11-03T18:30:00.000Z".len();
/// The last moment RFC 3339 can write: 9999-12-31T23:59:59.999Z.
const TIMESTAMP_MILLIS_MAX: u64 = 253_402_300_799_999;

impl Timestamp {
    /// From milliseconds since 1970; later than the year 9999 counts as its last moment.
    pub const fn from_millis(millis: u64) -> Self {
        if millis > TIMESTAMP_MILLIS_MAX {
            Self(TIMESTAMP_MILLIS_MAX)
        } else {
            Self(millis)
        }
    }

    /// Milliseconds since 1970.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// RFC 3339 in UTC with milliseconds: `2025-11-03T18:30:00.000Z`.
    pub fn to_rfc3339(self) -> String {
        let mut text = String::with_capacity(RFC3339_BYTES);
        write!(text, "{self}").expect("a string takes whatever is written");
        text
    }

    /// How much later this is than `earlier` on the same clock; nothing if it is not.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// This moment and `by` more.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        Self::from_millis(self.0.saturating_add(by))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = UNIX_EPOCH + Duration::from_millis(self.0);
        fmt::Display::fmt(&humantime::format_rfc3339_millis(moment), f)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

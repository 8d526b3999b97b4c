//! Time that outlives a process. A store on this machine keeps the moment at which it was last used
//! by three clocks: its own, the wall clock, and the time since the machine was booted. Within one
//! boot its own time goes on by the boot clock, which nobody can set; after a restart of the machine
//! it goes on by what the wall clock says has passed, and never backwards.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Clock;

#[cfg(test)]
mod tests;

/// A wall clock that moved further than this, other than by time passing, is reported.
const JUMP_MAX: Duration = Duration::from_secs(3600);
/// A wall clock that was set by more than this is kept soon.
const DRIFT_MAX: Duration = Duration::from_secs(1);
/// How old a kept moment may become.
const KEPT_AGE_MAX: Duration = Duration::from_secs(300);

/// The machine's boot.
pub trait BootClock: Send + Sync + 'static {
    /// Which boot this is, and how long ago it was, sleep included; nothing where that is unknown.
    fn boot(&self) -> Option<Boot>;
}

/// A boot of a machine, at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// What tells it from all others.
    pub id: String,
    /// How long ago it was.
    pub since: Duration,
}

/// A moment by all clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The boot, where it is known.
    pub boot: Option<Boot>,
    /// What the machine's date was, counted from 1970.
    pub wall: Duration,
    /// The store's own time: deadlines are moments of it.
    pub store: Duration,
}

/// What the wall clock did since a store was last used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// It was set ahead while the machine ran.
    SetAhead(Duration),
    /// It was set back while the machine ran.
    SetBack(Duration),
    /// The machine was restarted, and this much later it is by its clock.
    Passed(Duration),
    /// The machine was restarted, and its clock is this far behind the moment kept.
    Behind(Duration),
}

/// A store's own time in this process.
pub struct StoreTime {
    clock: Arc<dyn Clock>,
    boot: Arc<dyn BootClock>,
    /// What the store's time was when `clock` showed `clock_at`.
    store_at: Duration,
    clock_at: Duration,
}

impl StoreTime {
    /// Goes on from the moment kept, or begins with the wall clock; says what that clock did.
    pub fn resume(
        clock: Arc<dyn Clock>,
        boot: Arc<dyn BootClock>,
        kept: Option<&Moment>,
    ) -> (Self, Option<Jump>) {
        let clock_at = clock.now();
        let wall = wall(&*clock);
        let (store_at, jump) = match kept {
            Some(kept) => kept.resume(boot.boot().as_ref(), wall),
            None => (wall, None),
        };
        let time = Self {
            clock,
            boot,
            store_at,
            clock_at,
        };
        (time, jump)
    }

    /// The store's time, counted from 1970.
    pub fn now(&self) -> Duration {
        let elapsed = self.clock.now().saturating_sub(self.clock_at);
        self.store_at.saturating_add(elapsed)
    }

    /// This moment, to be kept.
    pub fn moment(&self) -> Moment {
        Moment {
            boot: self.boot.boot(),
            wall: wall(&*self.clock),
            store: self.now(),
        }
    }
}

fn wall(clock: &dyn Clock) -> Duration {
    Duration::from_millis(clock.wall().as_millis())
}

impl Moment {
    /// The store's time now, if this was kept last.
    fn resume(&self, boot: Option<&Boot>, wall: Duration) -> (Duration, Option<Jump>) {
        let passed = wall.saturating_sub(self.wall);
        let Some(elapsed) = self.elapsed(boot) else {
            let behind = self.wall.saturating_sub(wall);
            let jump = if behind > DRIFT_MAX {
                Some(Jump::Behind(behind))
            } else {
                Some(Jump::Passed(passed)).filter(|_| passed > JUMP_MAX)
            };
            return (self.store.saturating_add(passed), jump);
        };
        let expected = self.wall.saturating_add(elapsed);
        let (ahead, back) = (wall.saturating_sub(expected), expected.saturating_sub(wall));
        let jump = match (ahead > JUMP_MAX, back > JUMP_MAX) {
            (true, _) => Some(Jump::SetAhead(ahead)),
            (_, true) => Some(Jump::SetBack(back)),
            (false, false) => None,
        };
        (self.store.saturating_add(elapsed), jump)
    }

    /// How long ago this was by the boot clock; nothing if it was in another boot.
    fn elapsed(&self, boot: Option<&Boot>) -> Option<Duration> {
        let (then, now) = (self.boot.as_ref()?, boot?);
        if then.id != now.id {
            return None;
        }
        now.since.checked_sub(then.since)
    }

    /// Whether `now` should be kept in this one's stead: the machine was rebooted, the wall clock
    /// was set, or time passed.
    pub fn is_outdated(&self, now: &Moment) -> bool {
        let id = |boot: &Option<Boot>| boot.as_ref().map(|boot| boot.id.clone());
        let by_wall = now.wall.abs_diff(self.wall);
        let by_store = now.store.saturating_sub(self.store);
        id(&self.boot) != id(&now.boot)
            || by_store > KEPT_AGE_MAX
            || by_wall.abs_diff(by_store) > DRIFT_MAX
            || (now.wall < self.wall && by_wall > DRIFT_MAX)
    }
}

impl Jump {
    /// Tells the operator of the process that opens `store`.
    pub fn report(self, store: &str) {
        match self {
            Self::SetAhead(ahead) => tracing::warn!(
                target: "onlyonce", store, seconds = ahead.as_secs(),
                "the machine's clock was set ahead since this store was last used; the store goes on by the time since the machine was booted, and nothing expires early"
            ),
            Self::SetBack(back) => tracing::warn!(
                target: "onlyonce", store, seconds = back.as_secs(),
                "the machine's clock was set back since this store was last used; the store goes on by the time since the machine was booted"
            ),
            Self::Passed(passed) => tracing::warn!(
                target: "onlyonce", store, seconds = passed.as_secs(),
                "the machine was restarted, and by its clock this much time has passed since this store was last used: what was to be kept for less has expired. If the machine was not off for so long, its clock was wrong or is"
            ),
            Self::Behind(behind) => tracing::warn!(
                target: "onlyonce", store, seconds = behind.as_secs(),
                "the machine was restarted, and its clock is behind the moment at which this store was last used; the store goes on from that moment, and records are kept longer"
            ),
        }
    }
}

/// The boot of this machine.
pub struct MachineBoot {
    id: Option<String>,
}

impl Default for MachineBoot {
    fn default() -> Self {
        Self::new()
    }
}

impl MachineBoot {
    /// The boot that this process runs in.
    pub fn new() -> Self {
        // The kernel makes it at random for each boot.
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let id = id.map(|id| id.trim().to_owned());
        Self {
            id: id.filter(|id| !id.is_empty() && since_boot().is_some()),
        }
    }
}

impl BootClock for MachineBoot {
    fn boot(&self) -> Option<Boot> {
        // As exact as it is kept, so that nothing is gained or lost by keeping it.
        let since = since_boot()?.as_millis();
        Some(Boot {
            id: self.id.clone()?,
            since: Duration::from_millis(u64::try_from(since).ok()?),
        })
    }
}

/// The time since the machine was booted, which all its processes read alike.
#[cfg(target_os = "linux")]
pub fn since_boot() -> Option<Duration> {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(since).ok()
}

#[cfg(not(target_os = "linux"))]
pub fn since_boot() -> Option<Duration> {
    None
}

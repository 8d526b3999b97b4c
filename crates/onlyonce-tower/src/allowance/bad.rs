//! Bad requests, counted for each caller. One who sends too many is paused: a guesser must not
//! learn from the next guess either, so everything it sends under a key is refused until then.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use onlyonce_core::slot::SlotMap;
use onlyonce_core::{Clock, Slot};

use super::{CALLERS_MAX, OTHERS};

type Limiter = RateLimiter<Slot, HashMapStateStore<Slot>, Ticks, NoOpMiddleware<Nanos>>;

pub(super) struct Bad {
    limiter: Limiter,
    /// Who is paused, and until when.
    paused: Mutex<SlotMap<Duration>>,
    clock: Arc<dyn Clock>,
}

impl Bad {
    pub(super) fn new(a_minute: NonZeroU32, clock: Arc<dyn Clock>) -> Self {
        let ticks = Ticks(Arc::clone(&clock));
        let quota = Quota::per_minute(a_minute);
        Self {
            limiter: RateLimiter::new(quota, HashMapStateStore::default(), ticks),
            paused: Mutex::default(),
            clock,
        }
    }

    /// Whether it is worth asking who.
    pub(super) fn is_anyone_paused(&self) -> bool {
        !self.lock().is_empty()
    }

    /// How long `caller` is still paused, if it is.
    pub(super) fn paused(&self, caller: &Slot) -> Option<Duration> {
        let mut paused = self.lock();
        let left = paused.get(caller)?.saturating_sub(self.clock.now());
        if left.is_zero() {
            paused.remove(caller);
            return None;
        }
        Some(left)
    }

    /// Counts a bad request; one too many pauses its caller for as long as it says.
    pub(super) fn count(&self, caller: &Slot) -> Option<Duration> {
        if let Some(left) = self.paused(caller) {
            return Some(left);
        }
        let left = self.over(caller)?;
        let is_shared = !self.has_place();
        if is_shared {
            return Some(left);
        }
        let now = self.clock.now();
        let mut paused = self.lock();
        if paused.len() >= CALLERS_MAX {
            paused.retain(|_, until| *until > now);
        }
        if paused.len() < CALLERS_MAX {
            paused.insert(*caller, now + left);
        }
        Some(left)
    }

    /// Counts a bad request without pausing anyone: how long until the next one is told what is
    /// wrong with it, if this one is one too many.
    pub(super) fn over(&self, caller: &Slot) -> Option<Duration> {
        if !self.has_place() {
            self.limiter.retain_recent();
        }
        let counted = if self.has_place() { caller } else { &OTHERS };
        let until = self.limiter.check_key(counted).err()?;
        Some(until.wait_time_from(Nanos::from(self.clock.now())))
    }

    /// Whether callers are counted by name. Those without a place are counted together, and no
    /// single one of them can be blamed.
    fn has_place(&self) -> bool {
        self.limiter.len() < CALLERS_MAX
    }

    fn lock(&self) -> MutexGuard<'_, SlotMap<Duration>> {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Our clock, as the limiter reads it.
#[derive(Clone)]
struct Ticks(Arc<dyn Clock>);

impl governor::clock::Clock for Ticks {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.0.now().into()
    }
}

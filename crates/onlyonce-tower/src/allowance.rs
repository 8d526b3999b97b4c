//! What one caller may take: keys and bytes of the store, so that a flood of new keys by one cannot
//! fill it for all (docs/protocol.md#rule-20), and bad requests in a minute, so that keys cannot be guessed.
//! It lives in the layer, which knows the caller and words refusals; the engine knows no callers.
//!
//! Counted in this process, without a word to the store: with n processes a caller has n times as
//! much. Only new keys count; a replay never does, and is given also to a caller with nothing left.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_core::policy::Fate;
use onlyonce_core::{Call, Clock, Engine, Execution, Outcome, Reason, Refusal, Slot, SystemClock};

mod bad;
mod used;

use self::bad::Bad;
use self::used::Used;
use crate::scope::Asker;

/// Callers known by name; those beyond share one allowance.
const CALLERS_MAX: usize = 10_000;
/// The one they share.
const OTHERS: Slot = Slot::from_bytes([0; Slot::BYTES]);
/// When to come back if nothing says when there is room.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// What one caller may take. Clones count together.
///
/// Who takes too much is who it is proven to be (a [`Principal`](crate::Principal), a verified
/// token, a trusted header), else the [`ClientAddress`](crate::ClientAddress) it comes from. Who is
/// wrong too often is told by its own credential or session, and is paused: all it sends under a key
/// is refused for a while. Those who are known only by their address, which may be a proxy's, are
/// refused no more than their bad requests. New keys are bounded before they run: what runs at the
/// same time may go over it.
///
/// ```
/// use onlyonce_tower::{Allowance, AllowanceRule};
///
/// let allowance = Allowance::new(AllowanceRule {
///     keys_max: Some(1_000),
///     ..AllowanceRule::default()
/// });
/// # let _ = allowance;
/// ```
#[derive(Clone)]
pub struct Allowance {
    rule: AllowanceRule,
    used: Arc<Mutex<Used>>,
    bad: Arc<Bad>,
    clock: Arc<dyn Clock>,
}

/// How much that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowanceRule {
    /// Records kept at a time. No bound unless told: how much is too much, only its owner knows.
    pub keys_max: Option<u64>,
    /// Bytes of the answers in them. No bound unless told.
    pub bytes_max: Option<u64>,
    /// Bad keys, and keys used for something else, in a minute.
    pub bad_requests_a_minute: NonZeroU32,
}

impl Default for AllowanceRule {
    /// Any number of keys and bytes, sixty mistakes a minute.
    fn default() -> Self {
        Self {
            keys_max: None,
            bytes_max: None,
            bad_requests_a_minute: NonZeroU32::new(60).expect("sixty is not zero"),
        }
    }
}

impl Allowance {
    /// An allowance of which nothing is used yet.
    pub fn new(rule: AllowanceRule) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        Self {
            rule,
            used: Arc::default(),
            bad: Arc::new(Bad::new(rule.bad_requests_a_minute, Arc::clone(&clock))),
            clock,
        }
    }

    /// Another rule for the same callers: what they have used stays used.
    #[must_use]
    pub fn under(&self, rule: AllowanceRule) -> Self {
        let mut changed = self.clone();
        if rule.bad_requests_a_minute != self.rule.bad_requests_a_minute {
            let clock = Arc::clone(&self.clock);
            changed.bad = Arc::new(Bad::new(rule.bad_requests_a_minute, clock));
        }
        changed.rule = rule;
        changed
    }

    /// Whether this call may go on: not if its caller is paused, nor if its key is a new one and
    /// there is no room for it. Only a caller without room costs a question to the store. If keys
    /// or bytes are bounded, gives what counts them.
    pub(crate) async fn admit(
        &self,
        engine: &Engine,
        call: &Call,
        asker: &Asker,
    ) -> Result<Option<Taking>, Refusal> {
        if self.bad.is_anyone_paused()
            && let Some(left) = asker.itself(engine).and_then(|it| self.bad.paused(&it))
        {
            return Err(Refusal::new(Reason::TooManyBadRequests).retry_after(left));
        }
        if self.rule.keys_max.is_none() && self.rule.bytes_max.is_none() {
            return Ok(None);
        }
        let caller = asker.taker(engine);
        let full = self.lock().full(&caller, &self.rule, self.clock.now());
        if let Some(room_in) = full
            && let Ok(false) = engine.is_known(call).await
        {
            return Err(Refusal::new(Reason::OverQuota).retry_after(room_in));
        }
        // If the store failed to say, the claim says so.
        let allowance = self.clone();
        Ok(Some(Taking { allowance, caller }))
    }

    /// Counts a refusal that a guesser would get; one too many is told instead. Who is known, or
    /// shows a credential of its own, is then paused. Whoever is only known by an address is not:
    /// others may come from there too, and their good requests must not pay for it.
    pub(crate) fn counted(&self, refusal: Refusal, asker: &Asker, engine: &Engine) -> Refusal {
        let is_bad = matches!(
            refusal.reason,
            Reason::BadKey | Reason::Mismatch | Reason::OtherCredential
        );
        if !is_bad {
            return refusal;
        }
        let itself = asker.itself(engine);
        // Ever new credentials that claim to be somebody else's cost nothing to make.
        let by_address = itself.is_none() || refusal.reason == Reason::OtherCredential;
        let paused = itself.and_then(|it| self.bad.count(&it));
        let over = || self.bad.over(&asker.origin(engine));
        match paused.or_else(|| by_address.then(over).flatten()) {
            Some(left) => Refusal::new(Reason::TooManyBadRequests).retry_after(left),
            None => refusal,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Allowance({:?})", self.rule)
    }
}

/// Whose share a new key would take.
pub(crate) struct Taking {
    allowance: Allowance,
    caller: Slot,
}

impl Taking {
    /// Counts a new key, which runs now.
    pub(crate) fn take(self, keep_for: Duration) -> Taken {
        let Self { allowance, caller } = self;
        let caller = allowance.lock().start(caller, allowance.clock.now());
        Taken {
            allowance,
            caller,
            keep_for,
            ended: false,
        }
    }
}

/// A new key that runs. Dropped without an end, its record stays, without an answer.
pub(crate) struct Taken {
    allowance: Allowance,
    caller: Slot,
    keep_for: Duration,
    ended: bool,
}

impl Taken {
    /// What became of it: kept with its bytes, or given back.
    pub(crate) fn end(mut self, outcome: &Outcome, execution: &Execution) {
        match outcome {
            Outcome::Finished(response) => match execution.fate() {
                Fate::Stored => self.keep(u64::try_from(response.bytes()).unwrap_or(u64::MAX)),
                Fate::Released => self.give_back(),
                Fate::InDoubt => self.keep(0),
            },
            Outcome::NotRun => self.give_back(),
            Outcome::Unknown => self.keep(0),
        }
    }

    fn give_back(&mut self) {
        self.ended = true;
        self.allowance.lock().give_back(&self.caller);
    }

    fn keep(&mut self, bytes: u64) {
        self.ended = true;
        let now = self.allowance.clock.now();
        let mut used = self.allowance.lock();
        used.keep(&self.caller, bytes, now, self.keep_for);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.ended {
            self.keep(0);
        }
    }
}

//! The circuit breaker: closed; open after failures in a row, until a probe finds the store back;
//! or, if none does for a while, half open while one claim is tried. What it decides depends on the
//! moments and ends it is told of, nothing else.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use onlyonce_core::{Clock, StoreError};
use thiserror::Error;

use crate::wrap::lock;

/// Where a breaker stands. The numbers are those of the metric
/// `idempotency.circuit_breaker.state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BreakerState {
    /// Claims go through.
    Closed = 0,
    /// Claims are refused; also when its time is up, until a claim comes to be tried.
    Open = 1,
    /// One claim is being tried, the others are refused.
    HalfOpen = 2,
}

impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        })
    }
}

/// What a breaker has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerTally {
    /// Where it stands.
    pub state: BreakerState,
    /// How often it opened.
    pub opened: u64,
    /// How many claims it refused.
    pub rejected: u64,
}

/// Why a claim was refused without asking the store: the source of that error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BreakerOpen {
    /// It failed too often.
    #[error(
        "the circuit breaker is open after {failures} failures in a row: the store is tried again in {} s at the latest",
        whole_secs(*.left)
    )]
    For {
        /// After how many failures in a row.
        failures: u32,
        /// How long it stays open at most.
        left: Duration,
    },
    /// One claim is being tried right now.
    #[error("the circuit breaker is half-open: another claim is trying the store right now")]
    Trying,
}

/// Rounded up: who comes back after that is not too early.
fn whole_secs(left: Duration) -> u64 {
    left.as_secs() + u64::from(left.subsec_nanos() > 0)
}

/// Failures that are told of when the breaker opens.
const RECENT_ERRORS_MAX: usize = 5;

type Tell = Arc<dyn Fn(BreakerState) + Send + Sync>;

/// Clones are one breaker, with the settings it has when it is cloned.
#[derive(Clone)]
pub(super) struct Breaker {
    failures_max: u32,
    open_for: Duration,
    tell: Option<Tell>,
    backend: &'static str,
    shared: Arc<Shared>,
}

struct Shared {
    standing: Mutex<Standing>,
    /// The state of the phase, to be read without its lock.
    state: AtomicU8,
    opened: AtomicU64,
    rejected: AtomicU64,
}

struct Standing {
    phase: Phase,
    /// Somebody probes the store, and goes on until the breaker is closed.
    is_probed: bool,
    /// What the last failures were, as the store said it: the newest last.
    recent_errors: VecDeque<String>,
}

#[derive(Clone, Copy)]
enum Phase {
    Closed { failures: u32 },
    Open { until: Duration },
    HalfOpen,
}

impl Phase {
    fn state(self) -> BreakerState {
        match self {
            Self::Closed { .. } => BreakerState::Closed,
            Self::Open { .. } => BreakerState::Open,
            Self::HalfOpen => BreakerState::HalfOpen,
        }
    }
}

impl Standing {
    fn note(&mut self, error: String) {
        if self.recent_errors.len() >= RECENT_ERRORS_MAX {
            self.recent_errors.pop_front();
        }
        self.recent_errors.push_back(error);
    }

    /// The failures in a row so far; those of a trial are one.
    fn failures(&self) -> u32 {
        match self.phase {
            Phase::Closed { failures } => failures,
            Phase::Open { .. } | Phase::HalfOpen => 1,
        }
    }
}

/// A call that the breaker knows of, and that tells it how it ended.
pub(super) struct Pass<'a> {
    breaker: &'a Breaker,
    clock: &'a dyn Clock,
    /// The one claim that is tried while the breaker is half open.
    is_trial: bool,
}

impl Pass<'_> {
    /// Ends it, well or with what the store failed of.
    pub(super) fn end(mut self, failure: Option<&StoreError>) {
        let failed = failure.is_some();
        if let Some(error) = failure {
            self.breaker.standing().note(error.cause());
        }
        if std::mem::take(&mut self.is_trial) {
            self.breaker.tried(failed, self.clock.now());
        } else {
            self.breaker.count(failed, self.clock.now());
        }
    }
}

/// A trial whose caller went away decides nothing: the next claim is tried instead.
impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.is_trial {
            let until = self.clock.now();
            let mut standing = self.breaker.standing();
            // A probe may have closed it meanwhile.
            if let Phase::HalfOpen = standing.phase {
                self.breaker.enter(&mut standing, Phase::Open { until });
            }
        }
    }
}

impl Breaker {
    pub(super) fn new(failures_max: u32, open_for: Duration) -> Self {
        Self {
            failures_max,
            open_for,
            tell: None,
            backend: "store",
            shared: Arc::new(Shared {
                standing: Mutex::new(Standing {
                    phase: Phase::Closed { failures: 0 },
                    is_probed: false,
                    recent_errors: VecDeque::new(),
                }),
                state: AtomicU8::new(BreakerState::Closed as u8),
                opened: AtomicU64::new(0),
                rejected: AtomicU64::new(0),
            }),
        }
    }

    pub(super) fn configure(&mut self, failures_max: u32, open_for: Duration) {
        self.failures_max = failures_max;
        self.open_for = open_for;
    }

    pub(super) fn named(&mut self, backend: &'static str) {
        self.backend = backend;
    }

    pub(super) fn on_change(&mut self, tell: Tell) {
        self.tell = Some(tell);
    }

    pub(super) fn state(&self) -> BreakerState {
        match self.shared.state.load(Ordering::Acquire) {
            0 => BreakerState::Closed,
            1 => BreakerState::Open,
            _ => BreakerState::HalfOpen,
        }
    }

    pub(super) fn tally(&self) -> BreakerTally {
        BreakerTally {
            state: self.state(),
            opened: self.shared.opened.load(Ordering::Relaxed),
            rejected: self.shared.rejected.load(Ordering::Relaxed),
        }
    }

    /// A call that always goes through.
    pub(super) fn pass<'a>(&'a self, clock: &'a dyn Clock) -> Pass<'a> {
        Pass {
            breaker: self,
            clock,
            is_trial: false,
        }
    }

    /// A call that goes through unless the breaker is open.
    pub(super) fn admit<'a>(&'a self, clock: &'a dyn Clock) -> Result<Pass<'a>, BreakerOpen> {
        let mut standing = self.standing();
        match standing.phase {
            Phase::Closed { .. } => Ok(self.pass(clock)),
            Phase::Open { until } => {
                let left = until.saturating_sub(clock.now());
                if !left.is_zero() {
                    self.shared.rejected.fetch_add(1, Ordering::Relaxed);
                    let failures = self.failures_max;
                    return Err(BreakerOpen::For { failures, left });
                }
                self.enter(&mut standing, Phase::HalfOpen);
                Ok(Pass {
                    is_trial: true,
                    ..self.pass(clock)
                })
            }
            Phase::HalfOpen => {
                self.shared.rejected.fetch_add(1, Ordering::Relaxed);
                Err(BreakerOpen::Trying)
            }
        }
    }

    /// Counts an ordinary call. One that ends when the breaker is no longer closed began before
    /// that, or is none of its business: only a trial or a probe decides then.
    fn count(&self, failed: bool, now: Duration) {
        let mut standing = self.standing();
        let Phase::Closed { failures } = &mut standing.phase else {
            return;
        };
        *failures = if failed {
            failures.saturating_add(1)
        } else {
            0
        };
        if failed && *failures >= self.failures_max {
            self.open(&mut standing, now);
        }
    }

    fn tried(&self, failed: bool, now: Duration) {
        let mut standing = self.standing();
        match standing.phase {
            Phase::HalfOpen if !failed => {
                self.enter(&mut standing, Phase::Closed { failures: 0 });
            }
            Phase::HalfOpen | Phase::Closed { .. } if failed => {
                self.open(&mut standing, now);
            }
            Phase::Closed { .. } | Phase::Open { .. } | Phase::HalfOpen => {}
        }
    }

    /// Whether somebody has to begin to probe the store: the breaker is not closed, and nobody does.
    pub(super) fn wants_probe(&self) -> bool {
        let mut standing = self.standing();
        let is_closed = matches!(standing.phase, Phase::Closed { .. });
        !is_closed && !std::mem::replace(&mut standing.is_probed, true)
    }

    /// Whether the probing task has to go on.
    pub(super) fn still_wants_probe(&self) -> bool {
        let mut standing = self.standing();
        standing.is_probed = !matches!(standing.phase, Phase::Closed { .. });
        standing.is_probed
    }

    /// A probe found the store back: claims go through again. The next failure opens it at once, so
    /// that a store which answers probes and nothing else is not taken for healthy.
    pub(super) fn probed(&self) {
        let mut standing = self.standing();
        if let Phase::Open { .. } | Phase::HalfOpen = standing.phase {
            let failures = self.failures_max.saturating_sub(1);
            self.enter(&mut standing, Phase::Closed { failures });
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        lock(&self.shared.standing)
    }

    fn open(&self, standing: &mut Standing, now: Duration) {
        self.shared.opened.fetch_add(1, Ordering::Relaxed);
        let until = now.saturating_add(self.open_for);
        self.enter(standing, Phase::Open { until });
    }

    /// The one place where the phase changes: told and logged once.
    fn enter(&self, standing: &mut Standing, next: Phase) {
        let failure_count = standing.failures();
        standing.phase = next;
        let state = next.state();
        self.shared.state.store(state as u8, Ordering::Release);
        let backend = self.backend;
        match state {
            BreakerState::Closed => tracing::info!(
                target: "onlyonce",
                event = "idempotency.circuit_breaker.closed",
                backend,
                "the store is back"
            ),
            BreakerState::HalfOpen => tracing::info!(
                target: "onlyonce",
                event = "idempotency.circuit_breaker.half_opened",
                backend,
                "one claim tries the store"
            ),
            BreakerState::Open => tracing::warn!(
                target: "onlyonce",
                event = "idempotency.circuit_breaker.opened",
                backend,
                failure_count,
                threshold = self.failures_max,
                metadata.last_error = standing.recent_errors.back().map(String::as_str),
                metadata.recent_errors = ?standing.recent_errors,
                "the store fails, claims are refused"
            ),
        }
        if let Some(tell) = &self.tell {
            tell(state);
        }
    }
}

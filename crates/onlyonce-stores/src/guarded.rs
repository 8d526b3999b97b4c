//! A store that fails quickly and recovers by itself (B7, PROTOCOL 14): a bound on how long every
//! operation takes, retries where repeating is safe, and a circuit breaker that gates claims only.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use onlyonce_core::{
    Clock, Entropy, OsEntropy, Replay, Store, StoreError, StoreErrorKind, SystemClock,
};
use thiserror::Error;

use crate::wrap::{Operation, around_every_call};

pub use self::breaker::{BreakerOpen, BreakerState, BreakerTally};

use self::breaker::Breaker;

mod breaker;
mod probe;

const NAME: &str = "guarded";
const TIMEOUT: Duration = Duration::from_secs(5);
const SCAN_TIMEOUT: Duration = Duration::from_secs(60);
const RETRIES: u32 = 2;
const RETRY_DELAY_MIN: Duration = Duration::from_millis(20);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);
const FAILURES_MAX: u32 = 5;
const OPEN_FOR: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// A store with a timeout, retries and a circuit breaker around the store inside it.
///
/// - **Timeout**: an operation takes at most 5 s, all its tries together, then it is
///   `Unavailable`. One try gets half of that, so that a single lost reply leaves time to ask
///   again. [`settled`](Store::settled) has this long beyond what it was asked to wait.
/// - **Retries**: the verbs are repeated up to twice with the same token, after a short random
///   pause, but only when the store was `Unavailable`. What operators change is not repeated: a
///   second `extend` would extend twice.
/// - **Breaker**: after 5 failures in a row claims are refused at once. Meanwhile the store is
///   [pinged](onlyonce_core::Operate::ping) every second, and the first answer ends that; the next
///   failure would begin it again at once. If no answer comes, or the store has no operators' side,
///   one claim is let through after 60 s, and its end decides. Renewing, completing and releasing
///   always try, because they finish what has begun. Only `Unavailable` is a failure: a store that
///   says it is full, or that another was first, is there.
///
/// Timeouts and pauses follow tokio's time; the breaker follows the clock it is given.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use onlyonce_core::MemoryStore;
/// use onlyonce_stores::Guarded;
/// use onlyonce_stores::guarded::BreakerState;
///
/// let store = Guarded::new(Arc::new(MemoryStore::new()))
///     .timeout(Duration::from_secs(2))
///     .breaker(10, Duration::from_secs(30))
///     .probe(Duration::from_millis(500))
///     .on_change(|state| println!("the breaker is {state} now"));
/// assert_eq!(store.state(), BreakerState::Closed);
/// ```
pub struct Guarded {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    timeout: Duration,
    scan_timeout: Duration,
    retries: u32,
    breaker: Breaker,
    probe_every: Duration,
}

impl Guarded {
    /// Guards `store` with the usual numbers.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            inner: store,
            clock: Arc::new(SystemClock::new()),
            entropy: Arc::new(OsEntropy::new()),
            timeout: TIMEOUT,
            scan_timeout: SCAN_TIMEOUT,
            retries: RETRIES,
            breaker: Breaker::new(FAILURES_MAX, OPEN_FOR),
            probe_every: PROBE_EVERY,
        }
    }

    /// How long an operation may take, all its tries together.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same for what looks through many records: list, sweep, stats. 60 s unless told.
    #[must_use]
    pub fn scan_timeout(mut self, timeout: Duration) -> Self {
        self.scan_timeout = timeout;
        self
    }

    /// How often an operation is repeated at most where that is safe; 0 is never.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Opens the breaker after this many failures in a row, for this long unless a probe finds the
    /// store back.
    #[must_use]
    pub fn breaker(mut self, failures_max: u32, open_for: Duration) -> Self {
        self.breaker.configure(failures_max, open_for);
        self
    }

    /// Asks the store this often whether it is back while the breaker is open.
    #[must_use]
    pub fn probe(mut self, every: Duration) -> Self {
        self.probe_every = every;
        self
    }

    /// What the store is called in the log, where every change of the breaker is told of.
    #[must_use]
    pub fn named(mut self, backend: &'static str) -> Self {
        self.breaker.named(backend);
        self
    }

    /// Tells of every change of the breaker, in order; each is logged too. It is told under the
    /// breaker's lock: be quick, and do not ask anything of this store but its state.
    #[must_use]
    pub fn on_change(mut self, tell: impl Fn(BreakerState) + Send + Sync + 'static) -> Self {
        self.breaker.on_change(Arc::new(tell));
        self
    }

    /// The breaker by another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The pauses between tries by another randomness.
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// Where the breaker stands.
    pub fn state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// Where the breaker stands, and what it has done so far.
    pub fn tally(&self) -> BreakerTally {
        self.breaker.tally()
    }

    async fn around<'a, T>(
        &'a self,
        operation: Operation,
        call: impl Fn() -> BoxFuture<'a, Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let rule = Rule::of(operation);
        let pass = match rule {
            Rule::Gated => {
                let admitted = self.breaker.admit(&*self.clock);
                Some(admitted.map_err(|open| unavailable().caused_by(open).unsent())?)
            }
            Rule::Ungated => Some(self.breaker.pass(&*self.clock)),
            Rule::Read | Rule::Change | Rule::Scan | Rule::Sweep => None,
        };
        let timeout = match rule {
            Rule::Scan | Rule::Sweep => self.scan_timeout,
            Rule::Gated | Rule::Ungated | Rule::Read | Rule::Change => self.timeout,
        };
        let retries = match rule {
            Rule::Change | Rule::Sweep => 0,
            Rule::Gated | Rule::Ungated | Rule::Read | Rule::Scan => self.retries,
        };
        let answer = within(timeout, self.tries(timeout, retries, call)).await;
        if let Some(pass) = pass {
            pass.end(answer.as_ref().err().is_some_and(is_unavailable));
            probe::start(&self.breaker, &self.inner, self.probe_every, self.timeout);
        }
        answer
    }

    /// What is at hand needs no guard.
    fn around_recall(&self, recall: impl FnOnce() -> Option<Replay>) -> Option<Replay> {
        recall()
    }

    /// The store waits by itself as long as it was asked to; beyond that it hangs.
    async fn around_wait<'a>(
        &'a self,
        at_most: Duration,
        call: impl Fn() -> BoxFuture<'a, Result<(), StoreError>> + Send,
    ) -> Result<(), StoreError> {
        within(at_most.saturating_add(self.timeout), call()).await
    }

    async fn tries<'a, T>(
        &self,
        timeout: Duration,
        retries: u32,
        call: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let one_try = if retries == 0 { timeout } else { timeout / 2 };
        let mut pause = RETRY_DELAY_MIN;
        for _ in 0..retries {
            match within(one_try, call()).await {
                Err(error) if is_unavailable(&error) => {}
                answer => return answer,
            }
            tokio::time::sleep(self.jittered(pause)).await;
            pause = (pause * 2).min(RETRY_DELAY_MAX);
        }
        within(one_try, call()).await
    }

    /// Between half of `pause` and all of it, so that those who failed together do not come back
    /// together.
    fn jittered(&self, pause: Duration) -> Duration {
        let mut random = [0; 4];
        self.entropy.fill(&mut random);
        let share = f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX);
        pause.mul_f64(0.5 + share / 2.0)
    }
}

around_every_call!(Guarded, NAME);

/// How an operation is guarded.
#[derive(Clone, Copy)]
enum Rule {
    /// Repeated, counted by the breaker, and refused while it is open.
    Gated,
    /// Repeated and counted, but always tried.
    Ungated,
    /// Repeated; of no concern to the breaker, like everything that operators do: a health check
    /// that reads must not outweigh claims that fail.
    Read,
    /// Not repeated: a second time would do more, or would answer that there is nothing to do.
    Change,
    /// Repeated; may take longer.
    Scan,
    /// Not repeated; may take longer.
    Sweep,
}

impl Rule {
    fn of(operation: Operation) -> Self {
        match operation {
            Operation::Claim => Self::Gated,
            Operation::Renew | Operation::Complete | Operation::Release => Self::Ungated,
            Operation::Settled
            | Operation::Get
            | Operation::Ping
            | Operation::Recheck
            | Operation::Agree => Self::Read,
            Operation::Forget
            | Operation::Extend
            | Operation::Resolve
            | Operation::CountReplays => Self::Change,
            Operation::List | Operation::Stats => Self::Scan,
            Operation::Sweep => Self::Sweep,
        }
    }
}

/// The store did not answer in time.
#[derive(Debug, Error)]
#[error("no answer within {after:?}; whether it acted is unknown, repeating is safe")]
struct TimedOut {
    after: Duration,
}

async fn within<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(timeout, call).await {
        Ok(answer) => answer,
        Err(_) => Err(unavailable().caused_by(TimedOut { after: timeout })),
    }
}

fn unavailable() -> StoreError {
    StoreError::new(NAME, StoreErrorKind::Unavailable)
}

fn is_unavailable(error: &StoreError) -> bool {
    error.kind == StoreErrorKind::Unavailable
}

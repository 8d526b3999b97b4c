//! A store that fails quickly and recovers by itself (B7, docs/protocol.md#rule-14): a bound on how long every
//! operation takes, and a circuit breaker that gates claims only. It asks once: the engine alone
//! repeats what failed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use onlyonce_core::{Clock, Operate, Replay, Store, StoreError, StoreErrorKind, SystemClock, Verb};
use thiserror::Error;

use crate::wrap::forward;

pub use self::breaker::{BreakerOpen, BreakerState, BreakerTally};

use self::breaker::Breaker;

mod breaker;
mod probe;

const NAME: &str = "guarded";
/// The engine asks up to three times: a store that hangs is given up after three of these.
const TIMEOUT: Duration = Duration::from_millis(2500);
const SCAN_TIMEOUT: Duration = Duration::from_secs(60);
const FAILURES_MAX: u32 = 5;
const OPEN_FOR: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// A store with a timeout and a circuit breaker around the store inside it.
///
/// - **Timeout**: an operation takes at most 2.5 s, then it is `Unavailable`; its engine may ask
///   again with the same token. [`settled`](Store::settled) has this long beyond what it was asked
///   to wait.
/// - **Breaker**: after 5 failures in a row claims are refused at once. Meanwhile the store is
///   [pinged](onlyonce_core::Operate::ping) every second, and the first answer ends that; the next
///   failure would begin it again at once. If no answer comes, or the store has no operators' side,
///   one claim is let through after 60 s, and its end decides. Renewing, completing and releasing
///   always try, because they finish what has begun. Only `Unavailable` is a failure: a store that
///   says it is full, or that others were faster ([`StoreError::is_contested`]), is there.
///
/// Timeouts follow tokio's time; the breaker follows the clock it is given.
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
    timeout: Duration,
    scan_timeout: Duration,
    breaker: Breaker,
    probe_every: Duration,
    /// What the store is called in errors.
    name: &'static str,
}

impl Guarded {
    /// Guards `store` with the usual numbers.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            inner: store,
            clock: Arc::new(SystemClock::new()),
            timeout: TIMEOUT,
            scan_timeout: SCAN_TIMEOUT,
            breaker: Breaker::new(FAILURES_MAX, OPEN_FOR),
            probe_every: PROBE_EVERY,
            name: NAME,
        }
    }

    /// How long an operation may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same for what looks through many records: list, sweep, sweep_ended, stats. 60 s unless told.
    #[must_use]
    pub fn scan_timeout(mut self, timeout: Duration) -> Self {
        self.scan_timeout = timeout;
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

    /// What the store is called in errors and in the log, where every change of the breaker is told of.
    #[must_use]
    pub fn named(mut self, backend: &'static str) -> Self {
        self.breaker.named(backend);
        self.name = backend;
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
        verb: Verb,
        call: impl Fn() -> BoxFuture<'a, Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let rule = Rule::of(verb);
        let pass = match rule {
            Rule::Gated => {
                let admitted = self.breaker.admit(&*self.clock);
                Some(admitted.map_err(|open| self.unavailable().caused_by(open).unsent())?)
            }
            Rule::Ungated => Some(self.breaker.pass(&*self.clock)),
            Rule::Uncounted | Rule::Scan => None,
        };
        let timeout = match rule {
            Rule::Scan => self.scan_timeout,
            Rule::Gated | Rule::Ungated | Rule::Uncounted => self.timeout,
        };
        let answer = self.within(timeout, call()).await;
        if let Some(pass) = pass {
            pass.end(answer.as_ref().err().filter(|error| is_unavailable(error)));
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
        self.within(at_most.saturating_add(self.timeout), call())
            .await
    }

    async fn within<T>(
        &self,
        timeout: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(timeout, call).await {
            Ok(answer) => answer,
            Err(_) => Err(self.unavailable().caused_by(TimedOut { after: timeout })),
        }
    }

    /// An error of the store inside, as far as its name is known.
    fn unavailable(&self) -> StoreError {
        StoreError::new(self.name, StoreErrorKind::Unavailable)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Guarded {
    forward!(around: claim, renew, complete, release, settled, recall);
    forward!(straight: check, response_bytes_max, operate);
}

#[deny(clippy::missing_trait_methods)]
impl Operate for Guarded {
    forward!(around: get, get_durable, list, newest, forget, extend, resolve, discard, sweep, sweep_ended, stats, ping, recheck);
    forward!(around: count_replays, number_replays, agree, agreed);
    forward!(straight: connected, connections, is_on_a_server, hands_over_ended);
}

/// How an operation is guarded.
#[derive(Clone, Copy)]
enum Rule {
    /// Counted by the breaker, and refused while it is open.
    Gated,
    /// Counted, but always tried.
    Ungated,
    /// Of no concern to the breaker, like everything that operators do: a health check that reads
    /// must not outweigh claims that fail.
    Uncounted,
    /// The same, and may take longer.
    Scan,
}

impl Rule {
    fn of(verb: Verb) -> Self {
        match verb {
            Verb::Claim => Self::Gated,
            Verb::Renew | Verb::Complete | Verb::Release => Self::Ungated,
            Verb::Settled
            | Verb::Get
            | Verb::Ping
            | Verb::Recheck
            | Verb::Agree
            | Verb::Forget
            | Verb::Extend
            | Verb::Resolve
            | Verb::CountReplays => Self::Uncounted,
            Verb::List | Verb::Stats | Verb::Sweep => Self::Scan,
        }
    }
}

/// The store did not answer in time.
#[derive(Debug, Error)]
#[error("no answer within {after:?}; whether it acted is unknown, repeating is safe")]
struct TimedOut {
    after: Duration,
}

/// Whether an error speaks of a store that fails. One in which others were faster has answered.
fn is_unavailable(error: &StoreError) -> bool {
    error.kind == StoreErrorKind::Unavailable && !error.is_contested()
}

//! What a store costs: how long each operation takes, and how it ends (O1). Plain numbers behind
//! atomics; the exporter decides about names and formats.
//!
//! The documents call these `idempotency.storage.operation.duration_ms` and
//! `idempotency.storage.operation.total`, by operation and status; all of their buckets are among
//! [`BUCKETS`].

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use onlyonce_core::{Clock, Operate, Replay, Store, StoreError, SystemClock, Verb};

use crate::wrap::forward;

pub use self::meter::{BUCKETS, Meter, OperationSnapshot, Snapshot};
pub use self::outcome::Outcome;

use self::outcome::Tells;

mod meter;
mod outcome;

const NAME: &str = "metered";
/// What takes longer is told of in the log; but for waiting, which is meant to take long.
const SLOW: Duration = Duration::from_millis(500);

/// A store that measures the store inside it.
///
/// ```
/// use std::sync::Arc;
/// use onlyonce_core::{MemoryStore, Operate, Verb};
/// use onlyonce_stores::metered::{Metered, Outcome};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let store = Metered::new(Arc::new(MemoryStore::new()));
/// let meter = store.meter();
/// store.ping().await.unwrap();
///
/// let snapshot = meter.snapshot();
/// let pings = snapshot.of(Verb::Ping);
/// assert_eq!(pings.count, 1);
/// assert_eq!(pings.outcome(Outcome::Ok), 1);
/// # }
/// ```
pub struct Metered {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    meter: Arc<Meter>,
    backend: &'static str,
}

impl Metered {
    /// Measures `store` from now on.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            inner: store,
            clock: Arc::new(SystemClock::new()),
            meter: Arc::default(),
            backend: "store",
        }
    }

    /// What the store is called in the log, where its slow operations are told of.
    #[must_use]
    pub fn named(mut self, backend: &'static str) -> Self {
        self.backend = backend;
        self
    }

    /// Measures by another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What was measured, to keep beside the store: it goes on counting.
    pub fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// What was measured so far.
    pub fn snapshot(&self) -> Snapshot {
        self.meter.snapshot()
    }

    async fn around<'a, T: Tells>(
        &'a self,
        verb: Verb,
        call: impl Fn() -> BoxFuture<'a, Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let mut under_way = UnderWay {
            metered: self,
            verb,
            began: self.clock.now(),
            outcome: Outcome::Dropped,
        };
        let answer = call().await;
        under_way.outcome = Outcome::of(&answer);
        answer
    }

    /// What is at hand counts as the claim that it saves; that nothing is, not at all. It is in
    /// memory, so it counts as taking no time: to read the clock would take as long.
    fn around_recall(&self, recall: impl FnOnce() -> Option<Replay>) -> Option<Replay> {
        let replay = recall()?;
        self.meter
            .count(Verb::Claim, Outcome::Taken, Duration::ZERO);
        Some(replay)
    }

    async fn around_wait<'a>(
        &'a self,
        _at_most: Duration,
        call: impl Fn() -> BoxFuture<'a, Result<(), StoreError>> + Send,
    ) -> Result<(), StoreError> {
        self.around(Verb::Settled, call).await
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Metered {
    forward!(around: claim, renew, complete, release, settled, recall);
    forward!(straight: check, response_bytes_max, operate);
}

#[deny(clippy::missing_trait_methods)]
impl Operate for Metered {
    forward!(around: get, get_durable, list, newest, forget, extend, resolve, discard, sweep, sweep_ended, stats, ping, recheck);
    forward!(around: count_replays, number_replays, agree, agreed);
    forward!(straight: connected, connections, is_on_a_server, hands_over_ended);
}

/// A call that is counted when it is over, also if its caller went away before that.
struct UnderWay<'a> {
    metered: &'a Metered,
    verb: Verb,
    began: Duration,
    outcome: Outcome,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let took = self.metered.clock.now().saturating_sub(self.began);
        let is_slow = took >= SLOW && self.verb != Verb::Settled;
        // What it is usually like does not contain this one.
        let baseline = is_slow.then(|| self.metered.meter.p99(self.verb)).flatten();
        self.metered.meter.count(self.verb, self.outcome, took);
        if is_slow {
            tracing::warn!(
                target: "onlyonce",
                event = "idempotency.storage.slow",
                operation = self.verb.name(),
                backend = self.metered.backend,
                duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                threshold_ms = u64::try_from(SLOW.as_millis()).unwrap_or(u64::MAX),
                metadata.p99_baseline_ms = baseline.map(|it| it.as_secs_f64() * 1000.0),
            );
        }
    }
}

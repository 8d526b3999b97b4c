//! The store's side: how long its operations take and how they end, its breaker, its connections.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::{Store, Verb};
use onlyonce_stores::guarded::BreakerTally;
use onlyonce_stores::metered::{BUCKETS, Meter, OperationSnapshot};
use onlyonce_stores::{Guarded, Metered};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::window::Window;

/// The buckets of D0 §9.1.2; a meter has these and some between.
const DURATIONS_MS: [f64; 9] = [1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
/// How far back the share of errors looks.
const ERROR_RATE_SPAN: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    operation: &'static str,
    status: &'static str,
    backend: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfOperation {
    operation: &'static str,
    backend: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfBackend {
    backend: &'static str,
}

/// What a store was asked for, since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOperation {
    /// Its verb.
    pub name: &'static str,
    /// How often.
    pub count: u64,
    /// How often it failed.
    pub errors: u64,
    /// How long all of it took.
    pub spent: Duration,
    /// The bound that 99 in 100 calls kept; nothing if they are beyond all bounds.
    pub within: Option<Duration>,
}

/// What is measured of a store.
pub struct StoreWatch {
    backend: &'static str,
    meter: Arc<Meter>,
    guard: Option<Arc<Guarded>>,
    store: Arc<dyn Store>,
    windows: BTreeMap<Verb, Window<2>>,
    /// The share of errors of each operation in the last minute.
    rates: Mutex<BTreeMap<Verb, f64>>,
}

impl StoreWatch {
    /// Measures a store that cannot hang, such as this process's memory.
    pub fn around(backend: &'static str, store: Arc<dyn Store>) -> (Arc<dyn Store>, Self) {
        let (metered, meter) = metered(backend, &store);
        (metered, Self::new(backend, meter, None, store))
    }

    /// Measures a store, and guards it with timeouts and a circuit breaker.
    pub fn guarding(
        backend: &'static str,
        store: Arc<dyn Store>,
        guard: impl FnOnce(Guarded) -> Guarded,
    ) -> (Arc<Guarded>, Self) {
        let (metered, meter) = metered(backend, &store);
        let guarded = Arc::new(guard(Guarded::new(metered).named(backend)));
        let watch = Self::new(backend, meter, Some(Arc::clone(&guarded)), store);
        (guarded, watch)
    }

    fn new(
        backend: &'static str,
        meter: Arc<Meter>,
        guard: Option<Arc<Guarded>>,
        store: Arc<dyn Store>,
    ) -> Self {
        let windows = Verb::ALL.map(|verb| (verb, Window::default()));
        Self {
            backend,
            meter,
            guard,
            store,
            windows: windows.into(),
            rates: Mutex::default(),
        }
    }

    /// Moves the rolling shares of errors on.
    pub(crate) fn roll(&self, now: Duration) {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        for seen in self.meter.snapshot().operations() {
            let Some(window) = self.windows.get(&seen.verb) else {
                continue;
            };
            let [errors, all] = window.since(now, ERROR_RATE_SPAN, [seen.errors(), seen.count]);
            let rate = if all == 0 {
                0.0
            } else {
                errors as f64 / all as f64
            };
            rates.insert(seen.verb, rate);
        }
    }

    /// What was asked for so far.
    pub(crate) fn so_far(&self) -> Vec<StoreOperation> {
        let snapshot = self.meter.snapshot();
        let seen = snapshot.operations().iter().filter(|it| it.count > 0);
        let operation = |it: &OperationSnapshot| StoreOperation {
            name: it.verb.name(),
            count: it.count,
            errors: it.errors(),
            spent: it.sum,
            within: most_within(it),
        };
        seen.map(operation).collect()
    }

    fn of_backend(&self) -> OfBackend {
        OfBackend {
            backend: self.backend,
        }
    }

    fn of(&self, seen: &OperationSnapshot) -> OfOperation {
        OfOperation {
            operation: seen.verb.name(),
            backend: self.backend,
        }
    }

    fn operations(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let snapshot = self.meter.snapshot();
        let seen = || snapshot.operations().iter().filter(|it| it.count > 0);
        let mut total = encoder.encode_descriptor(
            "idempotency_storage_operation",
            "Operations of the store by how they ended.",
            None,
            MetricType::Counter,
        )?;
        for it in seen() {
            let errors = it.errors();
            for (status, count) in [("success", it.count - errors), ("error", errors)] {
                let labels = Labels {
                    operation: it.verb.name(),
                    status,
                    backend: self.backend,
                };
                ConstCounter::new(count).encode(total.encode_family(&labels)?)?;
            }
        }
        let mut duration = encoder.encode_descriptor(
            "idempotency_storage_operation_duration_ms",
            "How long operations of the store took.",
            None,
            MetricType::Histogram,
        )?;
        for it in seen() {
            let mut below = 0;
            let mut buckets = Vec::with_capacity(DURATIONS_MS.len() + 1);
            for (end, up_to) in BUCKETS.map(crate::float_millis).into_iter().zip(it.buckets) {
                if DURATIONS_MS.contains(&end) {
                    buckets.push((end, up_to - below));
                    below = up_to;
                }
            }
            buckets.push((f64::INFINITY, it.count - below));
            let labels = self.of(it);
            let mut family = duration.encode_family(&labels)?;
            family.encode_histogram::<NoLabelSet>(
                crate::float_millis(it.sum),
                it.count,
                &buckets,
                None,
            )?;
        }
        let rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rate = encoder.encode_descriptor(
            "idempotency_storage_error_rate",
            "Errors among the operations of the store, over one minute.",
            None,
            MetricType::Gauge,
        )?;
        for it in seen() {
            let share = rates.get(&it.verb).copied().unwrap_or_default();
            ConstGauge::new(share).encode(rate.encode_family(&self.of(it))?)?;
        }
        Ok(())
    }

    fn breaker(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        tally: BreakerTally,
    ) -> Result<(), fmt::Error> {
        let labels = self.of_backend();
        let mut state = encoder.encode_descriptor(
            "idempotency_circuit_breaker_state",
            "0 closed, 1 open, 2 half-open.",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(i64::from(tally.state as u8)).encode(state.encode_family(&labels)?)?;
        let mut opened = encoder.encode_descriptor(
            "idempotency_circuit_breaker_opened",
            "How often the breaker opened.",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(tally.opened).encode(opened.encode_family(&labels)?)?;
        let mut rejected = encoder.encode_descriptor(
            "idempotency_circuit_breaker_rejected_requests",
            "Claims refused without asking the store.",
            None,
            MetricType::Counter,
        )?;
        let labels = OfOperation {
            operation: Verb::Claim.name(),
            backend: self.backend,
        };
        ConstCounter::new(tally.rejected).encode(rejected.encode_family(&labels)?)
    }

    fn connections(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(connections) = self.store.operate().and_then(|it| it.connections()) else {
            return Ok(());
        };
        let labels = self.of_backend();
        let mut active = encoder.encode_descriptor(
            "idempotency_storage_connection_pool_active",
            "Connections to the store that are in use.",
            None,
            MetricType::Gauge,
        )?;
        let in_use = crate::signed(connections.active);
        ConstGauge::new(in_use).encode(active.encode_family(&labels)?)?;
        let mut exhausted = encoder.encode_descriptor(
            "idempotency_storage_connection_pool_exhausted",
            "How often no connection was free.",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(connections.exhausted).encode(exhausted.encode_family(&labels)?)
    }
}

/// The bound that 99 in 100 calls kept; nothing if they are beyond all bounds.
fn most_within(seen: &OperationSnapshot) -> Option<Duration> {
    let most = seen.count - seen.count / 100;
    let mut bounds = BUCKETS.into_iter().zip(seen.buckets);
    bounds.find_map(|(bound, up_to)| (up_to >= most).then_some(bound))
}

fn metered(backend: &'static str, store: &Arc<dyn Store>) -> (Arc<dyn Store>, Arc<Meter>) {
    let metered = Metered::new(Arc::clone(store)).named(backend);
    let meter = metered.meter();
    (Arc::new(metered), meter)
}

/// What writes a watched store to a page.
#[derive(Debug)]
pub(crate) struct Watched(pub(crate) Arc<StoreWatch>);

impl Collector for Watched {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.operations(&mut encoder)?;
        if let Some(guard) = &self.0.guard {
            self.0.breaker(&mut encoder, guard.tally())?;
        }
        self.0.connections(&mut encoder)
    }
}

impl fmt::Debug for StoreWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreWatch({})", self.backend)
    }
}

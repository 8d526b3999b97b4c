//! What happens now: totals since the start, and a sample of them every few seconds for the last minutes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use onlyonce_core::{Clock as _, Engine, SystemClock, Timestamp};
use onlyonce_metrics::{Metrics, StoreOperation, Totals};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::upstreams::UpstreamView;
use crate::upstream::Healths;

/// How often the totals are sampled.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// Samples that are kept: ten minutes of them.
const SAMPLES_MAX: usize = 120;

/// What happens now.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct NowView {
    /// When this was read.
    pub at: String,
    /// How long the gateway has run, in seconds.
    pub uptime_seconds: u64,
    /// Keyed requests since it started, by how they ended.
    pub totals: TotalsView,
    /// The share of replays among them, from 0 to 1.
    pub hit_rate: f64,
    /// Keyed requests that run.
    pub running: usize,
    /// Duplicates that wait for them.
    pub waiting: usize,
    /// Outcomes that wait for an operator's decision, as counted last.
    pub in_doubt: u64,
    /// Where the store's circuit breaker stands: `closed`, `open` or `half-open`.
    pub breaker: String,
    /// What the store was asked for since the start.
    pub store: Vec<StoreOperationView>,
    /// How the upstreams do.
    pub upstreams: Vec<UpstreamView>,
    /// The last ten minutes, the oldest first: how much was counted in each span.
    pub samples: Vec<SampleView>,
}

/// Keyed requests by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TotalsView {
    /// Ran.
    pub new: u64,
    /// Got a stored or shared answer.
    pub replayed: u64,
    /// Used a key for something else.
    pub conflicts: u64,
    /// Came while their original ran, and were refused.
    pub in_progress: u64,
    /// Were refused for another reason.
    pub refused: u64,
}

/// What a store was asked for.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StoreOperationView {
    /// The verb.
    pub name: String,
    /// How often.
    pub count: u64,
    /// How often it failed.
    pub errors: u64,
    /// The mean time that it took, in milliseconds.
    pub mean_ms: f64,
    /// The bound that 99 in 100 calls kept, in milliseconds; absent if it is beyond all bounds.
    pub p99_ms: Option<f64>,
}

/// What was counted in a span of five seconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SampleView {
    /// How many seconds ago the span ended.
    pub seconds_ago: u64,
    /// Keyed requests in it, by how they ended.
    pub counts: TotalsView,
    /// The share of replays among these, from 0 to 1; nothing if there were none.
    pub hit_rate: Option<f64>,
    /// Requests that upstreams did not answer.
    pub upstream_failures: u64,
    /// How many upstreams were down at its end.
    pub upstreams_down: usize,
    /// Duplicates that waited at its end.
    pub waiting: usize,
    /// The mean time of the store's operations in it, in milliseconds, but for waits.
    pub store_ms: f64,
}

/// The totals of the last minutes.
pub(super) struct History {
    clock: SystemClock,
    began: Duration,
    samples: Mutex<VecDeque<Sample>>,
    /// The upstreams, where there are some.
    healths: OnceLock<Healths>,
}

#[derive(Clone, Copy)]
struct Sample {
    at: Duration,
    totals: Totals,
    waiting: usize,
    /// How often the store was asked, and how long all of that took.
    asked: u64,
    spent: Duration,
    /// What the upstreams failed at so far, and how many of them were down.
    failures: u64,
    down: usize,
}

impl History {
    /// Samples for as long as somebody holds what this returns.
    pub(super) fn start(engine: &Engine, metrics: &Arc<Metrics>) -> Arc<Self> {
        let clock = SystemClock::new();
        let history = Arc::new(Self {
            began: clock.now(),
            clock,
            samples: Mutex::default(),
            healths: OnceLock::new(),
        });
        let (engine, metrics) = (engine.clone(), Arc::clone(metrics));
        let kept = Arc::downgrade(&history);
        tokio::spawn(async move {
            while let Some(history) = Weak::upgrade(&kept) {
                history.sample(engine.load().waiting, &metrics);
                drop(history);
                tokio::time::sleep(SAMPLE_EVERY).await;
            }
        });
        history
    }

    /// Samples these upstreams too.
    pub(super) fn watch(&self, healths: &Healths) {
        drop(self.healths.set(healths.clone()));
    }

    fn sample(&self, waiting: usize, metrics: &Metrics) {
        let operations = metrics.store_operations();
        let timed = || operations.iter().filter(|it| is_timed(it));
        let upstreams = self.healths.get().map(Healths::now).unwrap_or_default();
        let sample = Sample {
            at: self.clock.now(),
            totals: metrics.totals(),
            waiting,
            asked: timed().map(|it| it.count).sum(),
            spent: timed().map(|it| it.spent).sum(),
            failures: upstreams.iter().map(|it| it.failures).sum(),
            down: upstreams.iter().filter(|it| !it.is_up).count(),
        };
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push_back(sample);
        if samples.len() > SAMPLES_MAX + 1 {
            samples.pop_front();
        }
    }

    /// What was counted between each two samples.
    fn spans(&self) -> Vec<SampleView> {
        let now = self.clock.now();
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = samples.iter().zip(samples.iter().skip(1));
        let span = |(before, after): (&Sample, &Sample)| SampleView {
            seconds_ago: now.saturating_sub(after.at).as_secs(),
            counts: difference(&before.totals, &after.totals),
            hit_rate: difference(&before.totals, &after.totals).hit_rate(),
            // Less than before where a reload has removed an upstream.
            upstream_failures: after.failures.saturating_sub(before.failures),
            upstreams_down: after.down,
            waiting: after.waiting,
            store_ms: mean_ms(
                after.spent.saturating_sub(before.spent),
                after.asked - before.asked,
            ),
        };
        pairs.map(span).collect()
    }

    pub(super) fn uptime(&self) -> Duration {
        self.clock.now().saturating_sub(self.began)
    }

    pub(super) fn wall(&self) -> Timestamp {
        self.clock.wall()
    }
}

/// Whether the time of an operation is the store's: `settled` mostly waits.
fn is_timed(operation: &StoreOperation) -> bool {
    operation.name != "settled"
}

fn difference(before: &Totals, after: &Totals) -> TotalsView {
    TotalsView {
        new: after.new - before.new,
        replayed: after.replayed - before.replayed,
        conflicts: after.conflicts - before.conflicts,
        in_progress: after.in_progress - before.in_progress,
        refused: after.refused - before.refused,
    }
}

fn mean_ms(spent: Duration, count: u64) -> f64 {
    if count == 0 {
        0.0
    } else {
        spent.as_secs_f64() * 1000.0 / count as f64
    }
}

impl TotalsView {
    pub(super) fn all(&self) -> u64 {
        self.new + self.replayed + self.conflicts + self.in_progress + self.refused
    }

    /// The share of replays, from 0 to 1; nothing where there were no requests.
    pub(super) fn hit_rate(&self) -> Option<f64> {
        let all = self.all();
        (all > 0).then(|| self.replayed as f64 / all as f64)
    }
}

pub(super) async fn now(State(admin): State<Admin>) -> Json<NowView> {
    admin.recount(true).await;
    Json(admin.now())
}

impl Admin {
    pub(super) fn now(&self) -> NowView {
        let metrics = self.observers.metrics();
        let load = self.engine.load();
        let totals = difference(&Totals::default(), &metrics.totals());
        NowView {
            at: self.history.wall().to_rfc3339(),
            uptime_seconds: self.history.uptime().as_secs(),
            totals,
            hit_rate: totals.hit_rate().unwrap_or(0.0),
            running: load.running,
            waiting: load.waiting,
            in_doubt: metrics.in_doubt(),
            breaker: self.observed.breaker().to_string(),
            store: metrics
                .store_operations()
                .iter()
                .map(StoreOperationView::of)
                .collect(),
            upstreams: self.upstreams(),
            samples: self.history.spans(),
        }
    }
}

impl StoreOperationView {
    fn of(operation: &StoreOperation) -> Self {
        Self {
            name: operation.name.to_owned(),
            count: operation.count,
            errors: operation.errors,
            mean_ms: mean_ms(operation.spent, operation.count),
            p99_ms: operation.within.map(|within| within.as_secs_f64() * 1000.0),
        }
    }
}

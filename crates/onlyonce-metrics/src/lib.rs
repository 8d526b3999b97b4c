//! What an engine does, as Prometheus metrics: a [`Subscriber`] that counts, and a page to scrape.
//!
//! ```
//! use std::sync::Arc;
//! use onlyonce_core::{Engine, MemoryStore};
//! use onlyonce_metrics::{Metrics, StoreWatch};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let (store, watch) = StoreWatch::around("memory", Arc::new(MemoryStore::new()));
//! let metrics = Arc::new(Metrics::new(watch));
//! let engine = Engine::builder(store).subscribe(metrics.clone()).open().await.unwrap();
//! let pay = engine.job("pay");
//! let paid = pay.run("order-7", "7 EUR", async || Ok::<_, String>(7)).await;
//! assert_eq!(paid.unwrap().value, 7);
//! metrics.set_load(&engine.load());
//! assert!(metrics.page().contains("idempotency_request_total"));
//! # }
//! ```
//!
//! The names are those of the documents with `_` for `.`; a counter ends in `_total`. A label's
//! value beyond the hundredth is `other`. An operation without a route's pattern or a job's name is
//! `*`: its path is the client's choice. An intake without a request for an hour gives its place to
//! another once all are taken. What is counted on a request's path is found by two lookups under a
//! shared lock, without an allocation.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onlyonce_core::engine::Load;
use onlyonce_core::operate::Stats;
use onlyonce_core::{About, Clock, Event, Reason, Subscriber, SystemClock};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use self::all::All;
use self::retries::Retries;
use self::series::{Series, SeriesMap};

use self::store::Watched;
pub use self::store::{StoreOperation, StoreWatch};
pub use self::text::TEXT_CONTENT_TYPE;

mod all;
mod lives;
mod retries;
mod series;
mod store;
mod text;
mod window;

/// Every metric there is, by its name without the endings of its kind (`_total`, `_bucket`, …).
pub const NAMES: [&str; 43] = [
    "idem_execution_ms",
    "idem_keys_active",
    "idem_requests",
    "idempotency_cache_hit_rate",
    "idempotency_cache_size_bytes",
    "idempotency_cache_size_entries",
    "idempotency_circuit_breaker_opened",
    "idempotency_circuit_breaker_rejected_requests",
    "idempotency_circuit_breaker_state",
    "idempotency_clock_skew_ms",
    "idempotency_concurrent_requests",
    "idempotency_conflict",
    "idempotency_conflict_retry_after_conflict",
    "idempotency_duplicate_age_ms",
    "idempotency_event",
    "idempotency_key_active_count",
    "idempotency_key_average_lifetime_ms",
    "idempotency_key_expired",
    "idempotency_lock_abandoned",
    "idempotency_lock_acquired",
    "idempotency_lock_held_duration_ms",
    "idempotency_lock_held_longest_ms",
    "idempotency_lock_timeout",
    "idempotency_lock_wait_time_ms",
    "idempotency_observed",
    "idempotency_operator_action",
    "idempotency_outcomes_in_doubt",
    "idempotency_refused",
    "idempotency_request",
    "idempotency_request_duration_ms",
    "idempotency_request_replayed",
    "idempotency_response_bytes",
    "idempotency_running",
    "idempotency_stale_keys_count",
    "idempotency_storage_connection_pool_active",
    "idempotency_storage_connection_pool_exhausted",
    "idempotency_storage_error_rate",
    "idempotency_storage_operation",
    "idempotency_storage_operation_duration_ms",
    "idempotency_upstream_failure",
    "idempotency_upstream_up",
    "idempotency_waiters",
    "onlyonce_build",
];

/// The content type of [`Metrics::page`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Counts what an engine says.
pub struct Metrics {
    registry: Registry,
    all: Arc<All>,
    series: SeriesMap,
    retries: Retries,
    store: Arc<StoreWatch>,
    clock: Arc<dyn Clock>,
    /// Whether ends are told: then they are not counted by the clock.
    ends_are_told: AtomicBool,
    /// Pages are written one at a time: each moves the rolling windows on.
    page: Mutex<()>,
}

impl Metrics {
    /// Metrics of an engine on the store that `store` watches.
    pub fn new(store: StoreWatch) -> Self {
        let mut registry = Registry::default();
        let all = Arc::new(All::register(&mut registry));
        let store = Arc::new(store);
        registry.register_collector(Box::new(Watched(Arc::clone(&store))));
        Self {
            series: SeriesMap::new(Arc::clone(&all)),
            registry,
            all,
            retries: Retries::default(),
            store,
            clock: Arc::new(SystemClock::new()),
            ends_are_told: AtomicBool::new(false),
            page: Mutex::default(),
        }
    }

    /// Sets what only the engine knows: how much runs and waits now.
    pub fn set_load(&self, load: &Load) {
        self.all.waiters.set(signed(load.waiting as u64));
        self.all.running.set(signed(load.running as u64));
        self.all.held_longest.set(signed(millis(load.held_longest)));
    }

    /// Sets what only the store knows: how much is in it.
    pub fn set_stats(&self, stats: &Stats) {
        self.all.keys_active.set(signed(stats.records));
        self.all.cache_entries.set(signed(stats.records));
        self.all.cache_bytes.set(signed(stats.bytes));
        self.all.stale_keys.set(signed(stats.expired));
        self.series.set_records(stats.records);
    }

    /// What has been counted so far, for people.
    pub fn totals(&self) -> Totals {
        let results = &self.all.results;
        Totals {
            new: results.new.get(),
            replayed: results.replay.get(),
            conflicts: results.conflict.get(),
            in_progress: results.in_progress.get(),
            refused: self.all.refused_all.get(),
        }
    }

    /// How many outcomes wait for a decision, as [set](Self::set_in_doubt) last.
    pub fn in_doubt(&self) -> u64 {
        u64::try_from(self.all.in_doubt.get()).unwrap_or(0)
    }

    /// How far the store's clock is ahead of this machine's, in milliseconds, as seen last.
    pub fn clock_skew_ms(&self) -> i64 {
        self.all.clock_skew_ms.get()
    }

    /// What the store was asked for so far.
    pub fn store_operations(&self) -> Vec<StoreOperation> {
        self.store.so_far()
    }

    /// Sets how many outcomes wait for an operator's decision.
    pub fn set_in_doubt(&self, outcomes: u64) {
        self.all.in_doubt.set(signed(outcomes));
    }

    /// Counts an exchange that `upstream` failed at, in a `kind` of way.
    pub fn upstream_failed(&self, upstream: &Arc<str>, kind: &'static str) {
        self.all.upstream_failed(upstream, kind);
    }

    /// Counts what was seen on a route that is only observed.
    pub fn observed(&self, route: &Arc<str>, seen: &'static str) {
        self.all.observed(route, seen);
    }

    /// Sets whether the last exchange with `upstream` went well.
    pub fn set_upstream_up(&self, upstream: &Arc<str>, is_up: bool) {
        self.all.set_upstream_up(upstream, is_up);
    }

    /// Says no longer whether `upstream` is up: it is not used any more.
    pub fn forget_upstream(&self, upstream: &Arc<str>) {
        self.all.forget_upstream(upstream);
    }

    /// Everything, in the text format of OpenMetrics.
    pub fn page(&self) -> String {
        let _one = self
            .page
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = self.clock.now();
        let count_ends = !self.ends_are_told.load(Ordering::Relaxed);
        self.series.roll(now, count_ends);
        self.store.roll(now);
        let mut page = String::new();
        encode(&mut page, &self.registry).expect("a string takes whatever is written");
        page
    }

    /// Everything, in the older text format of Prometheus.
    pub fn text_page(&self) -> String {
        text::of(&self.page())
    }

    /// Counts the ends of keys as they are told, which is done with each of them once over all processes,
    /// rather than when the time of a key is over that this process stored.
    pub fn count_ends_told(&self) {
        self.ends_are_told.store(true, Ordering::Relaxed);
    }

    /// An operator keeps a finished record longer by so much.
    pub fn extended(
        &self,
        about: &About<'_>,
        keep_left: Duration,
        keep_for: Duration,
        by: Duration,
    ) {
        let due = self.clock.now() + keep_left;
        self.series.extended(about, due, keep_for, by);
    }

    /// A record is there from before this process started, with so much of its time left: its end is
    /// counted too.
    pub fn resumed(&self, about: &About<'_>, keep_left: Duration, keep_for: Duration) {
        let due = self.clock.now() + keep_left;
        self.series.of(about).intake.lives.resume(due, keep_for);
    }

    fn claimed(&self, about: &About<'_>, series: &Series, waited: Duration) {
        series.intake.acquired.inc();
        series.intake.wait_ms.observe(float_millis(waited));
        let retried = about
            .fingerprint
            .is_some_and(|it| self.retries.came_back(it, || self.clock.now()));
        if retried {
            series.intake.retried.inc();
        }
    }

    fn stored(&self, series: &Series, event: &Stored) {
        self.all.execution_ms.observe(float_millis(event.took));
        self.all.response_bytes.observe(event.bytes as f64);
        let stored_at = event
            .expires_at
            .as_millis()
            .saturating_sub(millis(event.keep_for));
        let skew = signed(stored_at).saturating_sub(signed(self.clock.wall().as_millis()));
        self.all.clock_skew_ms.set(skew);
        series.intake.lives.begin(self.clock.now(), event.keep_for);
        series.intake.active.inc();
    }

    fn refused(&self, about: &About<'_>, series: &Series, reason: Reason, took: Duration) {
        series.answered(false, took);
        match reason {
            Reason::Mismatch | Reason::OtherCredential => {
                self.all.results.conflict.inc();
                let collides = reason == Reason::OtherCredential;
                series.intake.conflicts[usize::from(collides)].inc();
                if let Some(fingerprint) = about.fingerprint {
                    self.retries.refused(fingerprint, self.clock.now());
                }
            }
            Reason::InProgress | Reason::TooManyWaiters => {
                self.all.results.in_progress.inc();
                self.all.concurrent.inc();
            }
            Reason::MissingKey
            | Reason::BadKey
            | Reason::KeyOutOfTime
            | Reason::BadTtl
            | Reason::Unscoped
            | Reason::Unverified
            | Reason::RequestTooLarge
            | Reason::RequestUnreadable
            | Reason::RequestEncoded
            | Reason::OutcomeUnknown
            | Reason::TimedOut
            | Reason::NotRun
            | Reason::NotStored
            | Reason::StoreDown
            | Reason::ShuttingDown
            | Reason::Panicked
            | Reason::ResponseTooLarge
            | Reason::TooManyRunning
            | Reason::TooMuchBuffered
            | Reason::OverQuota
            | Reason::TooManyBadRequests => self.all.refused(reason.name()),
        }
    }
}

/// Keyed requests since the start, by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
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

/// The parts of [`Event::Stored`] that are measured.
struct Stored {
    bytes: usize,
    took: Duration,
    expires_at: onlyonce_core::Timestamp,
    keep_for: Duration,
}

impl Subscriber for Metrics {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other event is counted by its name"
    )]
    fn on_event(&self, about: &About<'_>, event: &Event) {
        let series = || self.series.of(about);
        match event {
            Event::Claimed { waited, .. } => self.claimed(about, &series(), *waited),
            Event::TookOver { .. } => {
                series().intake.abandoned.inc();
            }
            Event::Attached { .. } | Event::Waiting { .. } => {
                self.all.concurrent.inc();
            }
            // The wait of one who got the slot is told with the claim.
            Event::Waited { claimed: true, .. } => {}
            Event::Waited { waited, .. } => {
                series().intake.wait_ms.observe(float_millis(*waited));
            }
            Event::GaveUp { .. } => {
                series().intake.timeouts.inc();
            }
            Event::Ended { held } => series().held_ms.observe(float_millis(*held)),
            Event::Stored {
                bytes,
                took,
                expires_at,
                keep_for,
                ..
            } => self.stored(
                &series(),
                &Stored {
                    bytes: *bytes,
                    took: *took,
                    expires_at: *expires_at,
                    keep_for: *keep_for,
                },
            ),
            Event::Ran { took } => {
                self.all.results.new.inc();
                series().answered(false, *took);
            }
            Event::HungUp => {
                self.all.results.new.inc();
                self.all.event(event.name());
                series().left();
            }
            Event::Replayed {
                original_at, took, ..
            } => {
                self.all.results.replay.inc();
                let series = series();
                series.answered(true, *took);
                let age = self.clock.wall().since(*original_at);
                series.intake.duplicate_age_ms.observe(float_millis(age));
            }
            Event::Refused { reason, took, .. } => self.refused(about, &series(), *reason, *took),
            Event::ReplayCounted { .. } | Event::Renewed => {}
            // Told only of what a store has handed over; other ends are counted by the clock.
            Event::Expired {
                forgotten: false,
                lifetime,
                ..
            } => series().intake.ended(*lifetime, 1),
            Event::Expired {
                keep_for, lifetime, ..
            } => {
                let now = self.clock.now();
                self.series.forgotten(about, now, *keep_for, *lifetime);
            }
            Event::Operated(operated) => self.all.operated(operated.deed.name()),
            other => self.all.event(other.name()),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn float_millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

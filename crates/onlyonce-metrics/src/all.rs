//! Every metric by its name, registered once. Those with labels are families, whose members are
//! looked up when a route is first seen and kept by its series.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

/// A gauge of a share, from 0 to 1.
pub(crate) type Ratio = Gauge<f64, AtomicU64>;
pub(crate) type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Intake {
    pub(crate) intake_id: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Operation {
    pub(crate) intake_id: Arc<str>,
    pub(crate) operation: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Request {
    pub(crate) intake_id: Arc<str>,
    pub(crate) operation: Arc<str>,
    pub(crate) replayed: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Conflict {
    pub(crate) intake_id: Arc<str>,
    pub(crate) conflict_type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Expiry {
    pub(crate) intake_id: Arc<str>,
    pub(crate) reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Why {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Named {
    event: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Deed {
    action: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfUpstream {
    upstream: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Failed {
    upstream: Arc<str>,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Sighting {
    route: Arc<str>,
    seen: &'static str,
}

/// The ends of D4's requests.
pub(crate) struct Results {
    pub(crate) new: Counter,
    pub(crate) replay: Counter,
    pub(crate) conflict: Counter,
    pub(crate) in_progress: Counter,
}

pub(crate) struct All {
    pub(crate) requests: Family<Request, Counter>,
    pub(crate) replayed: Family<Operation, Counter>,
    pub(crate) duration_ms: Histograms<Request>,
    pub(crate) hit_rate: Family<Intake, Ratio>,
    pub(crate) acquired: Family<Intake, Counter>,
    pub(crate) wait_ms: Histograms<Intake>,
    pub(crate) timeouts: Family<Intake, Counter>,
    pub(crate) held_ms: Histograms<Operation>,
    pub(crate) held_longest: Gauge,
    pub(crate) abandoned: Family<Intake, Counter>,
    pub(crate) conflicts: Family<Conflict, Counter>,
    pub(crate) retried: Family<Intake, Counter>,
    pub(crate) expired: Family<Expiry, Counter>,
    pub(crate) active: Family<Intake, Gauge>,
    pub(crate) lifetime_ms: Histograms<Intake>,
    pub(crate) duplicate_age_ms: Histograms<Intake>,
    pub(crate) concurrent: Counter,
    pub(crate) waiters: Gauge,
    pub(crate) running: Gauge,
    pub(crate) cache_entries: Gauge,
    pub(crate) cache_bytes: Gauge,
    pub(crate) stale_keys: Gauge,
    pub(crate) clock_skew_ms: Gauge,
    pub(crate) response_bytes: Histogram,
    pub(crate) results: Results,
    pub(crate) execution_ms: Histogram,
    pub(crate) keys_active: Gauge,
    refusals: Family<Why, Counter>,
    /// The sum of those; on no page.
    pub(crate) refused_all: Counter,
    events: Family<Named, Counter>,
    pub(crate) in_doubt: Gauge,
    deeds: Family<Deed, Counter>,
    upstream_failures: Family<Failed, Counter>,
    upstream_up: Family<OfUpstream, Gauge>,
    sightings: Family<Sighting, Counter>,
}

impl All {
    #[expect(
        clippy::too_many_lines,
        reason = "one line a metric, in the documents' order"
    )]
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        registry.register("onlyonce_build", "What runs here", Info::new(version));
        let mut add = Adder(registry);
        let results: Family<Outcome, Counter> =
            add.it("idem_requests", "Keyed requests by how they ended (D4).");
        let result = |result| results.get_or_create_owned(&Outcome { result });
        Self {
            requests: add.it("idempotency_request", "Keyed requests that were answered."),
            replayed: add.it(
                "idempotency_request_replayed",
                "Keyed requests answered by a replay.",
            ),
            duration_ms: add.ms(
                "idempotency_request_duration_ms",
                "From a keyed request with its body to its answer.",
                || Histogram::new([10., 25., 50., 100., 250., 500., 1e3, 2.5e3, 5e3, 1e4]),
            ),
            hit_rate: add.it(
                "idempotency_cache_hit_rate",
                "Replays among keyed requests, over five minutes.",
            ),
            acquired: add.it("idempotency_lock_acquired", "Slots claimed."),
            wait_ms: add.ms(
                "idempotency_lock_wait_time_ms",
                "From asking for a slot to having it.",
                || Histogram::new([0., 10., 50., 100., 250., 500., 1e3, 2.5e3, 5e3, 1e4, 3e4]),
            ),
            timeouts: add.it(
                "idempotency_lock_timeout",
                "Duplicates that waited as long as they may, in vain.",
            ),
            held_ms: add.ms(
                "idempotency_lock_held_duration_ms",
                "From having a slot to giving it up.",
                || Histogram::new([10., 50., 100., 250., 500., 1e3, 2.5e3, 5e3, 1e4, 3e4]),
            ),
            held_longest: add.it(
                "idempotency_lock_held_longest_ms",
                "How long the oldest claim of this process has had its slot.",
            ),
            abandoned: add.it(
                "idempotency_lock_abandoned",
                "Claims taken over because their holder crashed, hung or was cut off.",
            ),
            conflicts: add.it(
                "idempotency_conflict",
                "Keys used again for something else, or with another credential.",
            ),
            retried: add.it(
                "idempotency_conflict_retry_after_conflict",
                "Requests that came back under a new key after a conflict.",
            ),
            expired: add.it(
                "idempotency_key_expired",
                "Keys stored by this process whose time is over, or that were forgotten.",
            ),
            active: add.it(
                "idempotency_key_active_count",
                "Live records in the store, by intake as far as this process stored them.",
            ),
            lifetime_ms: add.ms(
                "idempotency_key_average_lifetime_ms",
                "From storing a key's answer to its end.",
                || Histogram::new([6e4, 3e5, 6e5, 1.8e6, 3.6e6, 2.16e7, 8.64e7]),
            ),
            duplicate_age_ms: add.ms(
                "idempotency_duplicate_age_ms",
                "From an original to its duplicate.",
                || Histogram::new([100., 1e3, 1e4, 6e4, 6e5, 3.6e6, 2.16e7, 8.64e7]),
            ),
            concurrent: add.it(
                "idempotency_concurrent_requests",
                "Requests whose key was being worked on when they came.",
            ),
            waiters: add.it(
                "idempotency_waiters",
                "Duplicates that wait for a request of this process now.",
            ),
            running: add.it(
                "idempotency_running",
                "Keyed requests that run in this process now.",
            ),
            cache_entries: add.it(
                "idempotency_cache_size_entries",
                "Live records in the store.",
            ),
            cache_bytes: add.it(
                "idempotency_cache_size_bytes",
                "Bytes that live records take.",
            ),
            stale_keys: add.it(
                "idempotency_stale_keys_count",
                "Expired records that the store still has.",
            ),
            clock_skew_ms: add.it(
                "idempotency_clock_skew_ms",
                "How far the store's clock is ahead of this machine's; nothing is decided by it.",
            ),
            response_bytes: add.with(
                "idempotency_response_bytes",
                "The size of stored answers.",
                Histogram::new([256., 1024., 4096., 16384., 65536., 262_144., 1_048_576.]),
            ),
            results: Results {
                new: result("new"),
                replay: result("replay"),
                conflict: result("conflict"),
                in_progress: result("in_progress"),
            },
            execution_ms: add.with(
                "idem_execution_ms",
                "How long handlers ran (D4).",
                Histogram::new([10., 25., 50., 100., 250., 500., 1e3, 2.5e3, 5e3, 1e4]),
            ),
            keys_active: add.it("idem_keys_active", "Live records in the store (D4)."),
            refusals: add.it(
                "idempotency_refused",
                "Keyed requests refused for other reasons than a conflict or one in progress.",
            ),
            refused_all: Counter::default(),
            events: add.it(
                "idempotency_event",
                "What is out of the ordinary, by its name.",
            ),
            in_doubt: add.it(
                "idempotency_outcomes_in_doubt",
                "Outcomes that are unknown and wait for an operator's decision.",
            ),
            deeds: add.it(
                "idempotency_operator_action",
                "Records that operators changed, by what they did.",
            ),
            upstream_failures: add.it(
                "idempotency_upstream_failure",
                "Requests that an upstream did not answer, by what went wrong.",
            ),
            upstream_up: add.it(
                "idempotency_upstream_up",
                "1 if the last request to the upstream was answered, 0 if not.",
            ),
            sightings: add.it(
                "idempotency_observed",
                "Requests on routes that are only observed, by what enforcing would have done.",
            ),
        }
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused_all.inc();
        self.refusals.get_or_create(&Why { reason }).inc();
    }

    pub(crate) fn event(&self, event: &'static str) {
        self.events.get_or_create(&Named { event }).inc();
    }
}

impl All {
    pub(crate) fn operated(&self, action: &'static str) {
        self.deeds.get_or_create(&Deed { action }).inc();
    }

    pub(crate) fn upstream_failed(&self, upstream: &Arc<str>, kind: &'static str) {
        let upstream = Arc::clone(upstream);
        let failed = Failed { upstream, kind };
        self.upstream_failures.get_or_create(&failed).inc();
    }

    pub(crate) fn observed(&self, route: &Arc<str>, seen: &'static str) {
        let route = Arc::clone(route);
        let sighting = Sighting { route, seen };
        self.sightings.get_or_create(&sighting).inc();
    }

    pub(crate) fn set_upstream_up(&self, upstream: &Arc<str>, is_up: bool) {
        let upstream = Arc::clone(upstream);
        let of = OfUpstream { upstream };
        self.upstream_up.get_or_create(&of).set(i64::from(is_up));
    }

    pub(crate) fn forget_upstream(&self, upstream: &Arc<str>) {
        let upstream = Arc::clone(upstream);
        self.upstream_up.remove(&OfUpstream { upstream });
    }
}

/// Registers, and gives what it registered.
struct Adder<'a>(&'a mut Registry);

impl Adder<'_> {
    fn it<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.with(name, help, M::default())
    }

    fn ms<L>(&mut self, name: &str, help: &str, make: fn() -> Histogram) -> Histograms<L>
    where
        Histograms<L>: Metric,
        L: Clone + std::hash::Hash + Eq,
    {
        self.with(name, help, Family::new_with_constructor(make))
    }

    fn with<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        // The registry ends every help with a full stop of its own.
        self.0
            .register(name, help.trim_end_matches('.'), metric.clone());
        metric
    }
}

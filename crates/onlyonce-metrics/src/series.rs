//! The metrics of one route and intake, found by two lookups. A name beyond the bound is `other`, and
//! an operation that is called by a path of the client's choice is `*`: no client can fill the
//! places. Intakes are named by clients too, so those that are idle give their place to others.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use onlyonce_core::About;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::all::{All, Conflict, Expiry, Intake, Operation, Ratio, Request};
use crate::float_millis;
use crate::lives::Lives;
use crate::window::Window;

mod idle;

use self::idle::Quiet;

/// Distinct values of one label.
const VALUES_MAX: usize = 100;
/// What all further values are called.
const OTHER: &str = "other";
/// What an operation is called that has no name but the path of a request.
const UNNAMED: &str = "*";
/// How far back the share of replays looks.
const HIT_RATE_SPAN: Duration = Duration::from_secs(300);

/// What is counted for a route and an intake.
pub(crate) struct Series {
    /// Those that ran or were refused, then those that were replayed.
    requests: [Counter; 2],
    replayed: Counter,
    duration_ms: [Histogram; 2],
    pub(crate) held_ms: Histogram,
    pub(crate) intake: Arc<IntakeSeries>,
}

/// What is counted for an intake, whatever the route.
pub(crate) struct IntakeSeries {
    hit_rate: Ratio,
    window: Window<2>,
    quiet: Quiet,
    total: Counter,
    replays: Counter,
    pub(crate) acquired: Counter,
    pub(crate) wait_ms: Histogram,
    pub(crate) timeouts: Counter,
    pub(crate) abandoned: Counter,
    /// Another payload, then another credential.
    pub(crate) conflicts: [Counter; 2],
    pub(crate) retried: Counter,
    pub(crate) active: Gauge,
    expired: Counter,
    explicit: Counter,
    lifetime_ms: Histogram,
    pub(crate) duplicate_age_ms: Histogram,
    pub(crate) lives: Lives,
}

impl Series {
    /// A caller got its answer.
    pub(crate) fn answered(&self, replayed: bool, took: Duration) {
        let kind = usize::from(replayed);
        self.requests[kind].inc();
        self.duration_ms[kind].observe(float_millis(took));
        self.intake.total.inc();
        if replayed {
            self.replayed.inc();
            self.intake.replays.inc();
        }
    }

    /// A caller went away before its answer.
    pub(crate) fn left(&self) {
        self.requests[0].inc();
        self.intake.total.inc();
    }
}

impl IntakeSeries {
    /// Moves on what depends on time.
    fn roll(&self, now: Duration, count_ends: bool) {
        let counts = [self.replays.get(), self.total.get()];
        self.quiet.note(now, self.total.get());
        let [replays, total] = self.window.since(now, HIT_RATE_SPAN, counts);
        let rate = if total == 0 {
            0.0
        } else {
            replays as f64 / total as f64
        };
        self.hit_rate.set(rate);
        for (keep_for, count) in self.lives.ended(now) {
            self.active.dec_by(crate::signed(count));
            if count_ends {
                self.ended(keep_for, count);
            }
        }
    }

    /// The time of so many keys was over.
    pub(crate) fn ended(&self, lifetime: Duration, count: u64) {
        self.expired.inc_by(count);
        for _ in 0..count {
            self.lifetime_ms.observe(float_millis(lifetime));
        }
    }
}

/// The series of one route. Most have no intake, and an empty name is slow to compare.
#[derive(Default)]
struct ByIntake {
    unnamed: Option<Arc<Series>>,
    named: BTreeMap<Arc<str>, Arc<Series>>,
}

impl ByIntake {
    fn get(&self, intake: &str) -> Option<&Arc<Series>> {
        if intake.is_empty() {
            self.unnamed.as_ref()
        } else {
            self.named.get(intake)
        }
    }

    fn insert(&mut self, intake: Arc<str>, series: Arc<Series>) {
        if intake.is_empty() {
            self.unnamed = Some(series);
        } else {
            self.named.insert(intake, series);
        }
    }

    fn values(&self) -> impl Iterator<Item = &Arc<Series>> {
        self.unnamed.iter().chain(self.named.values())
    }
}

/// All series, by route and intake.
pub(crate) struct SeriesMap {
    all: Arc<All>,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    by_operation: BTreeMap<Arc<str>, ByIntake>,
    intakes: BTreeMap<Arc<str>, Arc<IntakeSeries>>,
}

impl SeriesMap {
    pub(crate) fn new(all: Arc<All>) -> Self {
        Self {
            all,
            known: RwLock::default(),
        }
    }

    pub(crate) fn of(&self, about: &About<'_>) -> Arc<Series> {
        let intake = about.intake.unwrap_or_default();
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            let operation = known.operation(about);
            let found = known.find(operation, intake).or_else(|| {
                let (operation, intake) = known.named(operation, intake);
                known.find(operation, intake)
            });
            if let Some(series) = found {
                return Arc::clone(series);
            }
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let (operation, intake) = known.named(known.operation(about), intake);
        if let Some(series) = known.find(operation, intake) {
            return Arc::clone(series);
        }
        self.make(&mut known, operation.into(), intake.into())
    }

    /// An operator has forgotten a record that was there for `lifetime`. A record does not say of
    /// which intake it is, so it is counted where a key of this operation ends when it would have.
    pub(crate) fn forgotten(
        &self,
        about: &About<'_>,
        now: Duration,
        keep_for: Duration,
        lifetime: Duration,
    ) {
        let own = self.of(about);
        let due = now + keep_for.saturating_sub(lifetime);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let of_operation = known.by_operation.get(known.operation(about));
        let mut intakes = of_operation.into_iter().flat_map(ByIntake::values);
        let begun = intakes.find(|series| series.intake.lives.cut_short(due, keep_for));
        if let Some(series) = begun {
            series.intake.active.dec();
        }
        let intake = &begun.unwrap_or(&own).intake;
        intake.explicit.inc();
        intake.lifetime_ms.observe(float_millis(lifetime));
    }

    /// An operator keeps a record longer that was to end at `due`.
    pub(crate) fn extended(
        &self,
        about: &About<'_>,
        due: Duration,
        keep_for: Duration,
        by: Duration,
    ) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let of_operation = known.by_operation.get(known.operation(about));
        let mut intakes = of_operation.into_iter().flat_map(ByIntake::values);
        if let Some(begun) = intakes.find(|it| it.intake.lives.cut_short(due, keep_for)) {
            let lives = &begun.intake.lives;
            lives.resume(due.saturating_add(by), keep_for.saturating_add(by));
        }
    }

    /// The store has so many live records. Those that this process knows nothing of, because
    /// another stored them, or it did before a restart, count for no intake in particular: the sum
    /// over all intakes is the store's.
    pub(crate) fn set_records(&self, records: u64) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let named = known.intakes.iter().filter(|(name, _)| !name.is_empty());
        let known_here: i64 = named.map(|(_, intake)| intake.active.get()).sum();
        let of_none = Intake {
            intake_id: "".into(),
        };
        let others = crate::signed(records).saturating_sub(known_here);
        self.all.active.get_or_create(&of_none).set(others.max(0));
    }

    pub(crate) fn roll(&self, now: Duration, count_ends: bool) {
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            for intake in known.intakes.values() {
                intake.roll(now, count_ends);
            }
        }
        self.forget_idle(now);
    }

    fn make(&self, known: &mut Known, operation: Arc<str>, intake_id: Arc<str>) -> Arc<Series> {
        let intakes = known.intakes.entry(Arc::clone(&intake_id));
        let intake = intakes.or_insert_with(|| Arc::new(self.intake(&intake_id)));
        let all = &self.all;
        let (kinds, of_operation) = of_route(&operation, &intake_id);
        let series = Arc::new(Series {
            requests: kinds
                .each_ref()
                .map(|it| all.requests.get_or_create_owned(it)),
            duration_ms: kinds
                .each_ref()
                .map(|it| all.duration_ms.get_or_create_owned(it)),
            replayed: all.replayed.get_or_create_owned(&of_operation),
            held_ms: all.held_ms.get_or_create_owned(&of_operation),
            intake: Arc::clone(intake),
        });
        let by_intake = known.by_operation.entry(operation).or_default();
        by_intake.insert(intake_id, Arc::clone(&series));
        series
    }

    fn intake(&self, intake_id: &Arc<str>) -> IntakeSeries {
        let all = &self.all;
        let of = &Intake {
            intake_id: Arc::clone(intake_id),
        };
        let [elapsed, explicit] = expiries(intake_id);
        let conflicts = conflicts(intake_id);
        IntakeSeries {
            hit_rate: all.hit_rate.get_or_create_owned(of),
            window: Window::default(),
            quiet: Quiet::default(),
            total: Counter::default(),
            replays: Counter::default(),
            acquired: all.acquired.get_or_create_owned(of),
            wait_ms: all.wait_ms.get_or_create_owned(of),
            timeouts: all.timeouts.get_or_create_owned(of),
            abandoned: all.abandoned.get_or_create_owned(of),
            conflicts: conflicts.map(|it| all.conflicts.get_or_create_owned(&it)),
            retried: all.retried.get_or_create_owned(of),
            active: all.active.get_or_create_owned(of),
            expired: all.expired.get_or_create_owned(&elapsed),
            explicit: all.expired.get_or_create_owned(&explicit),
            lifetime_ms: all.lifetime_ms.get_or_create_owned(of),
            duplicate_age_ms: all.duplicate_age_ms.get_or_create_owned(of),
            lives: Lives::default(),
        }
    }
}

/// The labels of a route: of those that ran or were refused, of those that were replayed, of both.
fn of_route(operation: &Arc<str>, intake_id: &Arc<str>) -> ([Request; 2], Operation) {
    let of_request = |replayed| Request {
        intake_id: Arc::clone(intake_id),
        operation: Arc::clone(operation),
        replayed,
    };
    let of_both = Operation {
        intake_id: Arc::clone(intake_id),
        operation: Arc::clone(operation),
    };
    (["false", "true"].map(of_request), of_both)
}

fn expiries(intake_id: &Arc<str>) -> [Expiry; 2] {
    ["ttl_elapsed", "explicit_delete"].map(|reason| Expiry {
        intake_id: Arc::clone(intake_id),
        reason,
    })
}

fn conflicts(intake_id: &Arc<str>) -> [Conflict; 2] {
    ["payload_mismatch", "key_collision"].map(|conflict_type| Conflict {
        intake_id: Arc::clone(intake_id),
        conflict_type,
    })
}

impl Known {
    /// What an operation is called. A record does not say whether its name is a path, but one that
    /// is known already is none.
    fn operation<'a>(&self, about: &About<'a>) -> &'a str {
        let recorded = &*about.meta.operation;
        match about.route {
            Some(route) => route,
            None if self.by_operation.contains_key(recorded) => recorded,
            None => UNNAMED,
        }
    }

    /// The label values for these names.
    fn named<'a>(&self, operation: &'a str, intake: &'a str) -> (&'a str, &'a str) {
        let operation = bounded(&self.by_operation, operation);
        let intake = bounded(&self.intakes, intake);
        (operation, intake)
    }

    fn find(&self, operation: &str, intake: &str) -> Option<&Arc<Series>> {
        self.by_operation.get(operation)?.get(intake)
    }
}

fn bounded<'a, T>(known: &BTreeMap<Arc<str>, T>, name: &'a str) -> &'a str {
    if known.contains_key(name) || known.len() < VALUES_MAX {
        name
    } else {
        OTHER
    }
}

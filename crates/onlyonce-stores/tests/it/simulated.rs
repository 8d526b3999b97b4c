//! The wrappers in the simulator: an open breaker, and a cache whose records others forget, are
//! faults like the others, and no rule is broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::{Clock, Entropy, Store};
use onlyonce_stores::guarded::BreakerState;
use onlyonce_stores::{Cached, Guarded};
use onlyonce_testkit::sim::{Around, Fault, Heard, Plan, Report, run};

const SEEDS: u64 = 400;
const LAG: Duration = Duration::from_millis(500);
/// Longer than a breaker stays open and a try of its own takes.
const SULK: Duration = Duration::from_secs(3);

fn cached(store: Arc<dyn Store>, clock: Arc<dyn Clock>, _: Arc<dyn Entropy>) -> Arc<dyn Store> {
    Arc::new(Cached::new(store).clock(clock).age_max(LAG))
}

static OPENED: AtomicU64 = AtomicU64::new(0);

fn guarded(store: Arc<dyn Store>, clock: Arc<dyn Clock>, _: Arc<dyn Entropy>) -> Arc<dyn Store> {
    let guarded = Guarded::new(store)
        .clock(clock)
        .breaker(2, Duration::from_millis(300))
        .timeout(Duration::from_secs(600))
        .on_change(|state| {
            if state == BreakerState::Open {
                OPENED.fetch_add(1, Ordering::Relaxed);
            }
        });
    Arc::new(guarded)
}

fn both(store: Arc<dyn Store>, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Arc<dyn Store> {
    cached(
        guarded(store, Arc::clone(&clock), Arc::clone(&entropy)),
        clock,
        entropy,
    )
}

fn simulate(around: Around) -> Report {
    let plan = Plan {
        around: Some(around),
        ..Plan::default()
    };
    let mut all = Report::default();
    for seed in 1..=SEEDS {
        match run(seed, &plan) {
            Ok(report) => all.add(&report),
            Err(violation) => panic!("{violation}"),
        }
    }
    all
}

#[test]
fn a_cache_breaks_no_rule_when_others_forget() {
    let report = simulate(Around {
        wrap: cached,
        lag: LAG,
        sulk: Duration::ZERO,
    });

    assert!(report.faults(Fault::Forget) > 0);
    assert!(report.heard(Heard::Replayed) > 0);
}

#[test]
fn an_open_breaker_breaks_no_rule() {
    let report = simulate(Around {
        wrap: guarded,
        lag: Duration::ZERO,
        sulk: SULK,
    });

    assert!(OPENED.load(Ordering::Relaxed) > 0, "the breaker opens");
    assert!(report.heard(Heard::StoreDown) > 0);
}

#[test]
fn a_cache_before_a_breaker_breaks_no_rule() {
    let report = simulate(Around {
        wrap: both,
        lag: LAG,
        sulk: SULK,
    });

    assert!(report.heard(Heard::Replayed) > 0);
}

#[test]
fn a_cache_that_may_tell_nothing_old_is_caught_when_it_does() {
    let plan = Plan {
        around: Some(Around {
            wrap: cached,
            lag: Duration::ZERO,
            sulk: Duration::ZERO,
        }),
        ..Plan::default()
    };

    assert!((1..=SEEDS).any(|seed| run(seed, &plan).is_err()));
}

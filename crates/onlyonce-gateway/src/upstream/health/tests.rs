use std::sync::{Arc, Barrier};

use http::Uri;
use onlyonce_core::MemoryStore;
use onlyonce_metrics::{Metrics, StoreWatch};

use super::{Health, Healths};
use crate::upstream::UpstreamError;

const ROUNDS: usize = 2_000;

fn metrics() -> Arc<Metrics> {
    let (_, watch) = StoreWatch::around("memory", Arc::new(MemoryStore::new()));
    Arc::new(Metrics::new(watch))
}

fn known(metrics: &Arc<Metrics>) -> (Healths, Arc<Health>) {
    let healths = Healths::new(metrics);
    let health = healths.of(&Uri::from_static("http://orders.internal:3000"));
    (healths, health)
}

/// The metric of the upstream; nothing if there is none.
fn told(metrics: &Metrics) -> Option<bool> {
    let name = "idempotency_upstream_up{upstream=\"http://orders.internal:3000\"} ";
    let page = metrics.page();
    let value = page.lines().find_map(|line| line.strip_prefix(name));
    value.map(|value| value == "1")
}

#[test]
fn the_metric_says_what_the_last_exchange_did_however_they_race() {
    let metrics = metrics();
    let (_healths, health) = known(&metrics);
    let barrier = Barrier::new(2);

    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                barrier.wait();
                health.failed(&UpstreamError::Slow);
                barrier.wait();
            }
        });
        for round in 0..ROUNDS {
            barrier.wait();
            health.answered();
            barrier.wait();
            assert_eq!(told(&metrics), Some(health.now().is_up), "round {round}");
        }
    });
}

#[test]
fn an_upstream_that_is_not_used_any_more_has_no_metric_whatever_still_ends_there() {
    let metrics = metrics();
    let (healths, health) = known(&metrics);
    health.failed(&UpstreamError::Slow);
    assert_eq!(told(&metrics), Some(false));

    healths.keep_only(&[Uri::from_static("http://127.0.0.1:3000")]);
    assert_eq!(told(&metrics), None);
    health.answered();
    health.failed(&UpstreamError::Slow);
    assert_eq!(told(&metrics), None);

    let (_, again) = (
        healths.of(&Uri::from_static("http://orders.internal:3000")),
        health,
    );
    assert_eq!(told(&metrics), Some(true), "it is used again");
    again.failed(&UpstreamError::Slow);
    assert_eq!(told(&metrics), Some(true));
}

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{About, Event, Key, MemoryStore, Meta, Slot, SlotSecret, Subscriber};

use super::{IDLE_MAX, VALUES_MAX};
use crate::{Metrics, StoreWatch};

fn metrics() -> Metrics {
    let (_, watch) = StoreWatch::around("memory", Arc::new(MemoryStore::new()));
    Metrics::new(watch)
}

/// A request that ran, for this operation, by its path or by its route, and this intake.
fn ran(metrics: &Metrics, path: &str, route: Option<&str>, intake: Option<&str>) {
    let secret = SlotSecret::from_bytes([7; SlotSecret::BYTES]);
    let key = Key::parse(b"a-key-like-any-other", &Default::default()).unwrap();
    let about = About {
        slot: &Slot::from_bytes([1; Slot::BYTES]),
        meta: &Arc::new(Meta {
            hint: secret.hint(&key),
            operation: path.into(),
            actor: None,
            holder: "here".into(),
            trace: None,
            credential: None,
        }),
        fingerprint: None,
        intake,
        route,
    };
    let took = Duration::from_millis(1);
    metrics.on_event(&about, &Event::Ran { took });
}

fn fill(metrics: &Metrics) {
    for number in 0..2 * VALUES_MAX {
        let made_up = format!("made-up-{number}");
        ran(metrics, "/{intake}", Some("/{intake}"), Some(&made_up));
    }
}

#[tokio::test(start_paused = true)]
async fn paths_that_clients_choose_take_no_place() {
    let metrics = metrics();
    for number in 0..2 * VALUES_MAX {
        ran(&metrics, &format!("/made-up-{number}"), None, None);
    }

    ran(&metrics, "/orders/{id}", Some("/orders/{id}"), None);

    let page = metrics.page();
    assert!(page.contains("operation=\"/orders/{id}\""), "{page}");
    assert!(page.contains("operation=\"*\""), "{page}");
    assert!(!page.contains("made-up"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn intakes_that_somebody_made_up_give_their_place_to_real_ones() {
    let metrics = metrics();
    fill(&metrics);
    let before = metrics.page();
    tokio::time::advance(IDLE_MAX).await;
    metrics.page();

    ran(&metrics, "/{intake}", Some("/{intake}"), Some("real"));

    let page = metrics.page();
    assert!(before.contains("intake_id=\"made-up-0\""), "{before}");
    assert!(!page.contains("made-up"), "{page}");
    assert!(page.contains("intake_id=\"real\""), "{page}");
    assert!(page.contains("intake_id=\"other\""), "{page}");
}

#[tokio::test(start_paused = true)]
async fn an_intake_in_use_keeps_its_place_and_its_counts() {
    let metrics = metrics();
    let in_use = || ran(&metrics, "/{intake}", Some("/{intake}"), Some("in-use"));
    in_use();
    fill(&metrics);
    metrics.page();
    tokio::time::advance(IDLE_MAX / 2).await;
    in_use();
    metrics.page();
    tokio::time::advance(IDLE_MAX / 2).await;

    let page = metrics.page();

    assert!(!page.contains("made-up"), "{page}");
    let counted = page.lines().any(|line| {
        line.starts_with("idempotency_request_total{intake_id=\"in-use\"") && line.ends_with(" 2")
    });
    assert!(counted, "{page}");
}

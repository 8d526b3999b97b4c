//! What the circuit breaker tells: each change once, and what it has done so far.

use std::sync::atomic::{AtomicUsize, Ordering};

use onlyonce_stores::guarded::{BreakerState, BreakerTally};
use tracing::field::{Field, Visit};

use super::breaker::{brittle, fail_claims, refusal};
use super::*;

#[tokio::test(start_paused = true)]
async fn every_change_is_told_once_and_in_order() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (rough, store) = brittle();
    let store = store.on_change({
        let told = Arc::clone(&told);
        move |state| told.lock().unwrap().push(state)
    });

    fail_claims(&rough, &store, 5).await;
    for _ in 0..3 {
        refusal(&rough, &store).await;
    }
    tokio::time::sleep(60 * SECOND).await;
    fail_claims(&rough, &store, 1).await;
    tokio::time::sleep(60 * SECOND).await;
    lease(&store, &claim()).await;
    lease(&store, &claim()).await;

    use BreakerState::{Closed, HalfOpen, Open};
    assert_eq!(
        *told.lock().unwrap(),
        [Open, HalfOpen, Open, HalfOpen, Closed]
    );
}

#[tokio::test(start_paused = true)]
async fn it_counts_how_often_it_opened_and_whom_it_refused() {
    let (rough, store) = brittle();
    fail_claims(&rough, &store, 5).await;
    for _ in 0..3 {
        refusal(&rough, &store).await;
    }
    tokio::time::sleep(60 * SECOND).await;
    fail_claims(&rough, &store, 1).await;

    let expected = BreakerTally {
        state: BreakerState::Open,
        opened: 2,
        rejected: 3,
    };
    assert_eq!(store.tally(), expected);
    let numbers = [
        BreakerState::Closed,
        BreakerState::Open,
        BreakerState::HalfOpen,
    ];
    assert_eq!(numbers.map(|it| it as u8), [0, 1, 2]);
}

/// Counts what is logged about a breaker.
struct Logged(Arc<AtomicUsize>);

impl Visit for Logged {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "event" && format!("{value:?}").contains("circuit_breaker") {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl tracing::Subscriber for Logged {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Logged(Arc::clone(&self.0)));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn every_change_is_logged_once() {
    let lines = Arc::new(AtomicUsize::new(0));
    // With a single subscriber, tracing asks the thread that first meets a log line whether
    // anyone listens, and remembers its no for all. With two it asks the subscribers.
    let _second = tracing::Dispatch::new(Logged(Arc::default()));
    let _listening = tracing::subscriber::set_default(Logged(Arc::clone(&lines)));
    let (rough, store) = brittle();

    fail_claims(&rough, &store, 5).await;
    assert_eq!(lines.load(Ordering::SeqCst), 1);
    for _ in 0..20 {
        refusal(&rough, &store).await;
    }
    assert_eq!(lines.load(Ordering::SeqCst), 1);
    tokio::time::sleep(60 * SECOND).await;
    lease(&store, &claim()).await;

    assert_eq!(lines.load(Ordering::SeqCst), 3);
}

//! Wrappers in wrappers: each goes around any store, also around another wrapper.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Verb;
use onlyonce_core::{MemoryStore, Operate, OsEntropy, Store};
use onlyonce_stores::guarded::BreakerState;
use onlyonce_stores::{Cached, Guarded, KeyRing, Metered, Sealed};

use crate::rough::{DOWN, LONG, Rough, WrappedBed, claim, done, failure, replayed};

async fn sealed(store: Arc<dyn Store>) -> Arc<dyn Store> {
    let ring = KeyRing::generate(&OsEntropy::new());
    Arc::new(Sealed::open(store, ring).await.unwrap())
}

mod guarded_cached_sealed {
    use super::*;

    onlyonce_testkit::conformance_suite!(
        WrappedBed::new("guarded, cached, sealed", async |store| {
            Guarded::new(Arc::new(Cached::new(sealed(store).await)))
        })
        .await
    );
}

mod cached_guarded_sealed_metered {
    use super::*;

    onlyonce_testkit::conformance_suite!(
        WrappedBed::new("cached, guarded, sealed, metered", async |store| {
            let sealed = sealed(Arc::new(Metered::new(store))).await;
            Cached::new(Arc::new(Guarded::new(sealed)))
        })
        .await
    );
}

#[tokio::test(start_paused = true)]
async fn a_cache_outside_replays_while_the_breaker_is_open() {
    let rough = Rough::new(Arc::new(MemoryStore::new()));
    let guarded = Arc::new(Guarded::new(rough.clone()));
    let store = Cached::new(guarded.clone());
    let finished = done(&store, "stored", LONG).await;
    replayed(&store, &finished).await;

    rough.always(DOWN);
    for _ in 0..5 {
        failure(store.claim(&claim()).await);
    }

    assert_eq!(guarded.state(), BreakerState::Open);
    assert_eq!(replayed(&store, &finished).await, b"stored");
}

#[tokio::test]
async fn a_meter_inside_a_cache_counts_what_reaches_the_store() {
    let metered = Arc::new(Metered::new(Arc::new(MemoryStore::new())));
    let store = Cached::new(metered.clone());
    let finished = done(&*metered, "stored", LONG).await;

    for _ in 0..10 {
        replayed(&store, &finished).await;
    }

    assert_eq!(metered.snapshot().of(Verb::Claim).count, 2);
}

/// A cache of opened records in front of the seal: what is forgotten stays forgotten.
#[tokio::test(start_paused = true)]
async fn a_forget_goes_through_all_of_them() {
    let sealed = sealed(Arc::new(MemoryStore::new())).await;
    let store = Guarded::new(Arc::new(Cached::new(sealed).exclusive()));
    let finished = done(&store, "stored", Duration::from_secs(60)).await;
    assert_eq!(replayed(&store, &finished).await, b"stored");

    assert!(store.forget(&finished.slot).await.unwrap());

    assert!(crate::rough::is_granted(&store, &finished).await);
}

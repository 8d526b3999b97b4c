//! A server whose eviction policy is changed while the store is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onlyonce_core::{Operate, Store, StoreErrorKind};
use onlyonce_redis::RedisStore;
use onlyonce_testkit::servers::Server;

use super::claims::{done, fresh, granted, replayed};
use super::private::{start, tell};

#[tokio::test]
async fn a_server_that_begins_to_evict_takes_no_new_keys_until_it_stops() {
    let server = start(&["maxmemory 100mb"]);
    let store = RedisStore::open(&server.url()).await.unwrap();
    let old = done(&store, "stored").await;

    let _: () = tell(
        &server,
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
    )
    .await;
    let checked = store.recheck().await.unwrap_err();

    assert_eq!(checked.kind, StoreErrorKind::Unsafe);
    let refused = store.claim(&fresh()).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Unsafe);
    let why = refused.source.unwrap().to_string();
    assert!(
        why.contains("allkeys-lru") && why.contains("noeviction"),
        "{why}"
    );
    // What is there is still there.
    assert_eq!(replayed(&store, &old).await, b"stored");

    let _: () = tell(
        &server,
        &["CONFIG", "SET", "maxmemory-policy", "noeviction"],
    )
    .await;
    store.recheck().await.unwrap();
    granted(&store, &fresh()).await;
}

#[tokio::test]
async fn who_accepts_eviction_is_only_warned() {
    let server = start(&["maxmemory 100mb"]);
    let url = format!("{}?eviction=warn", server.url());
    let store = RedisStore::open(&url).await.unwrap();
    let warnings = Arc::<AtomicUsize>::default();
    let _listening = tracing::subscriber::set_default(Warnings(Arc::clone(&warnings)));
    store.recheck().await.unwrap();
    assert_eq!(warnings.load(Ordering::SeqCst), 0);

    let _: () = tell(
        &server,
        &["CONFIG", "SET", "maxmemory-policy", "volatile-lru"],
    )
    .await;

    store.recheck().await.unwrap();
    assert_eq!(warnings.load(Ordering::SeqCst), 1);
    granted(&store, &fresh()).await;
}

/// Counts the warnings of stores.
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN && metadata.target() == "onlyonce"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

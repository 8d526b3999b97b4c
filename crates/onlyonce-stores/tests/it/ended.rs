//! A store that has ended answers nothing, not even what this process remembers of it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use onlyonce_core::{Store, StoreErrorKind};

use crate::rough::{LONG, done, fingerprint, rival};

/// The default store, with one finished record that it remembers, in a folder to which `happens` then.
async fn after(happens: impl FnOnce(&Path)) {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("data");
    let url = format!("file:{}", folder.display());
    let store: Arc<dyn Store> = onlyonce_stores::open(&url).await.unwrap();
    let claim = done(&*store, "stored", LONG).await;
    assert!(store.recall(&claim.slot, &fingerprint(1)).is_some());

    happens(&folder);
    // As a gateway does it every second; the store looks as often by itself.
    let swept = store.operate().unwrap().sweep(1).await;

    assert_eq!(swept.unwrap_err().kind, StoreErrorKind::Unavailable);
    assert!(store.recall(&claim.slot, &fingerprint(1)).is_none());
    let error = store.claim(&rival(&claim)).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.cause().contains("restart this process"), "{error:?}");
}

#[tokio::test]
async fn a_store_whose_folder_was_deleted_replays_nothing() {
    after(|folder| fs::remove_dir_all(folder).unwrap()).await;
}

#[tokio::test]
async fn a_store_whose_folder_was_replaced_replays_nothing() {
    after(|folder| {
        fs::rename(folder, folder.with_extension("old")).unwrap();
        fs::create_dir(folder).unwrap();
    })
    .await;
}

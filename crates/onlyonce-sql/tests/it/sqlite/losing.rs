//! A database file that is deleted or replaced while it is in use: what would not be found again is
//! not acknowledged, and no other file is made in its stead.

use std::fs;
use std::path::PathBuf;

use onlyonce_core::{Operate as _, Store as _, StoreError};
use onlyonce_sql::SqliteStore;
use tempfile::TempDir;

use crate::sql::{done, fresh};

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.0.path().join(format!("records.db{suffix}"))
    }

    async fn open(&self) -> SqliteStore {
        let url = format!("sqlite:{}", self.file("").display());
        SqliteStore::open(&url).await.unwrap()
    }
}

fn assert_gone<T>(answered: Result<T, StoreError>, what: &str) {
    let Err(error) = answered else {
        panic!("{what} was acknowledged");
    };
    let told = error.source.unwrap().to_string();
    assert!(
        told.contains("was deleted, moved or replaced"),
        "{what}: {told}"
    );
    assert!(told.contains("restart this process"), "{what}: {told}");
}

#[tokio::test]
async fn a_deleted_database_takes_nothing_and_is_not_made_again() {
    for suffix in ["", "-wal"] {
        let place = Place::new();
        let store = place.open().await;
        done(&store, "stored").await;
        fs::remove_file(place.file(suffix)).unwrap();

        assert_gone(store.claim(&fresh()).await, "a claim");
        if suffix.is_empty() {
            // What spoils the connection must not lead to a new and empty file.
            assert!(store.claim(&fresh()).await.is_err());
            assert!(store.sweep(1).await.is_err());
            assert!(store.ping().await.is_err());
            assert!(!place.file("").exists());
        }
    }
}

#[tokio::test]
async fn a_sweep_and_a_ping_notice_that_the_database_is_gone() {
    let place = Place::new();
    let store = place.open().await;
    done(&store, "stored").await;
    fs::remove_file(place.file("")).unwrap();

    assert_gone(store.ping().await, "a ping");
    assert_gone(store.sweep(1).await, "a sweep");
}

#[tokio::test]
async fn a_replaced_database_takes_nothing_from_who_has_the_old_one() {
    let place = Place::new();
    let old = place.open().await;
    done(&old, "stored").await;
    for suffix in ["", "-wal", "-shm"] {
        fs::rename(place.file(suffix), place.file(&format!("-old{suffix}"))).unwrap();
    }
    let new = place.open().await;
    done(&new, "stored elsewhere").await;

    assert_gone(old.claim(&fresh()).await, "a claim");
}

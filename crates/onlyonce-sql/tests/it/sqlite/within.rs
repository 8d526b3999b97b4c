//! A record that is finished inside its caller's transaction.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Completed, OnLapse, Operate, Renewed, State, Store};
use onlyonce_sql::{SqlOptions, SqliteStore};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use tempfile::TempDir;

use crate::sql::{LONG, answer, body, fresh, lease, rival, soon, taken};

struct Shop {
    store: Arc<SqliteStore>,
    pool: SqlitePool,
    _folder: TempDir,
}

impl Shop {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true);
        let pool = SqlitePoolOptions::new()
            .connect_with(options)
            .await
            .unwrap();
        let store = SqliteStore::with_pool(pool.clone(), SqlOptions::new());
        let store = store.await.unwrap();
        sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
            .execute(&pool)
            .await
            .unwrap();
        Self {
            store: Arc::new(store),
            pool,
            _folder: folder,
        }
    }

    async fn orders(&self) -> i64 {
        let count = sqlx::query_scalar("SELECT COUNT(*) FROM orders");
        count.fetch_one(&self.pool).await.unwrap()
    }
}

#[tokio::test]
async fn a_commit_stores_the_callers_rows_and_the_record() {
    let shop = Shop::new().await;
    let claim = fresh();
    let held = lease(&*shop.store, &claim).await;
    let response = answer("ordered");

    let mut tx = shop.pool.begin().await.unwrap();
    let locked = shop.store.lock_in(&mut tx, &held).await.unwrap();
    assert!(matches!(locked, Renewed::Kept));
    sqlx::query("INSERT INTO orders DEFAULT VALUES")
        .execute(&mut *tx)
        .await
        .unwrap();
    let completed = shop
        .store
        .complete_in(&mut tx, &held, &response, LONG)
        .await;
    let Completed::Stored(receipt) = completed.unwrap() else {
        panic!("not stored");
    };
    tx.commit().await.unwrap();

    assert_eq!(shop.orders().await, 1);
    let found = taken(&*shop.store, &rival(&claim)).await;
    assert_eq!(body(&found), b"ordered");
    assert_eq!(found.expires_at, receipt.expires_at);
    let again = shop.store.complete(&held, &response, LONG).await.unwrap();
    let Completed::Found(record) = again else {
        panic!("stored twice: {again:?}");
    };
    assert_eq!(
        (record.token, body(&record)),
        (claim.token, &b"ordered"[..])
    );
}

#[tokio::test]
async fn a_rollback_stores_neither() {
    let shop = Shop::new().await;
    let claim = fresh();
    let held = lease(&*shop.store, &claim).await;

    let mut tx = shop.pool.begin().await.unwrap();
    shop.store.lock_in(&mut tx, &held).await.unwrap();
    sqlx::query("INSERT INTO orders DEFAULT VALUES")
        .execute(&mut *tx)
        .await
        .unwrap();
    let completed = shop
        .store
        .complete_in(&mut tx, &held, &answer("ordered"), LONG)
        .await;
    assert!(matches!(completed.unwrap(), Completed::Stored(_)));
    tx.rollback().await.unwrap();

    assert_eq!(shop.orders().await, 0);
    let found = taken(&*shop.store, &rival(&claim)).await;
    assert!(matches!(found.state, State::Pending { .. }));
    let completed = shop.store.complete(&held, &answer("after all"), LONG).await;
    assert!(matches!(completed.unwrap(), Completed::Stored(_)));
}

#[tokio::test]
async fn a_lost_lease_can_neither_lock_nor_complete() {
    let shop = Shop::new().await;
    let mut lost = fresh();
    lost.lease_for = Duration::ZERO;
    let held = lease(&*shop.store, &lost).await;
    let successor = rival(&lost);
    lease(&*shop.store, &successor).await;

    let mut tx = shop.pool.begin().await.unwrap();
    let locked = shop.store.lock_in(&mut tx, &held).await.unwrap();
    let completed = shop
        .store
        .complete_in(&mut tx, &held, &answer("late"), LONG)
        .await;
    tx.rollback().await.unwrap();

    assert!(matches!(locked, Renewed::Lost));
    let Completed::Found(record) = completed.unwrap() else {
        panic!("a lost lease completed");
    };
    assert_eq!(record.token, successor.token);
}

#[tokio::test]
async fn a_locked_claim_is_not_taken_over_even_when_it_lapses() {
    let shop = Shop::new().await;
    let mut claim = fresh();
    claim.on_lapse = OnLapse::Rerun;
    claim.lease_for = Duration::from_millis(50);
    let held = lease(&*shop.store, &claim).await;
    let mut tx = shop.pool.begin().await.unwrap();
    let locked = shop.store.lock_in(&mut tx, &held).await.unwrap();
    assert!(matches!(locked, Renewed::Kept));

    while !shop
        .store
        .get(&claim.slot)
        .await
        .unwrap()
        .unwrap()
        .is_lapsed()
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (store, late) = (Arc::clone(&shop.store), rival(&claim));
    let claiming = tokio::spawn(async move { taken(&*store, &late).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let completed = shop
        .store
        .complete_in(&mut tx, &held, &answer("in time"), LONG)
        .await;
    assert!(matches!(completed.unwrap(), Completed::Stored(_)));
    tx.commit().await.unwrap();

    assert_eq!(body(&soon(claiming).await.unwrap()), b"in time");
}

#[tokio::test]
async fn a_commit_by_the_caller_wakes_who_waits() {
    let shop = Shop::new().await;
    let claim = fresh();
    let held = lease(&*shop.store, &claim).await;
    let store = Arc::clone(&shop.store);
    let (slot, token) = (claim.slot, claim.token);
    let waiter = tokio::spawn(async move { store.settled(&slot, &token, 2 * LONG).await });
    tokio::time::sleep(Duration::from_millis(30)).await;

    let mut tx = shop.pool.begin().await.unwrap();
    shop.store.lock_in(&mut tx, &held).await.unwrap();
    shop.store
        .complete_in(&mut tx, &held, &answer("ordered"), LONG)
        .await
        .unwrap();
    tx.commit().await.unwrap();

    soon(waiter).await.unwrap().unwrap();
    assert!(shop.store.get(&slot).await.unwrap().is_some());
}

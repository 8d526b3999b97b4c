//! A record that is finished inside its holder's transaction.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    Claim, Claimed, Clock, Completed, OnLapse, Operate, Renewed, State, Store, SystemClock,
};
use onlyonce_sql::MySqlStore;
use sqlx::{AssertSqlSafe, Executor};

use super::{table, url};
use crate::outlasting::{TRANSACTION, runs_once};
use crate::sql::{LONG, answer, body, done, fresh, lease, rival, soon, taken};

struct Shop {
    store: Arc<MySqlStore>,
    orders: String,
}

impl Shop {
    async fn new() -> Self {
        let store = Arc::new(MySqlStore::open(&url()).await.unwrap());
        let orders = table();
        let create = format!("CREATE TABLE {orders} (id INT PRIMARY KEY AUTO_INCREMENT)");
        store.pool().execute(AssertSqlSafe(create)).await.unwrap();
        Self { store, orders }
    }

    fn order(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!("INSERT INTO {} VALUES ()", self.orders))
    }

    async fn orders(&self) -> i64 {
        let count = AssertSqlSafe(format!("SELECT COUNT(*) FROM {}", self.orders));
        let count = sqlx::query_scalar(count).fetch_one(self.store.pool()).await;
        count.unwrap()
    }

    /// A claim of `on_lapse` whose lease is over.
    async fn lapsed(&self, on_lapse: OnLapse) -> Claim {
        let claim = Claim {
            on_lapse,
            lease_for: Duration::ZERO,
            ..fresh()
        };
        lease(&*self.store, &claim).await;
        claim
    }
}

#[tokio::test]
async fn a_commit_stores_the_callers_rows_and_the_record() {
    let shop = Shop::new().await;
    let claim = fresh();
    let held = lease(&*shop.store, &claim).await;
    let response = answer("ordered");

    let mut tx = shop.store.pool().begin().await.unwrap();
    let locked = shop.store.lock_in(&mut tx, &held).await.unwrap();
    assert!(matches!(locked, Renewed::Kept));
    tx.execute(shop.order()).await.unwrap();
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

    let mut tx = shop.store.pool().begin().await.unwrap();
    shop.store.lock_in(&mut tx, &held).await.unwrap();
    tx.execute(shop.order()).await.unwrap();
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
    let lost = shop.lapsed(OnLapse::Rerun).await;
    let successor = rival(&lost);
    lease(&*shop.store, &successor).await;

    let mut tx = shop.store.pool().begin().await.unwrap();
    let locked = shop.store.lock_in(&mut tx, &lost.lease()).await.unwrap();
    let completed = shop
        .store
        .complete_in(&mut tx, &lost.lease(), &answer("late"), LONG)
        .await;
    tx.rollback().await.unwrap();

    assert!(matches!(locked, Renewed::Lost));
    let Completed::Found(record) = completed.unwrap() else {
        panic!("a lost lease completed");
    };
    assert_eq!(record.token, successor.token);
}

#[tokio::test]
async fn a_claim_in_a_transaction_is_alive_whatever_its_lease_says() {
    let shop = Shop::new().await;

    for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
        let claim = shop.lapsed(on_lapse).await;
        let held = claim.lease();
        let mut tx = shop.store.pool().begin().await.unwrap();
        let locked = shop.store.lock_in(&mut tx, &held).await.unwrap();
        assert!(matches!(locked, Renewed::Kept));

        let found = soon(taken(&*shop.store, &rival(&claim))).await;
        assert!(!found.is_lapsed(), "{on_lapse:?}");
        assert_eq!(found.token, claim.token);
        let renewed = soon(shop.store.renew(&held, LONG)).await.unwrap();
        assert!(matches!(renewed, Renewed::Busy), "{on_lapse:?}");

        let completed = shop
            .store
            .complete_in(&mut tx, &held, &answer("in time"), LONG)
            .await;
        assert!(matches!(completed.unwrap(), Completed::Stored(_)));
        tx.commit().await.unwrap();
        assert_eq!(body(&taken(&*shop.store, &rival(&claim)).await), b"in time");
    }
}

/// Whoever has the row locked: a renewal that could not write does not say that it did.
#[tokio::test]
async fn a_renewal_is_kept_only_if_it_prolonged_the_lease() {
    let shop = Shop::new().await;
    let claim = shop.lapsed(OnLapse::Rerun).await;
    let mut stranger = shop.store.pool().begin().await.unwrap();
    let locked = shop.store.lock_in(&mut stranger, &claim.lease()).await;
    assert!(matches!(locked.unwrap(), Renewed::Kept));

    let during = soon(shop.store.renew(&claim.lease(), LONG)).await.unwrap();
    let repeated = Claim {
        lease_for: LONG,
        ..claim.clone()
    };
    let again = soon(shop.store.claim(&repeated)).await;
    stranger.rollback().await.unwrap();
    let left = shop.store.get(&claim.slot).await.unwrap().unwrap();
    let after = shop.store.renew(&claim.lease(), LONG).await.unwrap();

    assert!(matches!(during, Renewed::Busy), "{during:?}");
    // Nor does a repeated claim say that it has all of its lease.
    assert!(again.is_err(), "{again:?}");
    assert!(left.is_lapsed(), "nothing was changed");
    assert!(matches!(after, Renewed::Kept), "{after:?}");
    assert!(!taken(&*shop.store, &rival(&claim)).await.is_lapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_outlasts_its_lease_runs_once() {
    let url = url();
    let here = Arc::new(MySqlStore::open(&url).await.unwrap());
    let there = Arc::new(MySqlStore::open(&url).await.unwrap());
    let store = Arc::clone(&here);

    runs_once(here, there, async move |execution| {
        let lease = execution.lease().unwrap();
        let mut tx = store.pool().begin().await.unwrap();
        let locked = store.lock_in(&mut tx, lease).await.unwrap();
        assert!(matches!(locked, Renewed::Kept));
        tokio::time::sleep(TRANSACTION).await;
        let response = answer("inside");
        let completed = store.complete_in(&mut tx, lease, &response, LONG).await;
        assert!(matches!(completed.unwrap(), Completed::Stored(_)));
        tx.commit().await.unwrap();
        response
    })
    .await;
}

#[tokio::test]
async fn who_waits_for_a_claim_in_a_transaction_waits_beyond_its_lease() {
    const AT_MOST: Duration = Duration::from_millis(300);
    let shop = Shop::new().await;
    let claim = shop.lapsed(OnLapse::Hold).await;
    let mut tx = shop.store.pool().begin().await.unwrap();
    shop.store.lock_in(&mut tx, &claim.lease()).await.unwrap();

    let clock = SystemClock::new();
    let waited = shop.store.settled(&claim.slot, &claim.token, AT_MOST);
    soon(waited).await.unwrap();

    assert!(clock.now() >= AT_MOST, "{:?}", clock.now());
    tx.rollback().await.unwrap();
    let waited = shop.store.settled(&claim.slot, &claim.token, 2 * LONG);
    soon(waited).await.unwrap();
}

#[tokio::test]
async fn a_claim_whose_transaction_is_rolled_back_is_lapsed_again() {
    let shop = Shop::new().await;
    let claim = shop.lapsed(OnLapse::Rerun).await;
    let mut tx = shop.store.pool().begin().await.unwrap();
    shop.store.lock_in(&mut tx, &claim.lease()).await.unwrap();

    tx.rollback().await.unwrap();

    let claimed = shop.store.claim(&rival(&claim)).await.unwrap();
    assert!(matches!(claimed, Claimed::Granted { .. }), "{claimed:?}");
}

#[tokio::test]
async fn a_locked_record_holds_nobody_else_up() {
    let shop = Shop::new().await;
    let locked = fresh();
    let held = lease(&*shop.store, &locked).await;
    let other = done(&*shop.store, "stored").await;
    let mut tx = shop.store.pool().begin().await.unwrap();
    shop.store.lock_in(&mut tx, &held).await.unwrap();

    let (again, replayed) = (rival(&locked), rival(&other));
    let all = async {
        tokio::join!(
            taken(&*shop.store, &again),
            taken(&*shop.store, &replayed),
            done(&*shop.store, "new"),
            shop.store.get(&locked.slot),
            shop.store.stats(),
            shop.store.sweep(10),
        )
    };
    let (again, replayed, _, found, stats, swept) = soon(all).await;

    assert_eq!(again.token, locked.token);
    assert_eq!(body(&replayed), b"stored");
    assert!(found.unwrap().is_some());
    assert!(stats.unwrap().records >= 2);
    assert_eq!(swept.unwrap(), 0);
    tx.rollback().await.unwrap();
}

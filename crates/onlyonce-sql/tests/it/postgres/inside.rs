//! A record finished inside its holder's own transaction: with its rows, or not at all.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_core::operate::Resolved;
use onlyonce_core::{Claim, Claimed, Completed, OnLapse, Operate, Release, Renewed, Store};
use onlyonce_testkit::proxy::Proxy;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use tokio::time::timeout;

use super::bed::{Bed, direct_url};
use super::support::{LONG, SHORT, SOON, answer, body, fresh, granted, rival, stored, taken};
use crate::outlasting::{TRANSACTION, runs_once};

/// A table of the caller's own.
async fn payments(bed: &Bed) -> String {
    // Dropped with the store's tables: it has the archive's name.
    let table = format!("{}_archive", bed.table);
    bed.execute(format!("DROP TABLE {table}; CREATE TABLE {table} (id int)"))
        .await;
    table
}

async fn pay(connection: &mut PgConnection, payments: &str) {
    let text = AssertSqlSafe(format!("INSERT INTO {payments} VALUES (1)"));
    sqlx::raw_sql(text)
        .execute(connection)
        .await
        .expect("the table is there");
}

async fn paid(bed: &Bed, payments: &str) -> i64 {
    bed.number(format!("SELECT count(*) FROM {payments}")).await
}

#[tokio::test]
async fn a_record_and_its_callers_row_are_committed_together() {
    for bed in [Bed::direct().await, Bed::pooled().await] {
        let (store, payments) = (&bed.store, payments(&bed).await);
        let claim = fresh();
        let lease = granted(store, &claim).await;

        let mut tx = bed.pool.begin().await.unwrap();
        let locked = store.lock_in(&mut tx, &lease).await.unwrap();
        pay(&mut tx, &payments).await;
        let completed = store
            .complete_in(&mut tx, &lease, &answer("paid"), LONG)
            .await;
        assert!(matches!(locked, Renewed::Kept));
        assert!(
            matches!(completed, Ok(Completed::Stored(_))),
            "{completed:?}"
        );
        let before = store.get(&claim.slot).await.unwrap().unwrap();
        assert!(
            before.response().is_none(),
            "nothing is there before the commit"
        );
        tx.commit().await.unwrap();

        let record = taken(store, &rival(&claim)).await;
        assert_eq!(body(&record), b"paid");
        assert_eq!(paid(&bed, &payments).await, 1);
    }
}

#[tokio::test]
async fn a_record_and_its_callers_row_are_rolled_back_together() {
    let bed = Bed::direct().await;
    let (store, payments) = (&bed.store, payments(&bed).await);
    let claim = fresh();
    let lease = granted(store, &claim).await;

    let mut tx = bed.pool.begin().await.unwrap();
    pay(&mut tx, &payments).await;
    let completed = store
        .complete_in(&mut tx, &lease, &answer("paid"), LONG)
        .await;
    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );
    tx.rollback().await.unwrap();

    assert_eq!(paid(&bed, &payments).await, 0);
    assert_eq!(taken(store, &rival(&claim)).await.token, claim.token);
    stored(store, &lease, "after all").await;
}

#[tokio::test]
async fn the_engines_completion_finds_what_a_transaction_stored() {
    let bed = Bed::direct().await;
    let store = &bed.store;
    let claim = fresh();
    let lease = granted(store, &claim).await;
    let mut tx = bed.pool.begin().await.unwrap();
    store
        .complete_in(&mut tx, &lease, &answer("inside"), LONG)
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let completed = store.complete(&lease, &answer("outside"), LONG).await;

    let Ok(Completed::Found(record)) = completed else {
        panic!("not found: {completed:?}");
    };
    assert_eq!(record.token, lease.token);
    assert_eq!(body(&record), b"inside");
}

#[tokio::test]
async fn a_lost_lease_neither_locks_nor_completes() {
    let bed = Bed::direct().await;
    let store = &bed.store;
    let claim = super::support::lapsed(store, OnLapse::Rerun).await;
    let successor = rival(&claim);
    granted(store, &successor).await;

    let mut tx = bed.pool.begin().await.unwrap();
    let locked = store.lock_in(&mut tx, &claim.lease()).await.unwrap();
    let completed = store
        .complete_in(&mut tx, &claim.lease(), &answer("late"), LONG)
        .await;
    tx.rollback().await.unwrap();

    assert!(matches!(locked, Renewed::Lost));
    let Ok(Completed::Found(record)) = completed else {
        panic!("not found: {completed:?}");
    };
    assert_eq!(record.token, successor.token);
    let absent = fresh();
    let mut tx = bed.pool.begin().await.unwrap();
    let completed = store
        .complete_in(&mut tx, &absent.lease(), &answer("never"), LONG)
        .await;
    assert!(matches!(completed, Ok(Completed::Absent)), "{completed:?}");
    tx.rollback().await.unwrap();
}

/// The lease ends while the transaction goes on: nobody may take the claim, call it lapsed or
/// resolve it, and a renewal, which changes nothing, says so.
#[tokio::test]
async fn a_claim_in_a_transactions_hands_is_alive() {
    let bed = Bed::direct().await;
    let store = &bed.store;
    for (on_lapse, completes) in [
        (OnLapse::Rerun, false),
        (OnLapse::Rerun, true),
        (OnLapse::Hold, true),
    ] {
        let claim = Claim {
            on_lapse,
            lease_for: SHORT,
            ..fresh()
        };
        let lease = granted(store, &claim).await;
        let mut tx = bed.pool.begin().await.unwrap();
        let locked = store.lock_in(&mut tx, &lease).await.unwrap();
        assert!(matches!(locked, Renewed::Kept));
        if completes {
            let stored = store
                .complete_in(&mut tx, &lease, &answer("inside"), LONG)
                .await;
            assert!(matches!(stored, Ok(Completed::Stored(_))), "{stored:?}");
        }
        tokio::time::sleep(2 * SHORT).await;

        let found = taken(store, &rival(&claim)).await;
        assert_eq!(found.token, claim.token);
        assert!(!found.is_lapsed(), "it is in good hands");
        assert!(matches!(store.renew(&lease, LONG).await, Ok(Renewed::Busy)));
        let resolved = store.resolve(&claim.slot, &answer("by hand"), LONG).await;
        assert!(matches!(resolved, Ok(Resolved::Found(_))), "{resolved:?}");
        let waited = timeout(
            Duration::from_millis(100),
            store.settled(&claim.slot, &claim.token, LONG),
        );
        assert!(waited.await.is_err(), "the wait for a live claim is over");

        tx.rollback().await.unwrap();
        let claimed = store.claim(&rival(&claim)).await.unwrap();
        match on_lapse {
            OnLapse::Rerun => assert!(matches!(claimed, Claimed::Granted { .. }), "{claimed:?}"),
            OnLapse::Hold => assert!(matches!(claimed, Claimed::Taken(_)), "{claimed:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_outlasts_its_lease_runs_once() {
    let bed = Bed::direct().await;
    let there = Arc::new(bed.another().await);
    let (store, pool) = (Arc::clone(&bed.store), bed.pool.clone());

    runs_once(bed.store.clone(), there, async move |execution| {
        let lease = execution.lease().unwrap();
        let mut tx = pool.begin().await.unwrap();
        let locked = store.lock_in(&mut tx, lease).await.unwrap();
        assert!(matches!(locked, Renewed::Kept));
        tokio::time::sleep(TRANSACTION).await;
        let response = answer("inside");
        let completed = store.complete_in(&mut tx, lease, &response, LONG).await;
        assert!(matches!(completed, Ok(Completed::Stored(_))));
        tx.commit().await.unwrap();
        response
    })
    .await;
}

/// Somebody else's lock on the row: a renewal waits for it, and does not say that it wrote.
#[tokio::test]
async fn a_renewal_is_kept_only_if_it_prolonged_the_lease() {
    let bed = Bed::open(&direct_url(), "&timeout_ms=300").await;
    let store = &bed.store;
    let claim = super::support::lapsed(store, OnLapse::Rerun).await;
    let mut stranger = bed.pool.begin().await.unwrap();
    let lock = format!("SELECT FROM {} FOR UPDATE", bed.table);
    let locked = sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *stranger);
    locked.await.unwrap();

    let during = store.renew(&claim.lease(), LONG).await;
    stranger.rollback().await.unwrap();
    let left = store.get(&claim.slot).await.unwrap().unwrap();
    let after = store.renew(&claim.lease(), LONG).await.unwrap();

    assert!(during.is_err(), "{during:?}");
    assert!(left.is_lapsed(), "nothing was changed");
    assert!(matches!(after, Renewed::Kept), "{after:?}");
    assert!(!taken(store, &rival(&claim)).await.is_lapsed());
}

/// Completing, renewing and releasing many claims, one of which sits in somebody's transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_record_holds_up_none_of_its_neighbours() {
    let bed = Bed::direct().await;
    let store = &bed.store;
    let locked = granted(store, &fresh()).await;
    let mut tx = bed.pool.begin().await.unwrap();
    store.lock_in(&mut tx, &locked).await.unwrap();

    let stuck = tokio::spawn({
        let (store, lease) = (Arc::clone(store), locked.clone());
        async move { store.complete(&lease, &answer("outside"), LONG).await }
    });
    let neighbours = join_all((0..100).map(async |n| {
        let lease = granted(store, &fresh()).await;
        match n % 3 {
            0 => stored(store, &lease, "fine").await,
            1 => drop(store.renew(&lease, LONG).await.unwrap()),
            _ => drop(store.release(&lease, Release::NotRun).await.unwrap()),
        }
    }));

    assert!(timeout(SOON, neighbours).await.is_ok());
    assert!(!stuck.is_finished(), "the transaction decides first");
    tx.rollback().await.unwrap();
    let completed = stuck.await.unwrap();
    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );
}

#[tokio::test]
async fn who_waits_elsewhere_hears_of_a_commit() {
    let bed = Bed::direct().await;
    let (store, elsewhere) = (&bed.store, bed.another().await);
    let claim = fresh();
    let lease = granted(store, &claim).await;
    let waiting = tokio::spawn({
        let (slot, token) = (claim.slot, claim.token);
        async move { elsewhere.settled(&slot, &token, LONG).await }
    });

    let mut tx = bed.pool.begin().await.unwrap();
    store
        .complete_in(&mut tx, &lease, &answer("inside"), LONG)
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let heard = timeout(SOON, waiting)
        .await
        .expect("woken long before the lease ends");
    assert!(heard.unwrap().is_ok());
}

/// The connection dies with the commit on its way: only the record can say what became of it.
#[tokio::test]
async fn the_fate_of_an_unknown_commit_can_be_read() {
    let bed = Bed::direct().await;
    let store = &bed.store;
    let proxy = Proxy::start(&direct_url()).await.unwrap();
    let pool = PgPool::connect(proxy.url()).await.unwrap();
    for arrives in [true, false] {
        let claim = fresh();
        let lease = granted(store, &claim).await;
        let mut tx = pool.begin().await.unwrap();
        let stored = store
            .complete_in(&mut tx, &lease, &answer("inside"), LONG)
            .await;
        assert!(matches!(stored, Ok(Completed::Stored(_))), "{stored:?}");
        if arrives {
            proxy.drop_reply_to(b"COMMIT");
        } else {
            proxy.cut().await.unwrap();
        }

        let committed = tx.commit().await;

        assert!(committed.is_err());
        // A session that was cut off may be the last to notice; until then its claim is alive.
        let completed = store
            .complete(&lease, &answer("outside"), LONG)
            .await
            .unwrap();
        let record = taken(store, &rival(&claim)).await;
        match completed {
            Completed::Found(_) => assert!(arrives && body(&record) == b"inside"),
            Completed::Stored(_) => assert!(!arrives && body(&record) == b"outside"),
            Completed::Absent => panic!("the claim is gone"),
        }
    }
}

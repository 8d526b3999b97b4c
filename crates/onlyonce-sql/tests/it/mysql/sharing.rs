//! Several stores on one table, as several processes would have them; and what one bad row may do
//! to everybody else.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_core::{Claim, Claimed, Completed, OnLapse, Operate, Release, Store, StoreErrorKind};
use onlyonce_sql::MySqlStore;
use onlyonce_testkit::servers::{Shared, shared};
use sqlx::{AssertSqlSafe, Executor};

use super::{table, url};
use crate::sql::{LONG, answer, body, done, fresh, lease, meta, rival, soon, taken};

async fn store(url: &str) -> Arc<MySqlStore> {
    Arc::new(MySqlStore::open(url).await.unwrap())
}

async fn run(store: &MySqlStore, sql: String) {
    store.pool().execute(AssertSqlSafe(sql)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_thousand_races_between_two_processes_each_has_one_winner() {
    let url = url();
    let stores = [store(&url).await, store(&url).await];

    let races = (0..1000).map(|_| {
        let claim = fresh();
        let racers = stores.clone().map(|store| {
            let claim = rival(&claim);
            tokio::spawn(async move { store.claim(&claim).await.unwrap() })
        });
        join_all(racers)
    });

    for race in soon(join_all(races)).await {
        let claimed: Vec<_> = race.into_iter().map(Result::unwrap).collect();
        let granted = |it: &&Claimed| matches!(it, Claimed::Granted { .. });
        assert_eq!(claimed.iter().filter(granted).count(), 1, "{claimed:?}");
    }
}

/// Eight tasks claim, complete, release and sweep the same slots in different orders: whatever
/// they do to each other, none of them gets an error, and each slot has at most one winner a round.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_that_overlap_are_no_error() {
    const TASKS: usize = 8;
    const SLOTS: usize = 40;
    const ROUNDS: usize = 15;
    let url = url();
    let stores = [store(&url).await, store(&url).await];

    for _ in 0..ROUNDS {
        let slots: Arc<Vec<_>> = Arc::new((0..SLOTS).map(|_| fresh()).collect());
        let tasks = (0..TASKS).map(|task| {
            let (store, slots) = (Arc::clone(&stores[task % 2]), Arc::clone(&slots));
            tokio::spawn(async move { all_at_once(&store, &slots, task).await })
        });
        let granted: usize = soon(join_all(tasks))
            .await
            .into_iter()
            .map(Result::unwrap)
            .sum();
        assert_eq!(granted, SLOTS);
    }
}

async fn all_at_once(store: &MySqlStore, slots: &[Claim], task: usize) -> usize {
    let mut order: Vec<_> = slots.iter().map(rival).collect();
    let turn = task * 7 % order.len();
    order.rotate_left(turn);
    if task.is_multiple_of(3) {
        order.reverse();
    }
    let requests = order.iter().map(|claim| async {
        let Claimed::Granted { lease, .. } = store.claim(claim).await.unwrap() else {
            return 0;
        };
        store.renew(&lease, LONG).await.unwrap();
        let completed = store
            .complete(&lease, &answer("stored"), LONG)
            .await
            .unwrap();
        assert!(matches!(completed, Completed::Stored(_)), "{completed:?}");
        let counts: Vec<_> = slots.iter().map(|it| (it.slot, 1)).collect();
        store.count_replays(&counts).await.unwrap();
        store.sweep(10).await.unwrap();
        1
    });
    join_all(requests).await.into_iter().sum()
}

#[tokio::test]
async fn a_change_by_another_process_wakes_who_waits() {
    let url = url();
    let (here, there) = (store(&url).await, store(&url).await);

    for release in [false, true] {
        let claim = fresh();
        let held = lease(&*there, &claim).await;
        let waiting = Arc::clone(&here);
        let (slot, token) = (claim.slot, claim.token);
        let waiter = tokio::spawn(async move { waiting.settled(&slot, &token, 2 * LONG).await });
        tokio::time::sleep(Duration::from_millis(30)).await;

        if release {
            there.release(&held, Release::NotRun).await.unwrap();
        } else {
            there.complete(&held, &answer("there"), LONG).await.unwrap();
        }

        soon(waiter).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_fails_its_own_requests_alone() {
    let table = table();
    let store = store(&format!("{}?table={table}", shared(Shared::MariaDb))).await;
    let bad = done(&*store, "stored").await;
    let good = done(&*store, "stored").await;
    run(
        &store,
        format!(
            "UPDATE {table} SET response = x'00' WHERE slot = x'{}'",
            bad.slot
        ),
    )
    .await;

    let (bad_claim, new_claim, bad_lease) = (rival(&bad), fresh(), bad.lease());
    let late = answer("late");
    let (claimed, completed, granted, found) = tokio::join!(
        store.claim(&bad_claim),
        store.complete(&bad_lease, &late, LONG),
        lease(&*store, &new_claim),
        taken(&*store, &good),
    );

    assert_eq!(claimed.unwrap_err().kind, StoreErrorKind::Corrupt);
    assert_eq!(completed.unwrap_err().kind, StoreErrorKind::Corrupt);
    assert_eq!(granted, new_claim.lease());
    assert_eq!(body(&found), b"stored");
    assert!(store.forget(&bad.slot).await.unwrap());
    lease(&*store, &bad_claim).await;
}

#[tokio::test]
async fn a_write_that_fails_does_not_fail_its_neighbours() {
    let table = table();
    let store = store(&format!("{}?table={table}", shared(Shared::MariaDb))).await;
    run(
        &store,
        format!(
            "CREATE TRIGGER {table}_picky BEFORE INSERT ON {table} FOR EACH ROW \
             IF NEW.operation = 'bad' THEN SIGNAL SQLSTATE '45000'; END IF"
        ),
    )
    .await;

    let claims = (0..20).map(|n| {
        let store = Arc::clone(&store);
        let bad = n % 5 == 0;
        let claim = Claim {
            meta: meta(if bad { "bad" } else { "good" }),
            ..fresh()
        };
        async move { (bad, store.claim(&claim).await) }
    });

    for (bad, claimed) in join_all(claims).await {
        assert_eq!(claimed.is_err(), bad, "{claimed:?}");
    }
}

#[tokio::test]
async fn finished_records_go_to_the_archive_when_they_have_expired() {
    let table = table();
    let url = format!("{}?table={table}&archive=true", shared(Shared::MariaDb));
    let store = store(&url).await;
    let (swept, replaced) = (fresh(), fresh());
    for claim in [&swept, &replaced] {
        let held = lease(&*store, claim).await;
        let brief = answer("brief");
        store.complete(&held, &brief, Duration::ZERO).await.unwrap();
    }
    lease(&*store, &rival(&replaced)).await;
    let forgotten = done(&*store, "forgotten").await;
    store.forget(&forgotten.slot).await.unwrap();

    assert_eq!(store.sweep(100).await.unwrap(), 1);

    let archived = format!("SELECT slot, state FROM {table}_archive ORDER BY id");
    let archived: Vec<(Vec<u8>, String)> = sqlx::query_as(AssertSqlSafe(archived))
        .fetch_all(store.pool())
        .await
        .unwrap();
    let wanted = [&replaced, &swept].map(|it| (it.slot.as_bytes().to_vec(), "D".to_owned()));
    assert_eq!(archived, wanted);
}

#[tokio::test]
async fn a_big_sweep_goes_in_small_steps() {
    let store = store(&url()).await;
    let claims = (0..500).map(|_| {
        let store = Arc::clone(&store);
        async move {
            let claim = Claim {
                lease_for: Duration::ZERO,
                keep_for: Duration::ZERO,
                ..fresh()
            };
            lease(&*store, &claim).await;
        }
    });
    join_all(claims).await;

    assert_eq!(store.sweep(450).await.unwrap(), 450);
    assert_eq!(store.sweep(usize::MAX).await.unwrap(), 50);
}

#[tokio::test]
async fn enormous_durations_are_as_good_as_for_ever() {
    let store = store(&url()).await;
    let claim = Claim {
        lease_for: Duration::MAX,
        keep_for: Duration::MAX,
        on_lapse: OnLapse::Hold,
        ..fresh()
    };
    let held = lease(&*store, &claim).await;
    store.renew(&held, Duration::MAX).await.unwrap();
    let released = rival(&claim).lease();
    store.release(&released, Release::NotRun).await.unwrap();
    for _ in 0..3 {
        assert!(store.extend(&claim.slot, Duration::MAX).await.unwrap());
    }

    let completed = store
        .complete(&held, &answer("stored"), Duration::MAX)
        .await;

    assert!(matches!(completed.unwrap(), Completed::Stored(_)));
    assert!(store.extend(&claim.slot, Duration::MAX).await.unwrap());
    let found = taken(&*store, &rival(&claim)).await;
    assert!(found.keep_left > Duration::from_secs(1000 * 365 * 24 * 3600));
}

#[tokio::test]
async fn answers_of_every_size_are_stored_whole_or_told_to_be_too_large() {
    let store = store(&url()).await;

    for bytes in [0, 1, 30_000, 40_000, 70_000, 3 << 20] {
        let body_sent = "x".repeat(bytes);
        let claim = done(&*store, &body_sent).await;
        let found = taken(&*store, &rival(&claim)).await;
        assert!(body(&found) == body_sent.as_bytes(), "{bytes}");
    }
    let held = lease(&*store, &fresh()).await;
    let large = answer(&"x".repeat(16 << 20));
    let refused = store.complete(&held, &large, LONG).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::TooLarge);
    let completed = store.complete(&held, &answer("small"), LONG).await.unwrap();
    assert!(matches!(completed, Completed::Stored(_)));
}

#[tokio::test]
async fn the_time_zone_of_a_session_does_not_matter() {
    let url = url();
    let zones = ["%2B00:00", "-11:00", "%2B13:00"];
    let mut stores = Vec::new();
    for zone in zones {
        stores.push(store(&format!("{url}&timezone={zone}")).await);
    }

    for made in &stores {
        let claim = done(&**made, "stored").await;
        let pending = fresh();
        lease(&**made, &pending).await;
        for read in &stores {
            let found = taken(&**read, &rival(&claim)).await;
            assert!(found.keep_left <= LONG && found.keep_left > LONG / 2);
            assert!(!taken(&**read, &rival(&pending)).await.is_lapsed());
        }
    }
}

#[tokio::test]
async fn people_can_query_the_records() {
    let table = table();
    let store = store(&format!("{}?table={table}", shared(Shared::MariaDb))).await;
    done(&*store, "stored").await;

    let row: (String, String, String, i64, i64) = sqlx::query_as(AssertSqlSafe(format!(
        "SELECT state, operation, actor, attempt, completed_at - created_at FROM {table}"
    )))
    .fetch_one(store.pool())
    .await
    .unwrap();

    assert_eq!(
        (&*row.0, &*row.1, &*row.2, row.3),
        ("D", "POST /payments", "alice", 1)
    );
    assert!((0..60_000).contains(&row.4));
}

//! Several stores on one file, as several processes would have them; and what one bad row, one
//! failing write or one long transaction may do to everybody else.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_core::{Claim, Claimed, Completed, OnLapse, Operate, Release, Store, StoreErrorKind};
use onlyonce_sql::SqliteStore;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Executor};
use tempfile::TempDir;

use crate::sql::{LONG, answer, body, done, fresh, lease, meta, rival, soon, taken};

struct Shared {
    folder: TempDir,
}

impl Shared {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("records.db").display())
    }

    async fn store(&self) -> Arc<SqliteStore> {
        Arc::new(SqliteStore::open(&self.url()).await.unwrap())
    }

    /// A connection that is not the store's.
    async fn connection(&self) -> SqliteConnection {
        let path = self.folder.path().join("records.db");
        let options = SqliteConnectOptions::new().filename(path);
        options.connect().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_thousand_races_between_two_processes_each_has_one_winner() {
    let shared = Shared::new();
    let stores = [shared.store().await, shared.store().await];

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

#[tokio::test]
async fn a_change_by_another_process_wakes_who_waits() {
    let shared = Shared::new();
    let (here, there) = (shared.store().await, shared.store().await);

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
async fn a_replay_does_not_wait_for_who_writes() {
    let shared = Shared::new();
    let store = shared.store().await;
    let claim = done(&*store, "stored").await;
    let pending = fresh();
    lease(&*store, &pending).await;
    let mut other = shared.connection().await;
    let writing = other.begin_with("BEGIN IMMEDIATE").await.unwrap();

    let found = soon(taken(&*store, &rival(&claim))).await;
    let running = soon(taken(&*store, &rival(&pending))).await;

    assert_eq!(body(&found), b"stored");
    assert_eq!(running.token, pending.token);
    writing.rollback().await.unwrap();
}

#[tokio::test]
async fn a_claim_waits_for_who_writes() {
    let shared = Shared::new();
    let store = shared.store().await;
    let mut other = shared.connection().await;
    let writing = other.begin_with("BEGIN IMMEDIATE").await.unwrap();

    let claiming = tokio::spawn(async move { lease(&*store, &fresh()).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!claiming.is_finished());
    writing.rollback().await.unwrap();

    soon(claiming).await.unwrap();
}

#[tokio::test]
async fn a_row_that_cannot_be_read_fails_its_own_requests_alone() {
    let shared = Shared::new();
    let store = shared.store().await;
    let bad = done(&*store, "stored").await;
    let good = done(&*store, "stored").await;
    let spoil = sqlx::query("UPDATE onlyonce_records SET response = x'00' WHERE slot = ?");
    let spoil = spoil.bind(bad.slot.as_bytes().to_vec());
    spoil.execute(&mut shared.connection().await).await.unwrap();

    let (bad_claim, new_claim) = (rival(&bad), fresh());
    let bad_lease = bad.lease();
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
    let shared = Shared::new();
    let store = shared.store().await;
    let mut other = shared.connection().await;
    other
        .execute(
            "CREATE TRIGGER picky BEFORE INSERT ON onlyonce_records WHEN NEW.operation = 'bad' \
             BEGIN SELECT RAISE(ABORT, 'picky'); END",
        )
        .await
        .unwrap();

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
    let shared = Shared::new();
    let url = format!("{}?archive=true", shared.url());
    let store = SqliteStore::open(&url).await.unwrap();
    let (swept, replaced) = (fresh(), fresh());
    for claim in [&swept, &replaced] {
        let held = lease(&store, claim).await;
        let brief = answer("brief");
        store.complete(&held, &brief, Duration::ZERO).await.unwrap();
    }
    lease(&store, &rival(&replaced)).await;
    let forgotten = done(&store, "forgotten").await;
    store.forget(&forgotten.slot).await.unwrap();

    assert_eq!(store.sweep(100).await.unwrap(), 1);

    let archived: Vec<(Vec<u8>, String)> = sqlx::query_as(
        "SELECT slot, state FROM onlyonce_records_archive ORDER BY archived_at, rowid",
    )
    .fetch_all(&mut shared.connection().await)
    .await
    .unwrap();
    let wanted = [&replaced, &swept].map(|it| (it.slot.as_bytes().to_vec(), "D".to_owned()));
    assert_eq!(archived, wanted);
}

#[tokio::test]
async fn a_big_sweep_goes_in_small_steps() {
    let shared = Shared::new();
    let store = shared.store().await;
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
    let shared = Shared::new();
    let store = shared.store().await;
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
async fn people_can_query_the_records() {
    let shared = Shared::new();
    let store = shared.store().await;
    done(&*store, "stored").await;

    let row: (String, String, String, i64, i64) = sqlx::query_as(
        "SELECT state, operation, actor, attempt, completed_at - created_at FROM onlyonce_records",
    )
    .fetch_one(&mut shared.connection().await)
    .await
    .unwrap();

    assert_eq!(
        (&*row.0, &*row.1, &*row.2, row.3),
        ("D", "POST /payments", "alice", 1)
    );
    assert!((0..60_000).contains(&row.4));
}

//! A machine's clock that is set, between two processes or while they run: within one boot the time
//! since the boot counts, whatever the date is.

use std::process::{Command, Stdio};
use std::time::Duration;

use onlyonce_core::{Operate as _, Record, Slot};
use onlyonce_sql::SqliteStore;
use onlyonce_testkit::servers::faketime::{self, Skew};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Executor};
use tempfile::TempDir;

use crate::sql::{answer, fresh, lease};

/// Set for a child: the database to store in.
const DATABASE: &str = "ONLYONCE_TEST_SQLITE_CLOCK";
const CHILD: &str = "sqlite::clocks::a_child_stores_an_answer_when_it_is_told_to";
const SLOT: Slot = Slot::from_bytes([7; Slot::BYTES]);
const DAY: Duration = Duration::from_secs(86_400);
const MINUTE: Duration = Duration::from_secs(60);

/// Nothing by itself: other tests run it in a process whose clock is wrong.
#[tokio::test]
async fn a_child_stores_an_answer_when_it_is_told_to() {
    let Ok(url) = std::env::var(DATABASE) else {
        return;
    };
    let store = SqliteStore::open(&url).await.unwrap();
    store_one(&store).await;
}

/// Stores an answer for a day.
async fn store_one(store: &SqliteStore) {
    let claim = onlyonce_core::Claim {
        slot: SLOT,
        ..fresh()
    };
    let held = lease(store, &claim).await;
    let response = answer("stored");
    let completed = onlyonce_core::Store::complete(store, &held, &response, DAY);
    completed.await.unwrap();
}

fn run_child(mut command: Command, url: &str) {
    let status = command
        .args(["--exact", CHILD, "--nocapture"])
        .env(DATABASE, url)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

struct Database {
    folder: TempDir,
}

impl Database {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("records.db").display())
    }

    async fn execute(&self, sql: &'static str) {
        let path = self.folder.path().join("records.db");
        let options = SqliteConnectOptions::new().filename(path);
        let mut connection = options.connect().await.unwrap();
        assert_eq!(connection.execute(sql).await.unwrap().rows_affected(), 1);
    }
}

async fn found(store: &SqliteStore) -> Option<Record> {
    store.get(&SLOT).await.unwrap()
}

fn assert_nearly_a_day(record: Option<Record>, what: &str) {
    let left = record.unwrap_or_else(|| panic!("gone: {what}")).keep_left;
    assert!(left <= DAY && left > DAY - 10 * MINUTE, "{what}: {left:?}");
}

#[tokio::test]
async fn a_clock_that_is_set_right_between_two_processes_expires_nothing() {
    for skew in [Skew::Behind(2 * DAY), Skew::Ahead(2 * DAY)] {
        let database = Database::new();
        let program = std::env::current_exe().unwrap();
        run_child(faketime::command(program, skew).unwrap(), &database.url());

        let store = SqliteStore::open(&database.url()).await.unwrap();

        assert_nearly_a_day(found(&store).await, &format!("{skew:?}"));
        let swept = store.sweep(usize::MAX).await.unwrap();
        assert_eq!(swept, 0, "{skew:?}");
    }
}

/// Two processes of one machine, one of which sees another date: one time for both.
#[tokio::test]
async fn processes_whose_dates_differ_share_one_time() {
    let database = Database::new();
    let store = SqliteStore::open(&database.url()).await.unwrap();
    let program = std::env::current_exe().unwrap();

    let wrong = faketime::command(program, Skew::Behind(2 * DAY)).unwrap();
    run_child(wrong, &database.url());

    assert_nearly_a_day(found(&store).await, "stored by a process that is behind");
}

/// What is kept says that it was in another boot, and at another date.
#[tokio::test]
async fn after_a_reboot_the_wall_clock_counts_and_never_backwards() {
    for (wall, is_there) in [
        ("wall", true),
        ("wall + 864000000", true),
        ("wall - 172800000", false),
    ] {
        let database = Database::new();
        let store = SqliteStore::open(&database.url()).await.unwrap();
        store_one(&store).await;
        drop(store);
        database
            .execute(match wall {
                "wall" => "UPDATE onlyonce_records_clock SET boot = 'another'",
                "wall + 864000000" => {
                    "UPDATE onlyonce_records_clock SET boot = 'another', wall = wall + 864000000"
                }
                _ => "UPDATE onlyonce_records_clock SET boot = 'another', wall = wall - 172800000",
            })
            .await;

        let store = SqliteStore::open(&database.url()).await.unwrap();

        assert_eq!(found(&store).await.is_some(), is_there, "{wall}");
    }
}

//! Opening a store: its tables are made once however many come, and what is wrong is said.

use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_core::{Operate, Store, StoreErrorKind};
use onlyonce_sql::OpenError;
use onlyonce_sql::{PostgresStore, SqlOptions};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPoolOptions;

use super::bed::{Bed, direct_url, with_options};
use super::support::{body, done, fresh, granted, rival, stored, taken};

async fn refusal(url: &str) -> OpenError {
    match PostgresStore::open(url).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

async fn told(options: &str) -> String {
    refusal(&with_options(&direct_url(), options))
        .await
        .to_string()
}

#[tokio::test]
async fn a_store_opens_by_its_url() {
    let bed = Bed::direct().await;
    for scheme in ["postgres:", "postgresql:"] {
        let (_, rest) = bed.url.split_once(':').unwrap();

        let store = PostgresStore::open(&format!("{scheme}{rest}")).await;

        store.unwrap().ping().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_make_the_tables_at_once() {
    let bed = Bed::direct().await;
    let table = &bed.table;
    let text = ["", "_agreed", "_archive", "_migrations"]
        .map(|suffix| format!("DROP TABLE {table}{suffix};"))
        .concat();
    bed.execute(text).await;

    let opened = join_all((0..12).map(|_| bed.another())).await;

    done(&opened[0], "one").await;
    let steps = format!("SELECT count(*) FROM {table}_migrations");
    assert_eq!(bed.number(steps).await, 3);
}

#[tokio::test]
async fn tables_of_the_future_are_refused() {
    let bed = Bed::direct().await;
    let table = &bed.table;
    bed.execute(format!("INSERT INTO {table}_migrations VALUES (99)"))
        .await;

    let told = refusal(&bed.url).await.to_string();

    assert!(
        told.contains("version 99") && told.contains("upgrade"),
        "{told}"
    );
}

#[tokio::test]
async fn tables_of_the_past_are_brought_up_to_date() {
    let bed = Bed::direct().await;
    let kept = done(&bed.store, "kept").await;
    let table = &bed.table;
    let back =
        format!("DROP TABLE {table}_archive; DELETE FROM {table}_migrations WHERE version > 1");
    bed.execute(back).await;

    let store = bed.another().await;

    assert_eq!(body(&taken(&store, &rival(&kept)).await), b"kept");
    assert_eq!(
        bed.number(format!("SELECT count(*) FROM {table}_archive"))
            .await,
        0
    );
}

#[tokio::test]
async fn a_name_that_is_no_plain_identifier_is_refused() {
    for table in [
        "",
        "a b",
        "a;drop",
        "A",
        "1a",
        "a.b",
        "a\"",
        "ä",
        &"x".repeat(49),
    ] {
        let table = url::form_urlencoded::byte_serialize(table.as_bytes()).collect::<String>();
        let told = told(&format!("table={table}")).await;
        assert!(
            told.contains("`table`") && told.contains("underscores"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn a_wrong_option_is_told_with_what_is_right() {
    for (options, word) in [
        ("tabel=x", "did you mean `table`?"),
        ("sslmod=disable", "did you mean `sslmode`?"),
        ("connections=many", "not a number"),
        ("connections=0", "at least 1"),
        ("batch_max=0", "at least 1"),
        ("notify=yes", "true or false"),
        ("timeout_ms=0", "more than no time"),
        ("sslmode=maybe", "wrong value"),
    ] {
        let told = told(options).await;
        assert!(told.contains(word), "{options}: {told}");
    }
}

#[tokio::test]
async fn what_the_server_wants_to_know_is_passed_on() {
    let bed = Bed::direct().await;
    let table = &bed.table;
    bed.execute(format!("CREATE SCHEMA {table}_away")).await;
    let more =
        format!("&application_name={table}_app&options[search_path]={table}_away&sslmode=disable");

    let store = PostgresStore::open(&format!("{}{more}", bed.url))
        .await
        .unwrap();

    done(&store, "away").await;
    let there = format!("SELECT count(*) FROM {table}_away.{table}");
    assert_eq!(bed.number(there).await, 1);
    let named = format!(
        "SELECT least(count(*), 1) FROM pg_stat_activity WHERE application_name = '{table}_app'"
    );
    assert_eq!(bed.number(named).await, 1);
    bed.execute(format!("DROP SCHEMA {table}_away CASCADE"))
        .await;
}

#[tokio::test]
async fn an_unreachable_server_is_told_without_its_address() {
    let url = "postgres://alice:hunter2@127.0.0.1:1/shop?connect_timeout_ms=200";

    let error = refusal(url).await;

    let OpenError::Store(store) = &error else {
        panic!("{error}");
    };
    assert_eq!(store.kind, StoreErrorKind::Unavailable);
    let told = format!("{error} {error:?}");
    for secret in ["alice", "hunter2", "127.0.0.1", "shop"] {
        assert!(!told.contains(secret), "{told}");
    }
}

#[tokio::test]
async fn a_database_that_is_not_there_is_told_as_such() {
    let url = direct_url();
    let (server, _) = url.rsplit_once('/').unwrap();

    let told = refusal(&format!("{server}/nowhere_at_all"))
        .await
        .to_string();

    assert!(told.contains("no such database"), "{told}");
}

#[tokio::test]
async fn a_pool_that_is_there_already_serves_too() {
    let bed = Bed::direct().await;
    let pool = PgPoolOptions::new()
        .max_connections(3)
        .connect(&direct_url())
        .await
        .unwrap();
    let options = SqlOptions::new().table(&bed.table).connections(2);

    let store = PostgresStore::with_pool(pool.clone(), options)
        .await
        .unwrap();

    let claim = fresh();
    let lease = granted(&store, &claim).await;
    stored(&store, &lease, "shared").await;
    assert_eq!(body(&taken(&bed.store, &rival(&claim)).await), b"shared");
    join_all((0..50).map(|_| done(&store, "many"))).await;
    assert!(pool.size() <= 3);
    // It gives back what it borrowed.
    super::support::until(async || pool.num_idle() == pool.size() as usize).await;
    let wrong = PostgresStore::with_pool(pool, SqlOptions::new().table("a b")).await;
    assert!(wrong.is_err());
}

#[tokio::test]
async fn what_cannot_be_read_is_called_corrupt() {
    let bed = Bed::direct().await;
    let (store, table) = (&bed.store, &bed.table);
    let answered = done(store, "stored").await;
    bed.execute(format!(
        "UPDATE {table} SET response = 'no such thing'::bytea"
    ))
    .await;

    let claimed = store.claim(&rival(&answered)).await;
    let got = store.get(&answered.slot).await;

    assert_eq!(claimed.unwrap_err().kind, StoreErrorKind::Corrupt);
    assert_eq!(got.unwrap_err().kind, StoreErrorKind::Corrupt);
    // Neighbours are read as ever.
    done(store, "fine").await;
}

#[tokio::test]
async fn a_table_that_is_gone_is_an_error_and_no_end() {
    let bed = Bed::direct().await;
    let (store, table) = (&bed.store, &bed.table);
    done(store, "before").await;
    bed.execute(format!("ALTER TABLE {table} RENAME TO {table}_away"))
        .await;

    let claimed = store.claim(&fresh()).await;

    assert_eq!(claimed.unwrap_err().kind, StoreErrorKind::Unavailable);
    bed.execute(format!("ALTER TABLE {table}_away RENAME TO {table}"))
        .await;
    done(store, "after").await;
}

#[tokio::test]
async fn a_column_more_disturbs_nobody() {
    let bed = Bed::direct().await;
    let (store, table) = (&bed.store, &bed.table);
    let before = done(store, "before").await;

    bed.execute(format!("ALTER TABLE {table} ADD COLUMN later text"))
        .await;

    assert_eq!(body(&taken(store, &rival(&before)).await), b"before");
    done(store, "after").await;
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_given_up() {
    let bed = Bed::open(&direct_url(), "&timeout_ms=300").await;
    let (store, table) = (&bed.store, &bed.table);
    let mut tx = bed.pool.begin().await.unwrap();
    let text = AssertSqlSafe(format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"));
    sqlx::raw_sql(text).execute(&mut *tx).await.unwrap();

    let claimed = store.claim(&fresh()).await;

    assert_eq!(claimed.unwrap_err().kind, StoreErrorKind::Unavailable);
    tx.rollback().await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), done(store, "after"))
        .await
        .unwrap();
}

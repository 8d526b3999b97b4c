//! What a server takes at most: in one statement, and at the same time.

use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_core::{Completed, Store, StoreErrorKind};
use onlyonce_sql::MySqlStore;
use onlyonce_testkit::servers::{MariaDb, MariaDbOptions, Server, Shared, shared};
use sqlx::mysql::MySqlPool;
use sqlx::{AssertSqlSafe, Executor};

use super::table;
use crate::sql::{LONG, answer, body, done, fresh, lease, rival, soon, taken};

fn server(packet: &str) -> MariaDb {
    let options = MariaDbOptions {
        fast: true,
        arguments: vec![format!("--max-allowed-packet={packet}")],
    };
    MariaDb::start(options).unwrap()
}

/// Kept as an error for ever, it would be "not stored yet" until another process runs it again.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_fits_no_statement_of_the_server_is_too_large() {
    let server = tokio::task::block_in_place(|| server("1M"));
    let store = MySqlStore::open(&server.url()).await.unwrap();
    let most = store.response_bytes_max().unwrap();
    assert!(most < 1 << 20 && most > 512 << 10, "{most}");

    done(&store, &"x".repeat(most)).await;
    for bytes in [most + 1, (1 << 20) - 1000, 1 << 20, 5 << 20] {
        let held = lease(&store, &fresh()).await;
        let large = answer(&"x".repeat(bytes));
        let refused = store.complete(&held, &large, LONG).await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::TooLarge, "{bytes}");
        let completed = store.complete(&held, &answer("small"), LONG).await.unwrap();
        assert!(matches!(completed, Completed::Stored(_)), "{bytes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_that_has_become_smaller_is_noticed_with_the_next_connection() {
    let server = tokio::task::block_in_place(|| server("16M"));
    let url = format!("{}?connections=1", server.url());
    let store = MySqlStore::open(&url).await.unwrap();
    done(&store, &"x".repeat(2 << 20)).await;

    let smaller = "SET GLOBAL max_allowed_packet = 1048576; KILL USER onlyonce";
    tokio::task::block_in_place(|| server.sql(smaller)).unwrap();

    soon(async { while store.claim(&fresh()).await.is_err() {} }).await;
    let held = lease(&store, &fresh()).await;
    let large = answer(&"x".repeat(2 << 20));
    let refused = store.complete(&held, &large, LONG).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::TooLarge);
    assert!(store.response_bytes_max().unwrap() < 1 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_answers_at_once_fit_the_servers_packet() {
    let server = tokio::task::block_in_place(|| server("1M"));
    let store = MySqlStore::open(&server.url()).await.unwrap();
    let large = "x".repeat(30_000);

    join_all((0..200).map(|_| done(&store, &large))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_only_small_statements_is_refused() {
    let server = tokio::task::block_in_place(|| server("16K"));

    let Err(refused) = MySqlStore::open(&server.url()).await else {
        panic!("it was opened");
    };

    let told = refused.to_string();
    assert!(told.contains("max_allowed_packet"), "{told}");
}

#[tokio::test]
async fn behind_a_locked_table_statements_do_not_pile_up() {
    const CONNECTIONS: i64 = 2;
    let table = table();
    let url = shared(Shared::MariaDb);
    let options = format!("table={table}&connections={CONNECTIONS}&timeout_ms=300");
    let store = MySqlStore::open(&format!("{url}?{options}")).await.unwrap();
    let other = MySqlPool::connect(&url).await.unwrap();
    let mut holder = other.acquire().await.unwrap();
    let lock = format!("LOCK TABLES {table} WRITE");
    holder.execute(AssertSqlSafe(lock)).await.unwrap();

    for _ in 0..15 {
        let claimed = store.claim(&fresh()).await;
        assert_eq!(claimed.unwrap_err().kind, StoreErrorKind::Unavailable);
    }
    let count = format!(
        "SELECT COUNT(*) FROM information_schema.processlist
         WHERE info LIKE '%{table}%' AND id <> CONNECTION_ID()"
    );
    soon(async {
        loop {
            let count = sqlx::query_scalar(AssertSqlSafe(count.clone()));
            let count: i64 = count.fetch_one(&other).await.unwrap();
            if count <= CONNECTIONS {
                break;
            }
        }
    })
    .await;

    holder.execute("UNLOCK TABLES").await.unwrap();
    soon(async { while store.claim(&fresh()).await.is_err() {} }).await;
}

/// What is global today may be another for the next session.
#[tokio::test(flavor = "multi_thread")]
async fn the_defaults_of_the_server_change_no_record() {
    let server = tokio::task::block_in_place(|| server("16M"));
    let defaults = "SET GLOBAL tx_isolation = 'SERIALIZABLE', GLOBAL autocommit = 0,
        GLOBAL completion_type = 'CHAIN', GLOBAL sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES',
        GLOBAL time_zone = '+05:45', GLOBAL sql_select_limit = 1, GLOBAL tx_read_only = 1";
    tokio::task::block_in_place(|| server.sql(defaults)).unwrap();
    let store = MySqlStore::open(&server.url()).await.unwrap();

    let claims = join_all((0..20).map(|_| done(&store, "stored"))).await;

    let store = MySqlStore::open(&server.url()).await.unwrap();
    for claim in &claims {
        let found = taken(&store, &rival(claim)).await;
        assert_eq!(body(&found), b"stored");
        assert!(found.keep_left <= LONG && found.keep_left > Duration::ZERO);
    }
}

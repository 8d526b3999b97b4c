//! What is wrong with a server or URL is said with what to do, and without its credentials.

use std::time::Duration;

use onlyonce_core::{Operate, StoreErrorKind};
use onlyonce_sql::{MySqlStore, OpenError, SqlOptions};
use onlyonce_testkit::servers::{Shared, shared};
use sqlx::mysql::MySqlPool;
use sqlx::{AssertSqlSafe, Executor};

use super::{table, url};
use crate::sql::{body, done, rival, soon, taken};

/// What opening says, and all that a program could print of it.
async fn refusal(url: &str) -> String {
    match MySqlStore::open(url).await {
        Ok(_) => panic!("opened"),
        Err(error) => format!("{error} {error:?}"),
    }
}

/// The shared server, with something else between `//` and the host.
fn with_login(login: &str) -> String {
    let url = shared(Shared::MariaDb);
    let (_, host) = url.split_once('@').unwrap();
    format!("mysql://{login}@{host}")
}

#[tokio::test]
async fn an_unknown_option_is_an_error() {
    let told = refusal(&format!("{}&tabel=t", url())).await;
    assert!(told.contains("did you mean `table`?"), "{told}");

    let told = refusal(&format!("{}&ssl_mode=REQUIRED", url())).await;
    assert!(told.contains("did you mean `ssl"), "{told}");
}

#[tokio::test]
async fn a_login_that_is_refused_is_told_without_it() {
    let told = refusal(&with_login("nobody:hunter2")).await;

    assert!(told.contains("refuses this login"), "{told}");
    assert!(
        !told.contains("hunter2") && !told.contains("nobody"),
        "{told}"
    );
}

#[tokio::test]
async fn a_url_that_cannot_be_read_is_told_without_it() {
    for wrong in [
        "mysql://u:hunter2@host:port/db",
        "mysql://u:hunter2@h/db?ssl-mode=perhaps",
    ] {
        let told = refusal(wrong).await;
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[tokio::test]
async fn a_url_without_a_database_is_told() {
    let url = shared(Shared::MariaDb);
    let (server, _) = url.rsplit_once('/').unwrap();

    assert!(refusal(server).await.contains("names no database"));
    let told = refusal(&format!("{server}/not_there")).await;
    assert!(told.contains("no such database"), "{told}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told() {
    let opened = MySqlStore::open("mysql://u:hunter2@127.0.0.1:1/db").await;

    let Err(OpenError::Store(error)) = opened else {
        panic!("not an error of the store");
    };
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(!format!("{error:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_schema_of_the_future_is_refused() {
    let table = table();
    let url = format!("{}?table={table}", shared(Shared::MariaDb));
    let store = MySqlStore::open(&url).await.unwrap();
    let future = format!("UPDATE {table}_schema SET version = 99");
    store.pool().execute(AssertSqlSafe(future)).await.unwrap();

    let told = refusal(&url).await;

    assert!(told.contains("99") && told.contains("upgrade"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_may_make_the_tables_at_once() {
    let url = format!("{}&connections=1", url());

    let opening: Vec<_> = (0..16)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { MySqlStore::open(&url).await })
        })
        .collect();

    for opened in opening {
        soon(opened).await.unwrap().unwrap().ping().await.unwrap();
    }
}

#[tokio::test]
async fn what_was_stored_is_there_after_opening_again() {
    let url = url();
    let store = MySqlStore::open(&url).await.unwrap();
    let claim = done(&store, "stored").await;
    drop(store);

    let store = MySqlStore::open(&url.replacen("mysql:", "mariadb:", 1))
        .await
        .unwrap();

    assert_eq!(body(&taken(&store, &rival(&claim)).await), b"stored");
}

#[tokio::test]
async fn a_store_can_use_the_settings_of_a_pool() {
    let pool = MySqlPool::connect(&shared(Shared::MariaDb)).await.unwrap();
    let options = || SqlOptions::new().timeout(Duration::from_secs(30));
    let one = MySqlStore::with_pool(pool.clone(), options().table(table())).await;
    let two = MySqlStore::with_pool(pool, options().table(table())).await;
    let (one, two) = (one.unwrap(), two.unwrap());

    let claim = done(&one, "stored").await;

    assert!(one.get(&claim.slot).await.unwrap().is_some());
    assert!(two.get(&claim.slot).await.unwrap().is_none());
}

#[tokio::test]
async fn several_servers_that_are_no_cluster_are_refused() {
    let url = url();
    let (login, rest) = url.split_once('@').unwrap();
    let (host, rest) = rest.split_once('/').unwrap();

    let told = refusal(&format!("{login}@127.0.0.1:1,{host}/{rest}")).await;

    assert!(told.contains("no node of a Galera cluster"), "{told}");
}

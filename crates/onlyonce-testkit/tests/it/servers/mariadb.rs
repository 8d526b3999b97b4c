//! MariaDB.

use std::process::Command;

use onlyonce_testkit::servers::{MariaDb, MariaDbOptions, Server};

use super::{is_harmless, leaves_nothing};

/// Asks as an application would: over TCP, as its user.
fn ask(server: &MariaDb, database: &str, sql: &str) -> String {
    let port = server.port().to_string();
    let asked = Command::new("mariadb")
        .args([
            "--no-defaults",
            "-h127.0.0.1",
            "-uonlyonce",
            "-BN",
            "-P",
            &port,
        ])
        .args([database, "-e", sql])
        .output()
        .unwrap();
    assert!(asked.status.success(), "{asked:?}");
    String::from_utf8(asked.stdout)
        .unwrap()
        .trim_end()
        .to_owned()
}

#[test]
fn a_durable_mariadb_keeps_its_data_through_a_kill() {
    let mariadb = MariaDb::start(MariaDbOptions::default()).unwrap();
    assert!(is_harmless(&mariadb));
    let port = mariadb.port();
    assert_eq!(
        mariadb.url(),
        format!("mysql://onlyonce@127.0.0.1:{port}/onlyonce")
    );
    let flush = "SELECT @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite";
    assert_eq!(mariadb.sql(flush).unwrap(), "1\t1");
    ask(
        &mariadb,
        "onlyonce",
        "CREATE TABLE t (n int); INSERT INTO t VALUES (7)",
    );

    mariadb.kill().unwrap();
    assert!(mariadb.sql("SELECT 1").is_err());
    mariadb.start_again().unwrap();

    assert_eq!(ask(&mariadb, "onlyonce", "SELECT n FROM t"), "7");
    leaves_nothing(mariadb);
}

#[test]
fn a_fast_mariadb_takes_arguments_and_restarts() {
    let mariadb = MariaDb::start(MariaDbOptions {
        fast: true,
        arguments: vec!["--innodb-lock-wait-timeout=7".to_owned()],
    })
    .unwrap();
    let settings = "SELECT @@innodb_flush_log_at_trx_commit, @@innodb_lock_wait_timeout";
    assert_eq!(mariadb.sql(settings).unwrap(), "2\t7");
    assert_eq!(
        mariadb.sql("SELECT @@character_set_server").unwrap(),
        "utf8mb4"
    );
    let url = mariadb.create_database("another").unwrap();
    assert_eq!(
        url,
        format!("mysql://onlyonce@127.0.0.1:{}/another", mariadb.port())
    );

    mariadb.restart().unwrap();

    assert_eq!(ask(&mariadb, "another", "SELECT DATABASE()"), "another");
}

#[test]
fn wrong_arguments_are_shown() {
    let failed = MariaDb::start(MariaDbOptions {
        fast: true,
        arguments: vec!["--no-such-option".to_owned()],
    });

    let error = failed.err().unwrap().to_string();
    assert!(error.contains("no-such-option"), "{error}");
}

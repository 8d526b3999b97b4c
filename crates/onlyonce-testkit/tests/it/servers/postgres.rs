//! PostgreSQL, and PgBouncer in front of it.

use std::process::{Child, Command, Stdio};

use onlyonce_testkit::servers::{PgBouncer, Postgres, PostgresOptions, Server};

use super::{children, eventually, is_harmless, leaves_nothing, runs, status};

fn fast() -> Postgres {
    Postgres::start(PostgresOptions {
        fast: true,
        ..PostgresOptions::default()
    })
    .unwrap()
}

/// A client whose statement does not end by itself.
fn busy_client(postgres: &Postgres) -> Child {
    let client = Command::new("psql")
        .args(["-X", "-d", &postgres.url(), "-c", "SELECT pg_sleep(86400)"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'";
    eventually(|| postgres.psql(sleeping).unwrap(), |count| count == "1");
    client
}

#[test]
fn a_durable_postgres_keeps_its_data_through_a_kill() {
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    assert!(is_harmless(&postgres));
    assert_eq!(postgres.psql("SHOW fsync").unwrap(), "on");
    assert_eq!(postgres.psql("SHOW synchronous_commit").unwrap(), "on");
    assert_eq!(postgres.psql("SHOW max_connections").unwrap(), "200");
    postgres
        .psql("CREATE TABLE t (n int); INSERT INTO t VALUES (7)")
        .unwrap();
    let mut client = busy_client(&postgres);
    let pid = postgres.pid().unwrap();
    let processes = children(pid);
    assert!(processes.len() > 1);

    postgres.kill().unwrap();
    assert!(!processes.iter().chain([&pid]).any(|pid| runs(*pid)));
    assert!(!client.wait().unwrap().success());
    assert!(postgres.psql("SELECT 1").is_err());
    postgres.start_again().unwrap();

    assert_eq!(postgres.psql("SELECT n FROM t").unwrap(), "7");
    leaves_nothing(postgres);
}

#[test]
fn a_fast_postgres_restarts_whoever_is_connected() {
    let postgres = fast();
    let port = postgres.port();
    assert_eq!(postgres.psql("SHOW fsync").unwrap(), "off");
    postgres
        .psql("CREATE TABLE t (n int); INSERT INTO t VALUES (7)")
        .unwrap();
    let mut client = busy_client(&postgres);

    postgres.restart().unwrap();

    assert!(!client.wait().unwrap().success());
    assert_eq!(postgres.port(), port);
    assert_eq!(postgres.psql("SELECT n FROM t").unwrap(), "7");
}

#[test]
fn a_paused_postgres_stands_still_with_all_its_processes() {
    let postgres = fast();
    let mut client = busy_client(&postgres);
    let pid = postgres.pid().unwrap();
    let states = || {
        let processes = children(pid).into_iter().chain([pid]);
        let states = processes.filter_map(|pid| status(pid, "State:"));
        states.collect::<Vec<_>>()
    };

    postgres.pause().unwrap();
    let paused = states();
    assert!(paused.len() > 1);
    assert!(
        paused.iter().all(|state| state.starts_with('T')),
        "{paused:?}"
    );
    postgres.resume().unwrap();

    assert!(!states().iter().any(|state| state.starts_with('T')));
    assert_eq!(postgres.psql("SELECT 1").unwrap(), "1");
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
fn databases_are_apart() {
    let postgres = fast();
    let url = postgres.create_database("another").unwrap();
    assert_eq!(
        url,
        format!("postgres://postgres@127.0.0.1:{}/another", postgres.port())
    );

    let asked = Command::new("psql")
        .args([
            "-X",
            "-A",
            "-t",
            "-d",
            &url,
            "-c",
            "SELECT current_database()",
        ])
        .output()
        .unwrap();

    assert_eq!(asked.stdout, b"another\n");
}

#[test]
fn extra_lines_reach_postgres_and_wrong_ones_are_shown() {
    let with = |line: &str| {
        Postgres::start(PostgresOptions {
            fast: true,
            lines: vec![line.to_owned()],
        })
    };

    let postgres = with("lock_timeout = '7s'").unwrap();
    assert_eq!(postgres.psql("SHOW lock_timeout").unwrap(), "7s");

    let error = with("no_such_setting = 1").err().unwrap().to_string();
    assert!(error.contains("no_such_setting"), "{error}");
}

#[test]
fn a_pool_shares_server_connections_between_transactions() {
    let postgres = fast();
    let pool = PgBouncer::start(&postgres).unwrap();
    assert!(is_harmless(&pool));
    assert_ne!(pool.port(), postgres.port());

    let backend = || pool.psql("SELECT pg_backend_pid()").unwrap();
    assert_eq!(backend(), backend());
    let modes = pool.admin("SHOW CONFIG").unwrap();
    assert!(modes.contains("pool_mode|transaction"), "{modes}");

    // It finds a server that was started again, and is itself started again.
    postgres.kill().unwrap();
    postgres.start_again().unwrap();
    eventually(
        || pool.psql("SELECT 7").ok(),
        |answer| answer.as_deref() == Some("7"),
    );
    pool.kill().unwrap();
    assert!(pool.psql("SELECT 7").is_err());
    pool.start_again().unwrap();
    assert_eq!(pool.psql("SELECT 7").unwrap(), "7");

    leaves_nothing(pool);
}

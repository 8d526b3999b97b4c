//! The servers that `cargo xtask test` starts for everyone.

use std::env;
use std::net::TcpStream;
use std::panic::catch_unwind;
use std::process::Command;

use onlyonce_testkit::servers::{Shared, missing_packages, shared};

#[test]
fn every_shared_server_answers() {
    for server in Shared::ALL {
        let url = shared(server);
        let (_, rest) = url.split_once("://").unwrap();
        let hosts = rest.split('/').next().unwrap();
        let hosts = hosts.rsplit('@').next().unwrap();
        for host in hosts.split(',') {
            assert!(host.starts_with("127.0.0.1:"), "{url}");
            TcpStream::connect(host).unwrap();
        }
    }
}

#[test]
fn shared_sql_servers_answer_questions() {
    for server in [Shared::Postgres, Shared::PgBouncer] {
        let asked = Command::new("psql")
            .args(["-X", "-A", "-t", "-d", &shared(server), "-c", "SELECT 7"])
            .output()
            .unwrap();
        assert_eq!(asked.stdout, b"7\n", "{asked:?}");
    }
}

#[test]
fn a_shared_server_that_is_missing_is_a_failure() {
    // In a process of its own, as the environment belongs to all tests.
    const INNER: &str = "ONLYONCE_TEST_INNER";
    if env::var_os(INNER).is_some() {
        let panic = catch_unwind(|| shared(Shared::Redis)).unwrap_err();
        let text = panic.downcast::<String>().unwrap();
        assert_eq!(
            *text,
            "ONLYONCE_TEST_REDIS_URL is not set: run the tests with `cargo xtask test`, which \
             starts the servers they need"
        );
        return;
    }

    let name = "servers::shared::a_shared_server_that_is_missing_is_a_failure";
    let inner = Command::new(env::current_exe().unwrap())
        .args(["--exact", name])
        .env(INNER, "1")
        .env_remove(Shared::Redis.variable())
        .output()
        .unwrap();

    assert!(inner.status.success(), "{inner:?}");
}

#[test]
fn nothing_is_missing_where_the_tests_run() {
    assert_eq!(missing_packages(), [""; 0]);
}

//! What a URL says, and what is wrong with one.

use super::*;

fn read(url: &str) -> Settings {
    Settings::of(url).unwrap()
}

fn place(host: &str, port: u16) -> Place {
    Place {
        host: host.to_owned(),
        port,
    }
}

#[test]
fn a_host_is_enough() {
    let settings = read("redis://cache");

    assert_eq!(settings.servers, Servers::One(place("cache", 6379)));
    assert_eq!(settings.login, Login::default());
    assert_eq!((settings.db, settings.tls), (0, false));
    assert_eq!(settings.prefix, "onlyonce");
    assert_eq!(settings.wait, None);
    assert_eq!(settings.eviction, Eviction::Refuse);
    assert!(settings.connections >= 1);
}

#[test]
fn user_password_port_and_database_are_read() {
    let settings = read("rediss://shop:p%40ss%3A%2F@[::1]:7000/4?connections=3&timeout_ms=250");

    assert_eq!(settings.servers, Servers::One(place("::1", 7000)));
    assert_eq!(settings.login.user.as_deref(), Some("shop"));
    assert_eq!(settings.login.password.as_deref(), Some("p@ss:/"));
    assert_eq!((settings.db, settings.tls), (4, true));
    assert_eq!(settings.connections, 3);
    assert_eq!(settings.answer_within, Duration::from_millis(250));
}

#[test]
fn a_password_needs_no_user_and_may_hold_an_at_sign() {
    let settings = read("redis://:a@b@host");

    assert_eq!(settings.login.user, None);
    assert_eq!(settings.login.password.as_deref(), Some("a@b"));
    assert_eq!(settings.servers, Servers::One(place("host", 6379)));
}

#[test]
fn sentinels_have_a_port_a_master_and_a_login_of_their_own() {
    let settings = read(
        "redis+sentinel://:m@s1,s2:5000,s3/mymaster/2?sentinel_user=u&sentinel_password=p&tls=yes",
    );

    let sentinels = vec![place("s1", 26379), place("s2", 5000), place("s3", 26379)];
    let master = "mymaster".to_owned();
    assert_eq!(settings.servers, Servers::Sentinel { sentinels, master });
    assert_eq!(settings.login.password.as_deref(), Some("m"));
    assert_eq!(settings.sentinel_login.password.as_deref(), Some("p"));
    assert_eq!((settings.db, settings.tls), (2, true));
}

#[test]
fn a_cluster_has_many_servers_and_one_database() {
    let settings = read("redis+cluster://h1:1,h2/?wait_replicas=2&wait_timeout_ms=100");

    let seeds = vec![place("h1", 1), place("h2", 6379)];
    assert_eq!(settings.servers, Servers::Cluster(seeds));
    let within = Duration::from_millis(100);
    assert_eq!(
        settings.wait,
        Some(Wait {
            replicas: 2,
            within
        })
    );
    assert!(Settings::of("redis+cluster://h1/1").is_err());
}

#[test]
fn what_is_wrong_is_told_with_what_would_be_right() {
    for (url, part) in [
        ("redis:host", "`://`"),
        ("redis://", "host"),
        ("redis://h1,h2", "redis+cluster://"),
        ("redis://h:port", "port"),
        ("redis://h:70000", "65535"),
        ("redis://h/first", "database"),
        ("redis+sentinel://s1", "master"),
        ("redis://h?prefix=", "prefix"),
        ("redis://h?connections=0", "at least 1"),
        ("redis://h?timeout_ms=0", "at least 1"),
        ("redis://h?eviction=yes", "refuse, warn"),
        ("redis://h?claim=native", "auto, script"),
        ("redis://h?wait_replica=1", "`wait_replicas`"),
        (
            "redis://h?wait_replicas=1&wait_timeout_ms=5000",
            "timeout_ms",
        ),
        ("redis://h?tls=yes", "no such option"),
        ("redis://u:%zz@h", "percent"),
    ] {
        let told = Settings::of(url).unwrap_err().to_string();
        assert!(told.contains(part), "{url}: {told}");
    }
}

#[test]
fn neither_user_nor_password_is_shown() {
    let shown = format!("{:?}", read("redis://alice:hunter2@h"));

    assert!(
        !shown.contains("alice") && !shown.contains("hunter2"),
        "{shown}"
    );
}

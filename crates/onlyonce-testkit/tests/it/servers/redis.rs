//! A standalone Redis.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use onlyonce_testkit::servers::{Redis, RedisOptions, Server, ServerError};

use super::{eventually, is_harmless, leaves_nothing, status};

fn durable() -> Redis {
    Redis::start(RedisOptions {
        durable: true,
        ..RedisOptions::default()
    })
    .unwrap()
}

#[test]
fn a_redis_answers_at_its_address_and_not_as_root() {
    let redis = Redis::start(RedisOptions::default()).unwrap();

    assert_eq!(redis.url(), format!("redis://127.0.0.1:{}", redis.port()));
    assert_eq!(redis.info("tcp_port").unwrap(), redis.port().to_string());
    assert_eq!(
        redis.info("process_id").unwrap(),
        redis.pid().unwrap().to_string()
    );
    assert!(is_harmless(&redis));

    leaves_nothing(redis);
}

#[test]
fn a_durable_redis_keeps_its_data_through_a_kill() {
    let redis = durable();
    redis.cli(&["SET", "key", "kept"]).unwrap();

    redis.kill().unwrap();
    assert_eq!(redis.pid(), None);
    assert!(redis.cli(&["PING"]).is_err());
    redis.start_again().unwrap();

    assert_eq!(redis.cli(&["GET", "key"]).unwrap(), "kept");
}

#[test]
fn a_durable_redis_keeps_its_data_through_a_restart() {
    let redis = durable();
    let (port, pid) = (redis.port(), redis.pid());
    redis.cli(&["SET", "key", "kept"]).unwrap();

    redis.restart().unwrap();

    assert_ne!(redis.pid(), pid);
    assert_eq!(redis.port(), port);
    assert_eq!(redis.cli(&["GET", "key"]).unwrap(), "kept");
}

#[test]
fn by_default_a_redis_forgets_with_its_process() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    redis.cli(&["SET", "key", "lost"]).unwrap();

    redis.restart().unwrap();

    assert_eq!(redis.cli(&["EXISTS", "key"]).unwrap(), "0");
}

#[test]
fn options_reach_the_server() {
    let redis = Redis::start(RedisOptions {
        maxmemory: Some("3mb".to_owned()),
        maxmemory_policy: Some("allkeys-lru".to_owned()),
        password: Some("secret".to_owned()),
        user: Some("nobody".to_owned()),
        lines: vec!["databases 3".to_owned()],
        ..RedisOptions::default()
    })
    .unwrap();

    let value = |name| redis.cli(&["CONFIG", "GET", name]).unwrap();
    assert_eq!(value("maxmemory"), "maxmemory\n3145728");
    assert_eq!(value("maxmemory-policy"), "maxmemory-policy\nallkeys-lru");
    assert_eq!(value("databases"), "databases\n3");
    assert_eq!(
        redis.url(),
        format!("redis://:secret@127.0.0.1:{}", redis.port())
    );
    assert!(is_harmless(&redis));

    let mut stranger = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    stranger.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    stranger.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"-NOAUTH");
}

#[test]
fn an_error_reply_is_an_error() {
    let redis = Redis::start(RedisOptions::default()).unwrap();

    let error = redis.cli(&["INCR"]).unwrap_err().to_string();

    assert!(error.contains("wrong number of arguments"), "{error}");
}

#[test]
fn a_paused_redis_answers_when_it_is_resumed() {
    let redis = Redis::start(RedisOptions::default()).unwrap();

    redis.pause().unwrap();
    assert!(
        status(redis.pid().unwrap(), "State:")
            .unwrap()
            .starts_with('T')
    );
    let mut client = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    client.write_all(b"PING\r\n").unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut reply = [0; 7];
    let error = client.read_exact(&mut reply).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);

    redis.resume().unwrap();
    client.set_read_timeout(None).unwrap();
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
}

#[test]
fn a_paused_redis_can_be_terminated_and_killed() {
    let redis = Redis::start(RedisOptions::default()).unwrap();

    redis.pause().unwrap();
    redis.terminate().unwrap();
    redis.start_again().unwrap();
    redis.pause().unwrap();
    redis.kill().unwrap();

    let error = redis.pause().unwrap_err();
    assert!(matches!(error, ServerError::NotRunning { .. }), "{error}");
}

#[test]
fn a_redis_that_ended_by_itself_can_be_started_again() {
    let redis = Redis::start(RedisOptions::default()).unwrap();

    let _ = redis.cli(&["SHUTDOWN", "NOSAVE"]);
    eventually(|| redis.pid(), Option::is_none);
    redis.start_again().unwrap();

    assert_eq!(redis.cli(&["PING"]).unwrap(), "PONG");
}

#[test]
fn a_failed_start_shows_the_log() {
    let failed = Redis::start(RedisOptions {
        lines: vec!["no-such-directive 1".to_owned()],
        ..RedisOptions::default()
    });

    let error = failed.err().unwrap().to_string();
    assert!(
        error.starts_with("redis did not start: it ended"),
        "{error}"
    );
    assert!(error.contains("no-such-directive"), "{error}");
    assert!(error.contains("hint:"), "{error}");
}

#[test]
fn an_unknown_user_is_an_error_for_root() {
    let started = Redis::start(RedisOptions {
        user: Some("no-such-user".to_owned()),
        ..RedisOptions::default()
    });

    match started {
        // We are not root, so everything runs as ourselves.
        Ok(redis) => assert!(is_harmless(&redis)),
        Err(error) => assert!(error.to_string().contains("no-such-user"), "{error}"),
    }
}

#[test]
fn a_start_waits_for_its_own_port() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    redis.kill().unwrap();
    let squatter = TcpListener::bind(("127.0.0.1", redis.port())).unwrap();

    thread::scope(|scope| {
        scope.spawn(|| {
            eventually(|| redis.log(), |log| log.contains("Address already in use"));
            drop(squatter);
        });
        redis.start_again().unwrap();
    });

    assert_eq!(redis.cli(&["PING"]).unwrap(), "PONG");
}

#[test]
fn a_redis_that_loses_its_disk_comes_back_empty() {
    let redis = durable();
    redis.cli(&["SET", "key", "kept"]).unwrap();

    redis.lose_disk().unwrap();

    assert_eq!(redis.cli(&["DBSIZE"]).unwrap(), "0");
    redis.cli(&["SET", "key", "kept"]).unwrap();
    redis.kill().unwrap();
    redis.start_again().unwrap();
    assert_eq!(redis.cli(&["GET", "key"]).unwrap(), "kept");
}

#[test]
fn a_redis_with_a_clock_of_its_own_can_have_a_wrong_one() {
    let redis = Redis::start(RedisOptions {
        has_own_clock: true,
        ..RedisOptions::default()
    })
    .unwrap();
    let other = Redis::start(RedisOptions::default()).unwrap();
    let seconds = |server: &Redis| -> i64 {
        let time = server.cli(&["TIME"]).unwrap();
        time.lines().next().unwrap().parse().unwrap()
    };
    let is_off_by = |wanted: i64| {
        let off = seconds(&redis) - seconds(&other);
        (wanted - 2..=wanted + 2).contains(&off)
    };
    assert!(is_off_by(0));

    for wrong in [3600, -3600, 0] {
        redis.set_clock(wrong).unwrap();
        assert!(eventually(|| is_off_by(wrong), |is_so| *is_so));
    }

    let pid = redis.pid().unwrap();
    drop(redis);
    for left in ["faketime_shm_", "sem.faketime_sem_"] {
        assert!(
            !std::path::Path::new("/dev/shm")
                .join(format!("{left}{pid}"))
                .exists()
        );
    }
}

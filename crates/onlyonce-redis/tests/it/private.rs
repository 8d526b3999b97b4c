//! Servers of a test's own, which it may kill, fill up and misconfigure.

use std::time::Duration;

use onlyonce_testkit::servers::{Redis, RedisOptions, Server};

/// How long anything may take before it counts as failed. Nothing waits longer than needed.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A server with these lines in its configuration.
pub(super) fn start(lines: &[&str]) -> Redis {
    Redis::start(RedisOptions {
        lines: lines.iter().map(|&line| line.to_owned()).collect(),
        ..RedisOptions::default()
    })
    .unwrap()
}

/// What a server answers, as the type that fits.
pub(super) async fn tell<T: redis::FromRedisValue>(server: &Redis, words: &[&str]) -> T {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command.query_async(&mut connection).await.unwrap()
}

/// Waits until `holds` does.
pub(super) async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "never: {what}");
}

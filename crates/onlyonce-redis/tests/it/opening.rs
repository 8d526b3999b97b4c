//! What is checked when a store opens, and what is never told.

use onlyonce_core::Store;
use onlyonce_redis::{OpenError, RedisStore};
use onlyonce_testkit::servers::{Redis, RedisOptions, RedisSentinel, Server};

use super::claims::{LONG, answer, done, fresh, granted, replayed};
use super::private::{start, tell};

#[tokio::test]
async fn a_server_that_may_evict_is_refused_unless_told_otherwise() {
    let server = start(&["maxmemory 100mb", "maxmemory-policy allkeys-lru"]);

    let refused = RedisStore::open(&server.url()).await.unwrap_err();

    assert!(matches!(refused, OpenError::Refused { .. }), "{refused:?}");
    let told = refused.to_string();
    assert!(
        told.contains("noeviction") && told.contains("eviction=warn"),
        "{told}"
    );
    let store = RedisStore::open(&format!("{}?eviction=warn", server.url())).await;
    done(&store.unwrap(), "stored").await;
}

#[tokio::test]
async fn a_policy_without_a_bound_evicts_nothing() {
    let server = start(&["maxmemory-policy allkeys-lru"]);

    assert!(RedisStore::open(&server.url()).await.is_ok());
}

const SECRET: &str = "hunter2";
const ENCODED: &str = "hunte%72%32";

#[tokio::test]
async fn a_password_opens_and_is_told_to_nobody() {
    let guarded = RedisOptions {
        password: Some(SECRET.to_owned()),
        ..RedisOptions::default()
    };
    let server = Redis::start(guarded).unwrap();
    let place = format!("127.0.0.1:{}", server.port());
    let store = RedisStore::open(&format!("redis://:{ENCODED}@{place}"))
        .await
        .unwrap();
    let claim = done(&store, "stored").await;
    assert_eq!(replayed(&store, &claim).await, b"stored");

    let mut told = vec![format!("{store:?}")];
    for url in [
        format!("redis://{place}"),
        format!("redis://:wrong-{ENCODED}@{place}"),
        format!("redis://hunter2:{ENCODED}@{place}"),
        format!("redis://:{ENCODED}@{place}?oops=1"),
        format!("redis://:{ENCODED}@{place}/hunter2"),
        format!("redis://:{ENCODED}@127.0.0.1:1"),
        format!("redis://:{ENCODED}@hunter2.invalid:6379"),
        format!("redis+cluster://:{ENCODED}@{place}"),
        format!("redis+sentinel://:{ENCODED}@{place}/mymaster?sentinel_password={ENCODED}"),
        format!("rediss://:{ENCODED}@{place}"),
        format!("redis://:{ENCODED}%@{place}"),
    ] {
        told.extend(everything(&RedisStore::open(&url).await.unwrap_err()));
    }
    server.kill().unwrap();
    told.extend(everything(&store.claim(&claim).await.unwrap_err()));
    for told in told {
        for secret in [SECRET, ENCODED, &place] {
            assert!(!told.contains(secret), "{told}");
        }
    }
}

/// All that can be printed of an error and its causes.
fn everything(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .flat_map(|it| [format!("{it}"), format!("{it:?}")])
        .collect()
}

/// Whoever may not publish or subscribe still finishes and waits: it polls.
#[tokio::test]
async fn a_user_without_channels_still_finishes_and_waits() {
    let server = start(&[]);
    let rights = [
        "ACL",
        "SETUSER",
        "mute",
        "reset",
        "on",
        ">secret",
        "~*",
        "+@all",
        "resetchannels",
    ];
    tell::<redis::Value>(&server, &rights).await;
    let url = format!("redis://mute:secret@127.0.0.1:{}", server.port());
    let store = std::sync::Arc::new(RedisStore::open(&url).await.unwrap());
    let claim = fresh();
    let lease = granted(&*store, &claim).await;
    let waiter = {
        let (store, claim) = (std::sync::Arc::clone(&store), claim.clone());
        tokio::spawn(async move { store.settled(&claim.slot, &claim.token, LONG).await })
    };
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;

    store
        .complete(&lease, &answer("stored"), LONG)
        .await
        .unwrap();

    let woken = tokio::time::timeout(LONG / 2, waiter).await;
    woken.expect("it looks now and then").unwrap().unwrap();
    assert_eq!(replayed(&*store, &claim).await, b"stored");
}

#[tokio::test]
async fn a_master_that_no_sentinel_knows_is_refused() {
    let group = RedisSentinel::start().unwrap();

    let url = group.url().replace("/mymaster", "/other");
    let refused = RedisStore::open(&url).await.unwrap_err();

    assert!(matches!(refused, OpenError::Refused { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_replica_is_refused() {
    let group = RedisSentinel::start().unwrap();
    let master = group.master().unwrap().port();
    let replica = group.nodes().iter().find(|node| node.port() != master);

    let refused = RedisStore::open(&replica.unwrap().url()).await.unwrap_err();

    assert!(refused.to_string().contains("replica"), "{refused}");
}

#[tokio::test]
async fn databases_of_one_server_are_apart() {
    let server = start(&[]);
    let one = RedisStore::open(&format!("{}/1", server.url()))
        .await
        .unwrap();
    let two = RedisStore::open(&format!("{}/2", server.url()))
        .await
        .unwrap();

    let claim = done(&one, "one").await;

    granted(&two, &claim).await;
    let told: String = tell(&server, &["INFO", "keyspace"]).await;
    assert!(
        told.contains("db1:keys=1,") && told.contains("db2:keys=1,"),
        "{told}"
    );
}

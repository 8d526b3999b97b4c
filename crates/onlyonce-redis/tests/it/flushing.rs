//! Servers forget their scripts: after a restart, and by `SCRIPT FLUSH`. They are sent again.

use onlyonce_core::{Completed, Store};
use onlyonce_redis::{RedisQuorum, RedisStore};
use onlyonce_testkit::servers::{Redis, RedisCluster, RedisOptions, Server};

use super::claims::{LONG, answer, done, fresh, granted, replayed};
use super::with;

/// Every verb, after the scripts were forgotten.
async fn goes_on(store: &dyn Store, servers: &[&Redis]) {
    let flush = || {
        for server in servers {
            server.cli(&["SCRIPT", "FLUSH"]).unwrap();
        }
    };
    let running = fresh();
    granted(store, &running).await;
    let finished = done(store, "before").await;

    flush();
    assert_eq!(replayed(store, &finished).await, b"before");
    flush();
    store.renew(&running.lease(), LONG).await.unwrap();
    flush();
    let completed = store
        .complete(&running.lease(), &answer("after"), LONG)
        .await;

    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );
    flush();
    done(store, "new").await;
    assert_eq!(replayed(store, &running).await, b"after");
}

#[tokio::test]
async fn a_server_that_forgot_its_scripts_is_sent_them_again() {
    let server = Redis::start(RedisOptions::default()).unwrap();
    for options in ["claim=auto", "claim=script"] {
        let store = RedisStore::open(&with(&server.url(), options)).await;
        goes_on(&store.unwrap(), &[&server]).await;
    }
}

#[tokio::test]
async fn the_masters_of_a_cluster_that_forgot_their_scripts_are_sent_them_again() {
    let cluster = RedisCluster::start().unwrap();
    let store = RedisStore::open(&cluster.url()).await.unwrap();

    goes_on(&store, &cluster.masters().unwrap()).await;
}

#[tokio::test]
async fn a_quorum_that_forgot_its_scripts_is_sent_them_again() {
    let group = super::quorum::Group::start(3, true);
    let quorum = RedisQuorum::open(&group.url(&[0, 1, 2], "")).await.unwrap();
    let servers: Vec<_> = group.servers.iter().collect();

    goes_on(&**quorum.store(), &servers).await;
}

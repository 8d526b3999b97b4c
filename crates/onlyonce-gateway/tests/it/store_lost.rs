//! A Redis behind gateways that goes away, and one that comes back without its data.

use std::time::Duration;

use http::StatusCode;
use onlyonce_gateway::Gateway;
use onlyonce_testkit::servers::{Redis, RedisOptions, Server};

use crate::support::{Service, client, started};

/// Both gateways are called by one name, so that they are one scope.
async fn order(gateway: &Gateway, key: &str) -> StatusCode {
    let url = format!("http://{}/orders", gateway.address());
    let request = client().post(url).header("host", "shop.test");
    let sent = request.header("idempotency-key", key).send().await;
    sent.unwrap().status()
}

async fn ready(gateway: &Gateway) -> StatusCode {
    let url = format!("http://{}/readyz", gateway.admin_address());
    client().get(url).send().await.unwrap().status()
}

fn on(redis: &Redis) -> String {
    format!("store = \"{}\"", redis.url())
}

/// Half a second without the store must not become a minute: the breaker stays open for 60 s only if
/// nothing closes it before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_away_for_a_moment_is_used_again_at_once() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let service = Service::start().await;
    let gateway = started(service.address, &on(&redis)).await;
    assert_eq!(order(&gateway, "before").await, StatusCode::CREATED);

    redis.kill().unwrap();
    for number in 0..6 {
        let status = order(&gateway, &format!("away-{number}")).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    }
    redis.start_again().unwrap();
    let back = async {
        while order(&gateway, "after").await != StatusCode::CREATED {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };

    let back = tokio::time::timeout(Duration::from_secs(30), back).await;
    assert!(back.is_ok(), "refused though the store is back");
    assert_eq!(service.work.runs(), 2);
}

/// The store restarts without its data, and one of the gateways restarts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_on_a_store_without_its_data_run_each_key_once() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let service = Service::start().await;
    let stays = started(service.address, &on(&redis)).await;
    let restarts = started(service.address, &on(&redis)).await;
    assert_eq!(order(&stays, "before").await, StatusCode::CREATED);
    assert_eq!(order(&restarts, "before").await, StatusCode::CREATED);
    assert_eq!(service.work.runs(), 1);

    redis.kill().unwrap();
    redis.start_again().unwrap();
    restarts.drain().await;
    let restarted = started(service.address, &on(&redis)).await;

    for number in 0..20 {
        let (key, before) = (format!("key-{number}"), service.work.runs());
        let answers = tokio::join!(order(&stays, &key), order(&restarted, &key));
        assert_eq!(service.work.runs(), before + 1, "{key}: {answers:?}");
    }
    // Whichever secret it is: who has another one says so.
    assert_eq!(ready(&restarted).await, StatusCode::OK);
}

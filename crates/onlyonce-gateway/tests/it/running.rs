//! A bound on what runs at a time, also for clients that do not wait for it.

use tokio::task::JoinHandle;

use crate::support::{Service, client, eventually, gateway, order_with};
use crate::wire::{CANCEL, Http2, RST_STREAM, frame, post};

const TWO: &str = "[limits]\nrunning = 2";

/// Sends a request that runs until the service's gate is opened.
fn slow(gateway: &onlyonce_gateway::Gateway, key: &str) -> JoinHandle<(u16, String)> {
    let request = client()
        .post(format!("http://{}/slow", gateway.address()))
        .header("idempotency-key", key);
    tokio::spawn(async move {
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    })
}

#[tokio::test]
async fn what_clients_leave_behind_counts_and_beyond_the_bound_nothing_is_claimed() {
    let service = Service::start().await;
    let gateway = gateway(service.address, TWO).await;
    for (number, key) in [(1, "one"), (2, "two")] {
        let request = slow(&gateway, key);
        eventually(|| service.work.runs() == number).await;
        request.abort();
    }

    let third = order_with(&gateway, "three", "{}").await;

    assert_eq!(third.status(), 503);
    assert!(third.headers().contains_key("retry-after"));
    let problem: serde_json::Value = third.json().await.unwrap();
    assert_eq!(problem["type"], "urn:onlyonce:problem:too-many-running");
    assert_eq!(problem["retryable"], true);
    assert_eq!(service.work.runs(), 2);
    service.work.gate.notify_waiters();
    let made = |status| status == 201;
    for _ in 0..100 {
        let status = order_with(&gateway, "three", "{}").await.status().as_u16();
        if made(status) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("there was no room again");
}

#[tokio::test]
async fn at_the_bound_replays_duplicates_and_requests_without_a_key_are_served() {
    let service = Service::start().await;
    let gateway = gateway(service.address, TWO).await;
    let made = order_with(&gateway, "made", "{}").await;
    assert_eq!(made.text().await.unwrap(), "order 1");
    let first = slow(&gateway, "one");
    eventually(|| service.work.runs() == 2).await;
    let _second = slow(&gateway, "two");
    eventually(|| service.work.runs() == 3).await;

    let duplicate = slow(&gateway, "one");
    let replay = order_with(&gateway, "made", "{}").await;
    let refused = order_with(&gateway, "new", "{}").await;
    let url = format!("http://{}/orders", gateway.address());
    let unkeyed = client().post(url).send().await.unwrap();

    assert_eq!(replay.text().await.unwrap(), "order 1");
    assert_eq!(refused.status(), 503);
    assert_eq!(unkeyed.text().await.unwrap(), "order 4");
    service.work.gate.notify_one();
    assert_eq!(first.await.unwrap(), (200, "slow 2".to_owned()));
    assert_eq!(duplicate.await.unwrap(), (200, "slow 2".to_owned()));
}

/// Each stream makes room for another one as soon as it is reset, so that only the bound on what runs
/// holds.
#[tokio::test]
async fn streams_that_are_reset_do_not_pile_up_behind_the_gateway() {
    let service = Service::start().await;
    let gateway = gateway(service.address, TWO).await;
    let mut client = Http2::connect(gateway.address(), 65_535).await;

    for number in 0..100 {
        let stream = 2 * number + 1;
        let key = format!("key-{number}");
        client.send(&post(stream, "/slow", Some(&key))).await;
        if number < 2 {
            eventually(|| service.work.runs() > number as usize).await;
        }
        client.send(&frame(RST_STREAM, 0, stream, &CANCEL)).await;
    }
    let last = order_with(&gateway, "last", "{}").await;

    assert_eq!(last.status(), 503);
    assert_eq!(service.work.runs(), 2);
}

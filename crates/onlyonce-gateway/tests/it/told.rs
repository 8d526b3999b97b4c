//! What clients are told when the service behind the gateway gave no answer: no more than is true.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};

use http::StatusCode;
use onlyonce_gateway::Gateway;
use serde_json::Value;

use crate::support::{client, gateway};

/// A service that takes so many requests, and is lost before it answers each; then it is gone.
fn crashing_service(times: usize) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let gone = std::thread::spawn(move || {
        for stream in listener.incoming().take(times) {
            let read = stream.unwrap().read(&mut [0; 4096]).unwrap();
            assert!(read > 0);
        }
    });
    (address, gone)
}

struct Told {
    status: StatusCode,
    has_retry_after: bool,
    detail: String,
    retryable: Option<bool>,
}

async fn told(gateway: &Gateway, method: http::Method, key: Option<&str>) -> Told {
    let url = format!("http://{}/orders", gateway.address());
    let mut request = client().request(method, url).body("{}");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let answer = request.send().await.unwrap();
    let (status, has_retry_after) = (
        answer.status(),
        answer.headers().contains_key("retry-after"),
    );
    let problem: Value = answer.json().await.unwrap();
    Told {
        status,
        has_retry_after,
        detail: problem["detail"].as_str().unwrap().to_owned(),
        retryable: problem["retryable"].as_bool(),
    }
}

#[tokio::test]
async fn a_crash_under_rerun_is_not_forgotten_when_the_service_is_down_afterwards() {
    let (address, gone) = crashing_service(1);
    let gateway = gateway(address, "").await;

    let lost = told(&gateway, http::Method::POST, Some("key")).await;
    gone.join().unwrap();
    let mut down = Vec::new();
    for _ in 0..3 {
        down.push(told(&gateway, http::Method::POST, Some("key")).await);
    }

    assert_eq!(
        (lost.status, lost.retryable),
        (StatusCode::BAD_GATEWAY, Some(true))
    );
    assert!(lost.detail.contains("may run it again"), "{}", lost.detail);
    for told in down {
        assert_eq!(
            (told.status, told.retryable),
            (StatusCode::BAD_GATEWAY, Some(true))
        );
        assert!(told.detail.contains("an earlier one"), "{}", told.detail);
    }
}

#[tokio::test]
async fn a_crash_under_hold_is_not_to_be_retried() {
    let (address, _gone) = crashing_service(1);
    let gateway = gateway(address, "[rules]\non_lapse = \"hold\"").await;

    let lost = told(&gateway, http::Method::POST, Some("key")).await;
    let retry = told(&gateway, http::Method::POST, Some("key")).await;

    assert_eq!(
        (lost.status, lost.retryable),
        (StatusCode::BAD_GATEWAY, Some(false))
    );
    assert!(!lost.has_retry_after);
    for told in [&lost, &retry] {
        assert!(told.detail.contains("operator"), "{}", told.detail);
    }
    assert_eq!(
        (retry.status, retry.retryable),
        (StatusCode::CONFLICT, Some(false))
    );
}

#[tokio::test]
async fn a_request_without_a_key_is_not_told_to_retry_with_one() {
    let (address, gone) = crashing_service(2);
    let gateway = gateway(address, "").await;

    let lost = told(&gateway, http::Method::POST, None).await;
    let lost_put = told(&gateway, http::Method::PUT, None).await;
    gone.join().unwrap();
    let down = told(&gateway, http::Method::POST, None).await;

    assert_eq!((lost.retryable, lost.has_retry_after), (Some(false), false));
    assert_eq!(
        (lost_put.retryable, down.retryable),
        (Some(true), Some(true))
    );
    for told in [&lost, &lost_put, &down] {
        assert_eq!(told.status, StatusCode::BAD_GATEWAY);
        assert!(!told.detail.contains("same key"), "{}", told.detail);
    }
    assert!(down.detail.contains("was not sent"), "{}", down.detail);
}

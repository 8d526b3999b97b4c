//! Services that break off, close, or fail: callers hear what is known, and no caller pays for
//! another one's failure.

use std::sync::atomic::Ordering;

use onlyonce_gateway::Gateway;

use crate::support::{Service, client, gateway, order_with, settings};
use crate::wire::{Say, scripted};

const MADE: &str = "HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\nmade";
const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnone";
const FAILED: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 6\r\n\r\nfailed";
const HALF: &str = "HTTP/1.1 201 Created\r\ncontent-length: 1000\r\n\r\nhalf of";

#[tokio::test]
async fn a_service_that_breaks_off_in_its_answer_is_a_502_that_says_so() {
    let (service, _) = scripted(|connection, _| match connection {
        1 => Say::Last(HALF),
        _ => Say::This(MADE),
    })
    .await;
    let gateway = gateway(service, "[rules]\non_lapse = \"rerun\"").await;

    let first = order_with(&gateway, "key", "{}").await;

    assert_eq!(first.status(), 502);
    assert_eq!(first.headers()["content-type"], "application/problem+json");
    let problem: serde_json::Value = first.json().await.unwrap();
    assert_eq!(problem["type"], "urn:onlyonce:problem:upstream-lost");
    let retry = order_with(&gateway, "key", "{}").await;
    assert_eq!(
        (retry.status().as_u16(), &*retry.text().await.unwrap()),
        (201, "made")
    );
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_not_called_a_lost_service() {
    const NO_HTTP: &str = "220 mail.example ESMTP\r\n\r\n";
    const TWO_LENGTHS: &str =
        "HTTP/1.1 201 Created\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\nmade";

    for answer in [NO_HTTP, TWO_LENGTHS] {
        let (service, _) = scripted(move |_, _| Say::This(answer)).await;
        let gateway = gateway(service, "").await;

        let first = order_with(&gateway, "key", "{}").await;

        assert_eq!(first.status(), 502);
        let problem: serde_json::Value = first.json().await.unwrap();
        assert_eq!(problem["type"], "urn:onlyonce:problem:upstream-unreadable");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("may have taken effect"), "{detail}");
        assert!(!detail.contains("lost"), "{detail}");
    }
}

#[tokio::test]
async fn what_broke_off_is_held_where_the_rules_say_so() {
    let (service, connections) = scripted(|_, _| Say::Last(HALF)).await;
    let gateway = gateway(service, "[rules]\non_lapse = \"hold\"").await;

    let first = order_with(&gateway, "key", "{}").await;
    let retry = order_with(&gateway, "key", "{}").await;

    assert_eq!(
        (first.status().as_u16(), retry.status().as_u16()),
        (502, 409)
    );
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_broke_off_is_found_out_first_where_the_rules_say_so() {
    let (service, _) = scripted(|connection, _| match connection {
        1 => Say::Last(HALF),
        _ => Say::This(FAILED),
    })
    .await;
    let ask = "[[route]]\nmatch = \"POST /orders\"\nreconcile = \"GET /orders/{operation}\"\n";
    let gateway = gateway(service, ask).await;

    let first = order_with(&gateway, "key", "{}").await;

    assert_eq!(first.status(), 502);
    let problem: serde_json::Value = first.json().await.unwrap();
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("finds that out first"), "{detail}");
    assert_eq!(problem["retryable"], true);
}

/// The service fails, and then closes without having announced it: whoever came next on that
/// connection would be lost with it.
#[tokio::test]
async fn a_connection_whose_last_answer_was_a_failure_is_not_given_to_another_caller() {
    let (service, connections) = scripted(|_, number| match number {
        1 => Say::This(FAILED),
        _ => Say::Nothing,
    })
    .await;
    let gateway = gateway(service, "").await;
    let client = client();
    let url = format!("http://{}/orders", gateway.address());

    for key in [None, Some("a"), None, Some("b"), Some("c"), None] {
        let mut request = client.post(&url);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status();
        assert_eq!(
            (status.as_u16(), &*answer.text().await.unwrap()),
            (500, "failed")
        );
    }

    assert_eq!(connections.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn a_connection_that_answers_well_is_used_again() {
    let (service, connections) = scripted(|_, number| match number % 2 {
        0 => Say::This(MADE),
        _ => Say::This(NOT_FOUND),
    })
    .await;
    let gateway = gateway(service, "").await;
    let client = client();
    let url = format!("http://{}/orders", gateway.address());

    for _ in 0..10 {
        let answer = client.post(&url).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap().len(), 4);
    }

    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn readiness_needs_the_upstreams_only_where_it_is_asked_for() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let asked = gateway(address, "ready_upstreams = true\n").await;
    let not_asked = gateway(address, "").await;
    let ready = async |gateway: &Gateway| {
        let url = format!("http://{}/readyz", gateway.admin_address());
        let answer = client().get(url).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };

    let (status, why) = ready(&asked).await;
    assert_eq!(status, 503, "{why}");
    assert!(why.contains(&format!("http://{address}")), "{why}");
    assert_eq!(ready(&not_asked).await.0, 200);

    let back = tokio::net::TcpListener::bind(address).await.unwrap();
    assert_eq!(ready(&asked).await.0, 200);
    drop(back);
}

#[tokio::test]
async fn an_upstream_that_a_reload_removes_is_not_down_for_ever() {
    let service = Service::start().await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let before = settings(address, "");
    let gateway = Gateway::start(&before).await.unwrap();
    assert_eq!(order_with(&gateway, "a-key", "{}").await.status(), 502);
    let down = format!("idempotency_upstream_up{{upstream=\"http://{address}\"}}");
    assert!(metrics(&gateway).await.contains(&format!("{down} 0")));

    let after = settings(service.address, "");
    gateway.reload(&after).unwrap();

    let page = metrics(&gateway).await;
    assert!(!page.contains(&down), "{page}");
    let up = format!("upstream=\"http://{}\"}} 1", service.address);
    assert!(page.contains(&up), "{page}");
}

async fn metrics(gateway: &Gateway) -> String {
    let url = format!("http://{}/metrics", gateway.admin_address());
    client()
        .get(url)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap()
}

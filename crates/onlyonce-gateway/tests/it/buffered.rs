//! A bound on the request bodies in memory at a time.

use std::time::Duration;

use onlyonce_gateway::{Gateway, config};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::{Service, client, gateway};

/// Room for one body of 1,500 bytes and a little more.
const LITTLE: &str = "[limits]\nbuffered_bytes = 2048\n[rules]\nrequest_bytes_max = 1500";
const RETRIES_MAX: usize = 500;
const PAUSE: Duration = Duration::from_millis(10);

async fn order(gateway: &Gateway, key: &str, bytes: usize) -> reqwest::Response {
    let request = client().post(format!("http://{}/orders", gateway.address()));
    let request = request
        .header("idempotency-key", key)
        .body("x".repeat(bytes));
    request.send().await.unwrap()
}

/// Sends new keys with bodies of this size until the answer has this status; returns that answer. The
/// room of a body may be given back a moment after its answer has arrived.
async fn until(gateway: &Gateway, name: &str, bytes: usize, status: u16) -> reqwest::Response {
    for number in 0..RETRIES_MAX {
        let answer = order(gateway, &format!("{name}-{number}"), bytes).await;
        if answer.status() == status {
            return answer;
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("no answer had the status {status}");
}

/// A request of 1,500 bytes that has sent all but a hundred.
async fn stall(gateway: &Gateway, key: &str) -> TcpStream {
    let mut stalled = TcpStream::connect(gateway.address()).await.unwrap();
    let head = format!(
        "POST /orders HTTP/1.1\r\nhost: a\r\nidempotency-key: {key}\r\ncontent-length: 1500\r\n\r\n"
    );
    stalled.write_all(head.as_bytes()).await.unwrap();
    stalled.write_all(&[b'x'; 1_400]).await.unwrap();
    stalled
}

/// Stalls a request until another one is refused for it. The stalled one is itself refused if the other has
/// taken the room just before, so each try is a new one.
async fn refused_beside_a_stalled_one(gateway: &Gateway) -> (TcpStream, reqwest::Response) {
    for number in 0..RETRIES_MAX {
        let stalled = stall(gateway, &format!("stalled-{number}")).await;
        tokio::time::sleep(PAUSE).await;
        let answer = order(gateway, &format!("before-{number}"), 1_000).await;
        if answer.status() == 503 {
            return (stalled, answer);
        }
    }
    panic!("no body was refused beside a stalled one");
}

#[tokio::test]
async fn bodies_without_room_are_refused_before_anything_is_claimed_and_room_comes_back() {
    let service = Service::start().await;
    let gateway = gateway(service.address, LITTLE).await;

    let (stalled, refused) = refused_beside_a_stalled_one(&gateway).await;
    let runs = service.work.runs();

    assert!(refused.headers().contains_key("retry-after"));
    let problem: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(problem["type"], "urn:onlyonce:problem:too-much-buffered");
    assert_eq!(problem["retryable"], true);
    // A body for which there is room is served; the refused one claimed nothing.
    until(&gateway, "small", 100, 201).await;
    assert_eq!(service.work.runs(), runs + 1);
    drop(stalled);
    until(&gateway, "after", 1_000, 201).await;
    // However often it is taken, it is given back.
    for number in 0..10 {
        until(&gateway, &format!("again-{number}"), 1_500, 201).await;
    }
}

/// A body is in memory until the upstream has taken it.
#[tokio::test]
async fn a_body_keeps_its_room_until_it_is_written() {
    let (address, deaf) = crate::support::deaf().await;
    let bounds = "[limits]\nbuffered_bytes = 16777216\n[rules]\nrequest_bytes_max = 12000000\n";
    let gateway = gateway(address, bounds).await;
    let send = |key: &str| {
        let request = client().post(format!("http://{}/orders", gateway.address()));
        let request = request.header("idempotency-key", key);
        let request = request.timeout(Duration::from_secs(20));
        request.body(vec![b'x'; 11_000_000]).send()
    };
    let running = tokio::spawn(send("first"));
    let _taken = deaf.accept().await.unwrap();
    tokio::time::sleep(10 * PAUSE).await;

    let second = send("second").await;

    let second = second.expect("it is refused, and does not wait");
    assert_eq!(second.status(), 503);
    running.abort();
}

#[test]
fn less_room_than_one_request_may_need_is_found_by_the_check() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "upstream = \"http://127.0.0.1:3000\"\n[limits]\nbuffered_bytes = 2048\n";
    std::fs::write(file.path(), text).unwrap();

    let error = config::load(Some(file.path()), [], &[]).unwrap_err();

    let said = error.to_string();
    assert!(said.contains("3:"), "{said}");
    assert!(
        said.contains("no room for a request of 1048576 bytes"),
        "{said}"
    );
}

//! In front of Python's http.server and of nginx, asked by curl.

use tokio::process::Command;

use super::process::Process;
use super::upstreams::{Nginx, Shop};

/// What curl gets for an order under `key`: the headers, and the body.
async fn curl(url: &str, key: &str) -> (String, String) {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--include", "--max-time", "60"])
        .args(["--header", &format!("Idempotency-Key: {key}")])
        .args(["--header", "Content-Type: application/json"])
        .args(["--data", "{\"amount\":5}", url])
        .output()
        .await
        .expect("curl is installed");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

#[tokio::test]
async fn a_python_service_is_protected_by_one_flag() {
    let shop = Shop::start().await;
    let settings = format!("upstream = \"{}\"\nstore = \"memory:\"", shop.url());
    let gateway = Process::start(&settings).await;

    let (first, made) = curl(&gateway.url("/orders"), "key-1").await;
    let (retry, same) = curl(&gateway.url("/orders"), "key-1").await;
    let (_, other) = curl(&gateway.url("/orders"), "key-2").await;

    assert!(first.starts_with("http/1.1 201"), "{first}");
    assert!(!first.contains("idempotent-replayed"), "{first}");
    assert!(retry.starts_with("http/1.1 201"), "{retry}");
    assert!(retry.contains("idempotent-replayed: true"), "{retry}");
    assert_eq!((&*made, &*same), ("key-1 run 1", "key-1 run 1"));
    assert_eq!(other, "key-2 run 1");
    assert_eq!(shop.runs_of("key-1").await, 1);
    let said = gateway.said();
    assert_eq!(said.matches("callers are told apart").count(), 1, "{said}");
    assert!(said.contains("\"setting\":\"scope\""), "{said}");
}

#[tokio::test]
async fn nginx_is_protected_too() {
    let nginx = Nginx::start().await;
    let settings = format!("upstream = \"{}\"\nstore = \"memory:\"", nginx.url());
    let gateway = Process::start(&settings).await;

    let (_, made) = curl(&gateway.url("/orders"), "key-1").await;
    let (retry, same) = curl(&gateway.url("/orders"), "key-1").await;
    let (_, other) = curl(&gateway.url("/orders"), "key-2").await;

    assert_eq!(made.len(), 32, "{made}");
    assert_eq!(made, same);
    assert_ne!(made, other);
    assert!(retry.contains("idempotent-replayed: true"), "{retry}");
}

//! A request goes where its route says, however its path is spelled.

use std::sync::atomic::Ordering;

use onlyonce_gateway::Gateway;

use crate::support::{Service, ask, gateway, heard, mirror};

const ROUTES: &str = r#"
[[route]]
match = "* /public/{*rest}"
pass = true
[[route]]
match = "POST /pay"
[route.rules]
key = "required"
[[route]]
match = "POST /pay:now"
[route.rules]
key = "required"
[[route]]
match = "* /files/{name}"
pass = true
"#;

/// What a `POST` to this path without a key comes to: the status, and the target the service got.
async fn post(gateway: &Gateway, target: &str) -> (u16, Option<String>) {
    let head = format!("POST {target} HTTP/1.1\r\ncontent-length: 0\r\n");
    let heard = ask(gateway, &head).await;
    let status = heard.split(' ').nth(1).unwrap().parse().unwrap();
    let got = heard
        .split_once("got ")
        .map(|(_, target)| target.to_owned());
    (status, got)
}

#[tokio::test]
async fn a_path_is_matched_as_the_upstream_gets_it() {
    let (address, _) = mirror().await;
    let gateway = gateway(address, ROUTES).await;
    let to = |target: &str| (200, Some(target.to_owned()));

    // The key is missing: what the upstream would have got is `/pay`.
    for target in [
        "/pay",
        "/public/../pay",
        "/public/%2e%2e/pay",
        "/public/.%2E/pay?a=/../b",
        "/public/./x/../../pay",
        "/../pay",
        "/./pay",
        "/%70%61y",
        "/%50ay/../pay",
        "http://a/public/../pay",
        "/pay#/public/x",
    ] {
        assert_eq!(post(&gateway, target).await, (400, None), "{target}");
    }
    // The same path and no other.
    assert_eq!(post(&gateway, "/public/x").await, to("/public/x"));
    assert_eq!(
        post(&gateway, "/public/x?a=%2e&b=..").await,
        to("/public/x?a=%2e&b=..")
    );
    assert_eq!(post(&gateway, "/pay/../public/x").await, to("/public/x"));
    assert_eq!(
        post(&gateway, "/public/%7euser/%c3%a9").await,
        to("/public/~user/%C3%A9")
    );
    assert_eq!(
        post(&gateway, "/public/.well-known/a..b").await,
        to("/public/.well-known/a..b")
    );
    assert_eq!(
        post(&gateway, "/public/%252e%252e/pay").await,
        to("/public/%252e%252e/pay")
    );
    assert_eq!(post(&gateway, "/PAY").await, to("/PAY"));
}

#[tokio::test]
async fn a_path_that_leads_to_two_routes_is_refused() {
    let (address, runs) = mirror().await;
    let gateway = gateway(address, ROUTES).await;

    for target in [
        "/public/..%2fpay",
        "/public/..%2Fpay",
        "/public%2f..%2fpay",
        "/public/x%2f..%2f..%2fpay",
        "/public/..%5cpay",
        "/public/..\\pay",
        "/public/..;/pay",
        "/public/..;a=b/pay",
        "/public/..%3b/pay",
        "/public/x/..;/..;/pay",
        "/public/x//..;/..;/pay",
        "//pay",
        "/%2fpay",
        "/x//..%2fpay",
        "/pay;a=b",
        "/pay%3Anow",
        "/;/pay",
        "/files/a%2fb",
    ] {
        assert_eq!(post(&gateway, target).await, (400, None), "{target}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    // All readings lead to one route.
    for target in [
        "/public/a%2Fb",
        "/public/a;b/c",
        "/public//a",
        "/public/a%3Ab%20c",
        "/groups/a%2Fb/x//y",
        "/files/a;b",
    ] {
        let got = Some(target.to_owned());
        assert_eq!(post(&gateway, target).await, (200, got), "{target}");
    }
}

#[tokio::test]
async fn a_target_that_is_no_path_is_refused() {
    let (address, runs) = mirror().await;
    let gateway = gateway(address, ROUTES).await;

    for target in [
        "*",
        "pay",
        "a:80",
        "/public/%",
        "/public/%2",
        "/public/%zz",
        "/public/%00",
        "ftp://a/public/x",
        "http://user@a/public/x",
    ] {
        assert_eq!(post(&gateway, target).await, (400, None), "{target}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 0);

    let all = ask(&gateway, "OPTIONS * HTTP/1.1\r\n").await;
    assert!(all.ends_with("got *"), "{all}");
}

#[tokio::test]
async fn however_a_path_is_spelled_it_is_one_record() {
    let service = Service::start().await;
    let more = "[[route]]\nmatch = \"POST /%6frders\"\nscope = [\"route\"]";
    let gateway = gateway(service.address, more).await;

    for target in [
        "/orders",
        "/%6frders",
        "/x/../orders",
        "/%2e/orders",
        "http://a/./orders",
    ] {
        let head = format!("POST {target} HTTP/1.1\r\ncontent-length: 0\r\nidempotency-key: k\r\n");
        let heard = ask(&gateway, &head).await;
        assert!(heard.ends_with("order 1"), "{target}: {heard}");
    }
    assert_eq!(service.work.runs(), 1);
}

#[tokio::test]
async fn what_precedes_every_path_is_not_climbed_over() {
    let (address, _) = mirror().await;
    let base = format!("[[route]]\nmatch = \"* /{{*all}}\"\nupstream = \"http://{address}/base\"");
    let gateway = gateway(address, &base).await;

    for (target, got) in [
        ("/../../x", "/base/x"),
        ("/%2e%2e/x", "/base/x"),
        ("/a/..", "/"),
    ] {
        assert_eq!(
            post(&gateway, target).await,
            (200, Some(got.to_owned())),
            "{target}"
        );
    }
}

/// What is before every path must not make it longer than a target can be.
#[tokio::test]
async fn a_target_that_is_too_long_to_be_sent_on_is_refused() {
    let (address, runs) = mirror().await;
    let base = format!(
        "[[route]]\nmatch = \"* /{{*all}}\"\nupstream = \"http://{address}/{}\"",
        "b".repeat(3000)
    );
    let gateway = gateway(address, &base).await;

    let over = post(&gateway, &format!("/{}", "a".repeat(65_000))).await;
    let within = post(&gateway, &format!("/{}", "a".repeat(60_000))).await;

    assert_eq!(over, (414, None));
    assert_eq!(within.1.map(|got| got.len()), Some(63_002));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// It says how to read the body, and goes no further than this hop.
#[tokio::test]
async fn a_transfer_coding_that_would_be_lost_is_refused() {
    let (address, runs) = mirror().await;
    let gateway = gateway(address, "").await;
    let request = |coding: &str| {
        format!(
            "POST /a HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: {coding}\r\n\r\n\
             2\r\nhi\r\n0\r\n\r\n"
        )
    };

    let lost = heard(&gateway, &request("gzip, chunked")).await;
    let known = heard(&gateway, &request("Chunked")).await;

    assert!(lost.starts_with("HTTP/1.1 501 "), "{lost}");
    assert!(known.ends_with("got /a"), "{known}");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

//! Observed routes: everything passes as through a plain proxy, and what enforcing would have done is
//! counted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Bytes;
use http::StatusCode;
use onlyonce_gateway::{Gateway, ObservedRouteView, ObservedView, SeenView};
use onlyonce_testkit::servers::{Redis, RedisOptions, Server};

use crate::support::{
    Service, ask, client, eventually, gateway, heard, mirror, order_with, settings, started, stream,
};

const OBSERVE: &str = "mode = \"observe\"\n";
const KEY: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

async fn view(gateway: &Gateway) -> ObservedView {
    let url = format!("http://{}/api/v1/observed", gateway.admin_address());
    let text = client()
        .get(url)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    serde_json::from_str(&text).unwrap()
}

async fn only_route(gateway: &Gateway) -> ObservedRouteView {
    let mut routes = view(gateway).await.routes;
    assert_eq!(routes.len(), 1, "{routes:?}");
    routes.remove(0)
}

/// What was seen on the only route, by name.
async fn counts(gateway: &Gateway) -> BTreeMap<String, u64> {
    let route = only_route(gateway).await;
    let all = route.verdicts.into_iter().chain(route.findings);
    all.map(|it| (it.seen, it.count)).collect()
}

/// Waits until the only route has been seen like this.
async fn sees(gateway: &Gateway, expected: &[(&str, u64)]) {
    let expected: BTreeMap<String, u64> = expected
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect();
    let mut last = BTreeMap::new();
    for _ in 0..1000 {
        last = counts(gateway).await;
        if last == expected {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(last, expected);
}

fn url(gateway: &Gateway, path: &str) -> String {
    format!("http://{}{path}", gateway.address())
}

/// A service that answers as a test needs.
async fn serving(app: axum::Router) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn post(
    gateway: &Gateway,
    path: &str,
    key: &str,
    body: impl Into<reqwest::Body>,
) -> StatusCode {
    let request = client()
        .post(url(gateway, path))
        .header("idempotency-key", key);
    let answer = request.body(body).send().await.unwrap();
    let status = answer.status();
    answer.bytes().await.unwrap();
    status
}

#[tokio::test]
async fn repeats_and_conflicts_reach_the_service_and_are_counted() {
    let service = Service::start().await;
    let gateway = gateway(service.address, OBSERVE).await;

    let mut answers = Vec::new();
    for body in ["{\"n\":1}", "{\"n\":1}", "{\"n\":2}"] {
        let answer = order_with(&gateway, KEY, body).await;
        assert!(!answer.headers().contains_key("idempotent-replayed"));
        answers.push((answer.status().as_u16(), answer.text().await.unwrap()));
    }

    let expected: Vec<_> = (1..=3).map(|it| (201, format!("order {it}"))).collect();
    assert_eq!(answers, expected);
    let seen = [
        ("first", 1),
        ("replay", 1),
        ("mismatch", 1),
        ("ran-again", 1),
    ];
    sees(&gateway, &seen).await;
    let route = only_route(&gateway).await;
    assert_eq!(
        (route.route.as_str(), route.requests, route.keyed),
        ("*", 3, 3)
    );
}

#[tokio::test]
async fn the_service_and_the_client_get_what_a_route_that_passes_would_give_them() {
    let service = Service::start().await;
    let more = "[[route]]\nmatch = \"* /told\"\npass = true\n";
    let passing = gateway(service.address, more).await;
    let observing = gateway(service.address, OBSERVE).await;

    let mut heads = Vec::new();
    for gateway in [&passing, &observing] {
        let request = client()
            .post(url(gateway, "/told?a=%20b"))
            .header("host", "shop.test")
            .header("idempotency-key", KEY)
            .header("accept-encoding", "gzip")
            .header("onlyonce-operation", "forged");
        let answer = request.body("x").send().await.unwrap();
        let headers: Vec<_> = answer
            .headers()
            .iter()
            .filter(|(name, _)| *name != "date")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        heads.push((answer.status(), headers, answer.text().await.unwrap()));
    }

    assert_eq!(heads[0], heads[1]);
    assert!(
        heads[1].2.contains(&format!("idempotency-key: {KEY}")),
        "{:?}",
        heads[1]
    );
}

#[tokio::test]
async fn a_duplicate_while_the_first_runs_runs_too_and_is_counted() {
    let service = Service::start().await;
    let gateway = Arc::new(gateway(service.address, OBSERVE).await);
    let send = || {
        let gateway = Arc::clone(&gateway);
        tokio::spawn(async move { post(&gateway, "/slow", KEY, "").await })
    };
    let first = send();
    eventually(|| service.work.runs() == 1).await;

    let second = send();
    eventually(|| service.work.runs() == 2).await;
    sees(&gateway, &[("first", 1), ("attached", 1)]).await;
    service.work.gate.notify_one();
    service.work.gate.notify_one();

    assert_eq!(first.await.unwrap(), StatusCode::OK);
    assert_eq!(second.await.unwrap(), StatusCode::OK);
    sees(&gateway, &[("first", 1), ("attached", 1), ("ran-again", 1)]).await;
}

#[tokio::test]
async fn bad_missing_and_weak_keys_pass_and_are_counted() {
    let service = Service::start().await;
    let more = format!("{OBSERVE}[rules]\nkey = \"required\"\n");
    let gateway = gateway(service.address, &more).await;
    let long = "k".repeat(2_000);
    for key in [long.as_str(), "\"no end", "two words"] {
        assert_eq!(
            post(&gateway, "/orders", key, "{}").await,
            StatusCode::CREATED
        );
    }
    let twice = client().post(url(&gateway, "/orders"));
    let twice = twice
        .header("idempotency-key", "a")
        .header("idempotency-key", "b");
    assert_eq!(twice.send().await.unwrap().status(), StatusCode::CREATED);
    let not_ascii = "POST /orders HTTP/1.1\r\nidempotency-key: \u{e9}\r\n";
    assert!(ask(&gateway, not_ascii).await.starts_with("HTTP/1.1 201"));

    let without = client()
        .post(url(&gateway, "/orders"))
        .send()
        .await
        .unwrap();
    assert_eq!(without.status(), StatusCode::CREATED);
    assert_eq!(
        post(&gateway, "/orders", "order-7", "{}").await,
        StatusCode::CREATED
    );

    let counts = counts(&gateway).await;
    assert_eq!(counts["missing-key"], 1);
    assert_eq!(counts["first"], 1);
    assert_eq!(counts["weak-key"], 1);
    assert_eq!(counts["bad-key"], 5);
    let text = serde_json::to_string(&view(&gateway).await).unwrap();
    assert!(!text.contains(&long) && !text.contains("order-7") && !text.contains("two words"));
}

#[tokio::test]
async fn keys_are_shown_as_hints_only() {
    let service = Service::start().await;
    let gateway = gateway(service.address, OBSERVE).await;
    order_with(&gateway, KEY, "{}").await;
    order_with(&gateway, KEY, "{}").await;
    sees(&gateway, &[("first", 1), ("replay", 1), ("ran-again", 1)]).await;

    let route = only_route(&gateway).await;

    let is_replay = |it: &&SeenView| it.seen == "replay";
    let replay = route.verdicts.iter().find(is_replay).unwrap();
    let hint = replay.examples[0].key.as_deref().unwrap();
    assert!(
        hint.starts_with(&KEY[..8]) && !hint.contains(&KEY[..12]),
        "{hint}"
    );
    let text = serde_json::to_string(&view(&gateway).await).unwrap();
    assert!(!text.contains(KEY));
}

#[tokio::test]
async fn a_body_over_the_bound_streams_through_and_is_counted() {
    let service = Service::start().await;
    let more = format!("{OBSERVE}[rules]\nrequest_bytes_max = 1024\nresponse_bytes_max = 1024\n");
    let gateway = gateway(service.address, &more).await;
    let large = "x".repeat(300_000);

    let request = client()
        .post(url(&gateway, "/echo"))
        .header("idempotency-key", KEY);
    let echoed = request.body(large.clone()).send().await.unwrap();

    assert_eq!(echoed.text().await.unwrap(), large);
    sees(&gateway, &[("request-too-large", 1)]).await;
}

#[tokio::test]
async fn a_keyed_upload_and_its_answer_are_streamed() {
    let (send, body) = stream();
    let echo = axum::Router::new().fallback(async |request: axum::extract::Request| {
        axum::response::Response::new(request.into_body())
    });
    let address = serving(echo).await;
    let gateway = gateway(address, OBSERVE).await;
    let body = reqwest::Body::wrap_stream(body.into_data_stream());
    let request = client()
        .post(url(&gateway, "/echo"))
        .header("idempotency-key", KEY);

    send.send(Bytes::from_static(b"first")).unwrap();
    let mut answer = request.body(body).send().await.unwrap();
    // The first bytes come back before the upload has ended: nothing waits for the whole of either.
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "first");
    send.send(Bytes::from_static(b"second")).unwrap();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "second");
    drop(send);

    assert_eq!(answer.chunk().await.unwrap(), None);
    sees(&gateway, &[("first", 1)]).await;
}

#[tokio::test]
async fn answers_that_are_too_large_to_store_and_errors_decide_what_a_repeat_would_be() {
    let app = axum::Router::new()
        .route("/large", axum::routing::post(async || "x".repeat(5_000)))
        .route(
            "/failing",
            axum::routing::post(async || StatusCode::SERVICE_UNAVAILABLE),
        );
    let address = serving(app).await;
    let more = format!(
        "{OBSERVE}[rules]\nresponse_bytes_max = 1024\non_lapse = \"rerun\"\n\
         [rules.stored]\nfrom = 200\nbelow = 300\n"
    );
    let gateway = gateway(address, &more).await;

    for _ in 0..2 {
        assert_eq!(post(&gateway, "/large", KEY, "").await, StatusCode::OK);
        let failing = post(
            &gateway,
            "/failing",
            "9b2f1c1e-6a44-4d0e-8f1e-0a8f7d3b5c21",
            "",
        )
        .await;
        assert_eq!(failing, StatusCode::SERVICE_UNAVAILABLE);
    }

    let expected = [
        ("first", 2),
        ("answer-too-large", 1),
        ("response-too-large", 1),
        ("ran-again", 1),
        ("rerun", 1),
    ];
    sees(&gateway, &expected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_refused_while_the_store_is_down() {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    let service = Service::start().await;
    let store = format!("{OBSERVE}store = \"{}\"\n", redis.url());
    let gateway = started(service.address, &store).await;
    redis.kill().unwrap();

    for number in 0..20 {
        let answer = order_with(&gateway, KEY, "{}").await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        assert_eq!(
            answer.text().await.unwrap(),
            format!("order {}", number + 1)
        );
    }

    sees(&gateway, &[("first", 1), ("replay", 19), ("ran-again", 19)]).await;
    let ready = format!("http://{}/readyz", gateway.admin_address());
    assert_eq!(
        client().get(ready).send().await.unwrap().status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn observing_stores_nothing_and_enforcing_starts_with_new_keys() {
    let service = Service::start().await;
    let gateway = gateway(service.address, OBSERVE).await;
    order_with(&gateway, KEY, "{\"n\":1}").await;
    let stats = format!("http://{}/api/v1/stats", gateway.admin_address());
    let stats = client()
        .get(stats)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats["records"], 0);

    gateway.reload(&settings(service.address, "")).unwrap();
    // Another payload than the observed one: if anything of it were known, this would be refused.
    let mut texts = Vec::new();
    for _ in 0..2 {
        let answer = order_with(&gateway, KEY, "{\"n\":2}").await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        texts.push(answer.text().await.unwrap());
    }
    assert_eq!(texts, ["order 2", "order 2"]);

    gateway.reload(&settings(service.address, OBSERVE)).unwrap();
    let observed = order_with(&gateway, KEY, "{\"n\":2}").await;
    assert_eq!(observed.text().await.unwrap(), "order 3");
    gateway.reload(&settings(service.address, "")).unwrap();
    let enforced = order_with(&gateway, KEY, "{\"n\":2}").await;

    assert_eq!(enforced.headers()["idempotent-replayed"], "true");
    assert_eq!(enforced.text().await.unwrap(), "order 2");
}

#[tokio::test]
async fn a_route_is_observed_while_the_rest_is_enforced() {
    let service = Service::start().await;
    let more = "[[route]]\nmatch = \"POST /orders\"\nmode = \"observe\"\n";
    let gateway = gateway(service.address, more).await;
    for _ in 0..2 {
        order_with(&gateway, KEY, "{}").await;
        post(&gateway, "/echo", KEY, "x").await;
    }

    assert_eq!(service.work.runs(), 2);
    let route = only_route(&gateway).await;
    assert_eq!((route.route.as_str(), route.requests), ("POST /orders", 2));
    let enforced = "[[route]]\nmatch = \"POST /orders\"\n";
    gateway
        .reload(&settings(service.address, enforced))
        .unwrap();
    let route = only_route(&gateway).await;
    assert!(!route.observed, "{route:?}");
    assert_eq!(route.requests, 2);
}

#[tokio::test]
async fn a_path_that_servers_read_differently_passes_where_nothing_is_enforced() {
    let (address, runs) = mirror().await;
    let routes = "[[route]]\nmatch = \"POST /a/b\"\n[[route]]\nmatch = \"POST /a/{rest}\"\n";
    let path = "POST /a%2Fb HTTP/1.1\r\ncontent-length: 0\r\n";
    let enforcing = gateway(address, routes).await;
    assert!(ask(&enforcing, path).await.starts_with("HTTP/1.1 400"));
    assert_eq!(runs.load(Ordering::SeqCst), 0);

    let observing = gateway(address, &format!("{OBSERVE}{routes}")).await;
    let answer = ask(&observing, path).await;

    assert!(answer.ends_with("got /a%2Fb"), "{answer}");
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_leaves_no_key_running() {
    let service = Service::start().await;
    let gateway = gateway(service.address, OBSERVE).await;
    let head = format!(
        "POST /slow HTTP/1.1\r\nhost: {}\r\nidempotency-key: {KEY}\r\ncontent-length: 2\r\n\r\n{{}}",
        gateway.address()
    );
    let mut left = tokio::net::TcpStream::connect(gateway.address())
        .await
        .unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut left, head.as_bytes())
        .await
        .unwrap();
    eventually(|| service.work.runs() == 1).await;
    drop(left);

    // Enforcing would have let it run to its end, so that a repeat gets its answer.
    let work = Arc::clone(&service.work);
    let pulse = tokio::spawn(async move {
        loop {
            work.gate.notify_one();
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    let mut is_replay = false;
    for _ in 0..1000 {
        post(&gateway, "/slow", KEY, "{}").await;
        if counts(&gateway).await.contains_key("replay") {
            is_replay = true;
            break;
        }
    }
    pulse.abort();
    assert!(is_replay, "{:?}", counts(&gateway).await);
}

#[tokio::test]
async fn a_request_that_breaks_off_is_no_first_request() {
    let service = Service::start().await;
    let gateway = gateway(service.address, OBSERVE).await;
    let head = format!(
        "POST /echo HTTP/1.1\r\nhost: a\r\nidempotency-key: {KEY}\r\ntransfer-encoding: chunked\r\n\
         connection: close\r\n\r\nzz\r\n"
    );
    heard(&gateway, &head).await;
    let mut seen = BTreeMap::new();
    for _ in 0..1000 {
        seen = counts(&gateway).await;
        if !seen.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }

    assert!(!seen.contains_key("first"), "{seen:?}");
    assert_eq!(seen.values().sum::<u64>(), 1, "{seen:?}");
}

#[tokio::test]
async fn an_upstream_that_is_away_leaves_nothing_that_ran() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let away = listener.local_addr().unwrap();
    drop(listener);
    let gateway = gateway(away, OBSERVE).await;

    for _ in 0..2 {
        assert!(post(&gateway, "/orders", KEY, "").await.is_server_error());
    }

    sees(&gateway, &[("first", 1), ("rerun", 1)]).await;
}

//! Web pages are kept away from the operators' side, whatever they make a browser send.

use onlyonce_gateway::Gateway;
use serde_json::Value;

use crate::support::{Service, client, gateway, order_with};

const KEY: &str = "a-key-that-is-long-enough";

fn url(gateway: &Gateway, path: &str) -> String {
    format!("http://{}{path}", gateway.admin_address())
}

async fn ask(
    gateway: &Gateway,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> (u16, Value) {
    let mut request = client().request(method.parse().unwrap(), url(gateway, path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let body = serde_json::from_str(&answer.text().await.unwrap());
    (status, body.unwrap_or_default())
}

async fn slot(gateway: &Gateway) -> String {
    let (_, page) = ask(gateway, "GET", "/api/v1/records", &[]).await;
    page["records"][0]["slot"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_page_whose_name_was_pointed_here_reads_and_forgets_nothing() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    order_with(&gateway, KEY, "{}").await;
    let slot = slot(&gateway).await;
    let port = gateway.admin_address().port();
    let hosts = ["rebound.example", "0.0.0.0", "127.0.0.1.rebound.example"];

    for host in hosts {
        let host = format!("{host}:{port}");
        for (method, path) in [
            ("GET", "/api/v1/records".to_owned()),
            ("GET", format!("/api/v1/records/{slot}?body=true")),
            ("DELETE", format!("/api/v1/records/{slot}")),
            ("POST", "/api/v1/sweep".to_owned()),
            ("GET", "/api/v1/events".to_owned()),
            ("GET", "/metrics".to_owned()),
            ("GET", "/nothing".to_owned()),
        ] {
            let (status, told) = ask(&gateway, method, &path, &[("host", &host)]).await;

            assert_eq!(status, 421, "{method} {path}: {told}");
            assert!(told["detail"].as_str().unwrap().contains("admin_hosts"));
            assert!(told.get("records").is_none());
        }
    }
    let again = order_with(&gateway, KEY, "{}").await;
    assert_eq!(again.headers()["idempotent-replayed"], "true");
}

#[tokio::test]
async fn operators_come_in_by_loopback_names_and_by_those_in_the_settings() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "admin_hosts = [\"Gateway.Internal\"]").await;
    let port = gateway.admin_address().port();

    for host in ["localhost", "127.0.0.1", "[::1]", "gateway.internal"] {
        let host = format!("{host}:{port}");
        let (status, _) = ask(&gateway, "GET", "/api/v1/stats", &[("host", &host)]).await;
        assert_eq!(status, 200, "{host}");
    }
    let (status, _) = ask(&gateway, "GET", "/api/v1/stats", &[("host", "other")]).await;
    assert_eq!(status, 421);
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    order_with(&gateway, KEY, "{}").await;
    let slot = slot(&gateway).await;
    let record = format!("/api/v1/records/{slot}");
    let marks = [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://localhost:3000"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ];

    for mark in marks {
        for (method, path) in [
            ("POST", "/api/v1/sweep".to_owned()),
            ("DELETE", record.clone()),
            ("POST", format!("{record}/extend")),
        ] {
            let (status, told) = ask(&gateway, method, &path, &[mark]).await;
            assert_eq!(status, 403, "{mark:?} {method} {path}: {told}");
        }
    }
    let (status, _) = ask(&gateway, "GET", &record, &[]).await;
    assert_eq!(status, 200, "the record is still there");
    let own = url(&gateway, "");
    let (status, _) = ask(&gateway, "POST", "/api/v1/sweep", &[("origin", &own)]).await;
    assert_eq!(status, 200, "a page of the same origin may");
}

#[tokio::test]
async fn what_a_page_can_send_without_asking_is_no_json_and_changes_nothing() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;

    for kind in [
        "text/plain",
        "text/plain; x=application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ] {
        let request = client().post(url(&gateway, "/api/v1/sweep"));
        let request = request.header("content-type", kind).body("{}");
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 415, "{kind}");
    }
    let untyped = client().post(url(&gateway, "/api/v1/sweep")).body("{}");
    assert_eq!(untyped.send().await.unwrap().status(), 415);
    let (status, _) = ask(&gateway, "POST", "/api/v1/sweep", &[]).await;
    assert_eq!(status, 200, "without a body there is nothing to be a form");
}

/// Who has the token is no page: it may use any name, unless the settings list them.
#[tokio::test]
async fn with_a_token_any_host_is_asked_for_unless_the_settings_list_them() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "a-token-nobody-guesses\n").unwrap();
    let token = format!("admin_token_file = {:?}\n", file.display().to_string());
    let bearer = ("authorization", "Bearer a-token-nobody-guesses");
    let host = ("host", "gateway.example");

    let open = gateway(service.address, &token).await;
    let (status, _) = ask(&open, "GET", "/api/v1/stats", &[bearer, host]).await;
    assert_eq!(status, 200);
    let (status, _) = ask(&open, "GET", "/api/v1/stats", &[host]).await;
    assert_eq!(status, 401);

    let listed = gateway(service.address, &format!("{token}admin_hosts = [\"a\"]")).await;
    let (status, _) = ask(&listed, "GET", "/api/v1/stats", &[bearer, host]).await;
    assert_eq!(status, 421);
}

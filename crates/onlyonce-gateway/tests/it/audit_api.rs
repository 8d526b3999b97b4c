//! The audit trail over the admin API: read, and an actor taken out, by operators alone.

use std::path::Path;

use onlyonce_gateway::Gateway;
use serde_json::{Value, json};

use crate::support::{Service, client, eventually, gateway};

/// Callers are named by a header that something in front sets.
fn audited(folder: &Path) -> String {
    let path = folder.join("audit.jsonl");
    format!("scope = [\"user-header:x-user\"]\n[audit]\npath = {path:?}\n")
}

async fn order(gateway: &Gateway, user: &str, key: &str) {
    let url = format!("http://{}/orders", gateway.address());
    let request = client().post(url).header("idempotency-key", key);
    let answer = request.header("x-user", user).body("{}").send().await;
    assert_eq!(answer.unwrap().status(), 201);
}

async fn ask(gateway: &Gateway, request: (&str, &str), headers: &[(&str, &str)]) -> (u16, Value) {
    let (method, path) = request;
    let url = format!("http://{}{path}", gateway.admin_address());
    let mut request = client().request(method.parse().unwrap(), url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if method == "POST" {
        let body = json!({"actor": "ann", "by": "mia", "reason": "asked to be forgotten"});
        request = request.body(body.to_string());
    }
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let body = serde_json::from_str(&answer.text().await.unwrap());
    (status, body.unwrap_or_default())
}

const TAIL: (&str, &str) = ("GET", "/api/v1/audit");
const PURGE: (&str, &str) = ("POST", "/api/v1/audit/purge");
const JSON: (&str, &str) = ("content-type", "application/json");

async fn entries(gateway: &Gateway, path: &str) -> Vec<Value> {
    let (status, page) = ask(gateway, ("GET", path), &[]).await;
    assert_eq!((status, &page["unread"]), (200, &json!(0)), "{page}");
    page["entries"].as_array().unwrap().clone()
}

/// Waits until this many entries are written; gives the file.
async fn written(folder: &Path, count: usize) -> String {
    let read = || std::fs::read_to_string(folder.join("audit.jsonl")).unwrap();
    eventually(|| read().lines().count() == count).await;
    read()
}

#[tokio::test]
async fn a_user_header_names_the_actor_whose_entries_are_read_and_purged() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(service.address, &audited(folder.path())).await;
    for number in 0..3 {
        order(&gateway, "ann", &format!("ann-{number}")).await;
        order(&gateway, "bob", &format!("bob-{number}")).await;
    }
    written(folder.path(), 6).await;

    let all = entries(&gateway, "/api/v1/audit").await;
    let of_ann = entries(&gateway, "/api/v1/audit?actor=ann").await;
    let newest = entries(&gateway, "/api/v1/audit?limit=1").await;
    let (status, purged) = ask(&gateway, PURGE, &[JSON]).await;
    order(&gateway, "bob", "bob-again").await;

    assert_eq!((all.len(), of_ann.len()), (6, 3));
    assert!(of_ann.iter().all(|it| it["actor"]["id"] == "ann"));
    assert_eq!(newest, all[5..], "the newest is last");
    assert_eq!(
        (status, &purged),
        (200, &json!({"removed": 3, "kept": 3})),
        "{purged}"
    );
    let left = written(folder.path(), 5).await;
    assert!(!left.contains("\"ann\""), "{left}");
    let purge = left
        .lines()
        .find(|it| it.contains("operator.purge"))
        .unwrap();
    let purge: Value = serde_json::from_str(purge).unwrap();
    assert_eq!(purge["actor"], json!({"type": "operator", "id": "mia"}));
    assert_eq!(
        purge["metadata"],
        json!({"entries": 3, "reason": "asked to be forgotten", "via": "api"})
    );
}

#[tokio::test]
async fn only_operators_reach_the_trail() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let token = "0123456789abcdef-token";
    let file = folder.path().join("token");
    std::fs::write(&file, token).unwrap();
    let settings = format!("admin_token_file = {file:?}\n{}", audited(folder.path()));
    let secured = gateway(service.address, &settings).await;
    let open = tempfile::tempdir().unwrap();
    let open = gateway(service.address, &audited(open.path())).await;
    let bearer = format!("Bearer {token}");

    for asked in [TAIL, PURGE] {
        let (without, _) = ask(&secured, asked, &[JSON]).await;
        let (with, told) = ask(&secured, asked, &[JSON, ("authorization", &bearer)]).await;
        let (rebound, _) = ask(&open, asked, &[JSON, ("host", "rebound.example")]).await;
        assert_eq!((without, with, rebound), (401, 200, 421), "{told}");
    }
    let page = ("origin", "http://page.example");
    let (foreign, _) = ask(&open, PURGE, &[JSON, page]).await;
    let (as_text, _) = ask(&open, PURGE, &[("content-type", "text/plain")]).await;
    assert_eq!((foreign, as_text), (403, 415));
}

#[tokio::test]
async fn a_gateway_without_a_trail_says_how_to_keep_one() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;

    for asked in [TAIL, PURGE] {
        let (status, told) = ask(&gateway, asked, &[JSON]).await;
        assert_eq!(status, 404);
        assert!(
            told["detail"].as_str().unwrap().contains("[audit]"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn reading_a_body_and_sweeping_are_in_the_trail_with_who_and_why() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(service.address, &audited(folder.path())).await;
    order(&gateway, "ann", "ann-1").await;
    let (_, page) = ask(&gateway, ("GET", "/api/v1/records"), &[]).await;
    let slot = page["records"][0]["slot"].as_str().unwrap();
    let record = format!("/api/v1/records/{slot}");
    let with_body = format!("{record}?body=true&by=mia");
    let page = format!("/records/{slot}?body=true");

    for path in [&record, &with_body, &page] {
        let (status, _) = ask(&gateway, ("GET", path), &[]).await;
        assert_eq!(status, 200, "{path}");
    }
    let sweep = ("POST", "/api/v1/sweep?by=mia&reason=the%20disk%20is%20full");
    let (status, _) = ask(&gateway, sweep, &[JSON]).await;
    assert_eq!(status, 200);

    let trail = written(folder.path(), 4).await;
    let deeds: Vec<Value> = trail
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|it: &Value| it["eventType"].as_str().unwrap().contains(".operator."))
        .collect();
    let told = |it: &Value| {
        let (event, by) = (&it["eventType"], &it["actor"]["id"]);
        format!("{event} {by} {}", it["metadata"]["via"])
    };
    assert_eq!(
        deeds.iter().map(told).collect::<Vec<_>>(),
        [
            "\"idempotency.operator.read\" \"mia\" \"api\"",
            "\"idempotency.operator.read\" \"unnamed\" \"console\"",
            "\"idempotency.operator.sweep\" \"mia\" \"api\"",
        ]
    );
    assert_eq!(deeds[0]["metadata"]["slot"], *slot);
    assert_eq!(deeds[2]["metadata"]["reason"], "the disk is full");
    let metrics = format!("http://{}/metrics", gateway.admin_address());
    let metrics = client()
        .get(metrics)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(metrics.contains("action=\"read\"} 2"), "{metrics}");
}

//! What operators can see and do.

use std::sync::Arc;

use futures_util::StreamExt as _;
use onlyonce_core::{Execution, MemoryStore, OnLapse, Policy};
use onlyonce_gateway::Gateway;
use onlyonce_observe::Setup;
use serde_json::{Value, json};

use crate::support::{Service, client, gateway, order_with, settings};

fn url(gateway: &Gateway, path: &str) -> String {
    format!("http://{}{path}", gateway.admin_address())
}

async fn read(gateway: &Gateway, path: &str) -> Value {
    let answer = client().get(url(gateway, path)).send().await.unwrap();
    serde_json::from_str(&answer.text().await.unwrap()).unwrap()
}

async fn send(gateway: &Gateway, path: &str, body: Value) -> (u16, Value) {
    let request = client().post(url(gateway, path));
    let request = request.header("content-type", "application/json");
    let answer = request.body(body.to_string()).send().await.unwrap();
    let status = answer.status().as_u16();
    let body = serde_json::from_str(&answer.text().await.unwrap());
    (status, body.unwrap_or_default())
}

async fn only_slot(gateway: &Gateway) -> String {
    let page = read(gateway, "/api/v1/records").await;
    assert_eq!(page["records"].as_array().unwrap().len(), 1);
    page["records"][0]["slot"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn health_needs_only_the_process_and_readiness_the_store() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;

    for path in ["/healthz", "/readyz"] {
        let answer = client().get(url(&gateway, path)).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn the_records_of_a_key_are_found_by_it() {
    const KEY: &str = "a-key-that-is-long-enough";
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    order_with(&gateway, KEY, "{}").await;
    order_with(&gateway, "another-key-that-is-long-enough", "{}").await;

    let mut found = Vec::new();
    for key in [
        KEY,
        "\"a-key-that-is-long-enough\"",
        "a-key-nobody-has-sent-so-far",
    ] {
        let (status, page) = send(&gateway, "/api/v1/records/find", json!({"key": key})).await;
        assert_eq!(status, 200, "{page}");
        found.push(page["records"].as_array().unwrap().clone());
    }

    assert_eq!(found[0].len(), 1);
    assert_eq!(found[0], found[1], "quoted or bare, it is the same key");
    assert_eq!(found[2], Vec::<Value>::new());
    for wrong in [
        json!({}),
        json!({"key": ""}),
        json!({"key": KEY, "scope": "x"}),
    ] {
        let (status, _) = send(&gateway, "/api/v1/records/find", wrong).await;
        assert_eq!(status, 400);
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_told_as_a_problem() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let slot = "0".repeat(64);
    let record = format!("/api/v1/records/{slot}");
    let asked = [
        ("GET", "/api/v1/records?stat=done".to_owned(), 400),
        ("GET", format!("{record}?body=maybe"), 400),
        ("GET", "/api/v1/records/%ff".to_owned(), 400),
        ("GET", "/api/v1/top?limit=-1".to_owned(), 400),
        ("GET", "/api/v1/events?evnt=refused".to_owned(), 400),
        ("POST", format!("{record}/extend"), 400),
        ("POST", format!("{record}/resolve"), 400),
        ("PATCH", "/api/v1/records".to_owned(), 405),
        ("GET", "/nothing".to_owned(), 404),
    ];

    for (method, path, status) in asked {
        let request = client().request(method.parse().unwrap(), url(&gateway, &path));
        let answer = request.send().await.unwrap();

        assert_eq!(answer.status(), status, "{method} {path}");
        let kind = answer.headers()["content-type"].clone();
        assert_eq!(kind, "application/problem+json", "{method} {path}");
        let problem: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert_eq!(problem["status"], status, "{method} {path}");
    }
}

#[tokio::test]
async fn a_record_is_listed_shown_and_forgotten() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    order_with(&gateway, "a-key-that-is-long-enough", "{}").await;
    let slot = only_slot(&gateway).await;

    let shown = read(&gateway, &format!("/api/v1/records/{slot}?body=true")).await;
    assert_eq!(shown["state"], "done");
    assert_eq!(shown["response"]["status"], 201);
    assert_eq!(shown["response"]["body"], "order 1");
    assert!(!shown.to_string().contains("a-key-that-is-long-enough"));
    let brief = read(&gateway, &format!("/api/v1/records/{slot}")).await;
    assert_eq!(brief["response"]["body"], Value::Null);

    let request = client().delete(url(&gateway, &format!("/api/v1/records/{slot}")));
    assert_eq!(request.send().await.unwrap().status(), 204);
    let again = order_with(&gateway, "a-key-that-is-long-enough", "{}").await;
    assert_eq!(again.text().await.unwrap(), "order 2");
}

#[tokio::test]
async fn a_page_says_where_the_next_one_starts() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    for n in 0..5 {
        order_with(&gateway, &format!("key-{n}"), "{}").await;
    }

    let mut slots = Vec::new();
    let mut path = "/api/v1/records?limit=2&state=done".to_owned();
    loop {
        let page = read(&gateway, &path).await;
        for record in page["records"].as_array().unwrap() {
            slots.push(record["slot"].as_str().unwrap().to_owned());
        }
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/v1/records?limit=2&state=done&after={next}");
    }

    assert_eq!(slots.len(), 5);
    assert!(slots.is_sorted());
    let none = read(&gateway, "/api/v1/records?state=failed").await;
    assert_eq!(none["records"], json!([]));
}

#[tokio::test]
async fn a_record_can_be_kept_longer() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "ttl = \"1h\"").await;
    order_with(&gateway, "key", "{}").await;
    let slot = only_slot(&gateway).await;

    let extend = json!({"seconds": 7200});
    let (status, record) = send(&gateway, &format!("/api/v1/records/{slot}/extend"), extend).await;

    assert_eq!(status, 200);
    assert!(record["keep_left_seconds"].as_u64().unwrap() > 7200);
}

#[tokio::test]
async fn only_an_unknown_outcome_can_be_resolved() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    order_with(&gateway, "key", "{}").await;
    let slot = only_slot(&gateway).await;
    let answer = json!({"status": 200, "body": "by hand"});

    let path = format!("/api/v1/records/{slot}/resolve");
    let (status, problem) = send(&gateway, &path, answer).await;

    assert_eq!(status, 409);
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("unknown or lapsed")
    );
}

#[tokio::test]
async fn what_is_forgotten_in_doubt_takes_its_steps_with_it() {
    let setup = Setup::new("memory", Arc::new(MemoryStore::new()));
    let observed = setup.open(|engine| engine).await.unwrap();
    let job = observed.engine.job("ride");
    let on_lapse = OnLapse::Hold;
    let rules = Policy {
        on_lapse,
        ..job.rules().clone()
    };
    let ride = async |execution: Execution| {
        let reserve = execution.step("reserve", &7);
        reserve.run(async || Ok::<_, String>(7)).await?;
        Err::<u8, _>("no mail today".to_owned())
    };
    let ran = job.policy(rules).run_with("ride-7", &7, ride).await;
    ran.unwrap_err();
    let service = Service::start().await;
    let config = settings(service.address, "");
    let gateway = Gateway::start_on(&config, observed).await.unwrap();

    let asked = json!({"outcome": "forget", "reason": "it never set off"});
    let (status, settled) = send(&gateway, "/api/v1/records/settle", asked).await;

    assert_eq!((status, &settled["settled"]), (200, &1.into()));
    let page = read(&gateway, "/api/v1/records").await;
    assert_eq!(page["records"], json!([]));
}

#[tokio::test]
async fn what_is_asked_wrongly_is_told() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;

    for (path, right) in [
        ("/api/v1/records?state=open", "pending, lapsed"),
        ("/api/v1/records?sate=done", "sate"),
        ("/api/v1/records?after=xyz", "64 hex digits"),
        ("/api/v1/records/xyz", "64 hex digits"),
        ("/api/v2", "openapi.json"),
    ] {
        let told = read(&gateway, path).await.to_string();
        assert!(told.contains(right), "{path}: {told}");
    }
}

#[tokio::test]
async fn a_watcher_sees_what_happens() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    let answer = client()
        .get(url(&gateway, "/api/v1/events"))
        .send()
        .await
        .unwrap();
    let mut events = answer.bytes_stream();

    order_with(&gateway, "key", "{}").await;

    let mut seen = String::new();
    while !seen.contains("\"stored\"") {
        let bytes = events.next().await.unwrap().unwrap();
        seen.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert!(seen.contains("\"event\":\"claimed\""), "{seen}");
}

#[tokio::test]
async fn with_a_token_only_who_has_it_gets_in() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "a-token-nobody-guesses\n").unwrap();
    let setting = format!("admin_token_file = {:?}", file.display().to_string());
    let gateway = gateway(service.address, &setting).await;

    let get = |token: Option<&str>| {
        let mut request = client().get(url(&gateway, "/api/v1/stats"));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.send()
    };

    assert_eq!(get(None).await.unwrap().status(), 401);
    assert_eq!(
        get(Some("a-token-somebody-guessed"))
            .await
            .unwrap()
            .status(),
        401
    );
    assert_eq!(
        get(Some("a-token-nobody-guesses")).await.unwrap().status(),
        200
    );
    let health = client()
        .get(url(&gateway, "/healthz"))
        .send()
        .await
        .unwrap();
    assert_eq!(health.status(), 200);
}

/// Every path of the document answers something else than "nothing at this path".
#[tokio::test]
async fn the_document_describes_what_is_there() {
    let service = Service::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let gateway = gateway(service.address, &format!("[audit]\npath = {path:?}\n")).await;

    let document = read(&gateway, "/api/v1/openapi.json").await;

    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() >= 8);
    for (path, methods) in paths {
        let path = path.replace("{slot}", &"0".repeat(64));
        for method in methods.as_object().unwrap().keys() {
            let method = method.to_uppercase().parse().unwrap();
            let answer = client()
                .request(method, url(&gateway, &path))
                .send()
                .await
                .unwrap();
            let status = answer.status();
            assert_ne!(status, 405, "{path}");
            if status == 404 {
                assert!(
                    answer.text().await.unwrap().contains("no live record"),
                    "{path}"
                );
            }
        }
    }
    let named = document.to_string();
    for shape in named.split("#/components/schemas/").skip(1) {
        let name = shape.split('"').next().unwrap();
        assert!(!document["components"]["schemas"][name].is_null(), "{name}");
    }
}

//! Web pages of elsewhere get nothing from the services, whatever they make a browser send.

use serde_json::json;

use crate::support::{Ask, Bed};

const SUBMIT: &str = "/api/intakes/vendor-onboarding/submit";

fn initialize(bed: &Bed) -> Ask {
    let client = json!({"name": "page", "version": "1"});
    let params = json!({
        "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": client,
    });
    bed.post("/mcp")
        .header("Accept", "application/json, text/event-stream")
        .json(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}))
}

fn submit(bed: &Bed) -> Ask {
    bed.post(SUBMIT)
        .key("abc123")
        .json(json!({"fields": {"companyName": "Acme"}}))
}

#[tokio::test]
async fn a_page_whose_name_was_pointed_here_reaches_neither_the_tools_nor_the_services() {
    let bed = Bed::new().await;
    for host in ["rebound.example", "0.0.0.0:80", "localhost.rebound.example"] {
        for ask in [
            initialize(&bed),
            submit(&bed),
            bed.getting("/demo/audit"),
            bed.getting("/healthz"),
        ] {
            let answer = ask.host(host).send().await;

            assert_eq!(answer.status, 421, "{host}: {answer:?}");
            assert!(answer.text.contains("--host"), "{answer:?}");
        }
    }
    assert_eq!(submit(&bed).send().await.status, 201, "nothing ran before");
}

#[tokio::test]
async fn a_page_of_another_origin_calls_no_tool_and_submits_nothing() {
    let bed = Bed::new().await;
    for (name, value) in [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
    ] {
        for ask in [initialize(&bed), submit(&bed)] {
            let answer = ask.header(name, value).send().await;

            assert_eq!(answer.status, 403, "{name}: {value}: {answer:?}");
        }
    }
    assert_eq!(submit(&bed).send().await.status, 201, "nothing ran before");
}

#[tokio::test]
async fn the_services_are_known_by_loopback_names_and_by_those_they_were_given() {
    let bed = Bed::with(|options| options.hosts.push("Shop.example".to_owned())).await;
    let own = bed.url.replace("127.0.0.1", "localhost");
    let host = own.trim_start_matches("http://");

    for host in [host, "shop.example", "[::1]:80"] {
        let answer = bed.getting("/healthz").host(host).send().await;
        assert_eq!(answer.status, 200, "{host}");
    }
    let from_own_page = initialize(&bed).host(host).header("Origin", &own);
    assert_eq!(from_own_page.send().await.status, 200);
}

#[tokio::test]
async fn nobody_but_its_owner_reads_the_database() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let options = onlyonce_demo::Options::new(crate::support::database(&folder));
    let bed = Bed::start(&options, None).await;

    assert_eq!(submit(&bed).send().await.status, 201);

    let files = std::fs::read_dir(folder.path()).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap()).collect();
    assert!(
        files.len() >= 3,
        "a database, its WAL and its SHM: {files:?}"
    );
    for file in files {
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.path().display());
    }
}

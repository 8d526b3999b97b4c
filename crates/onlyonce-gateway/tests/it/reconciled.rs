//! PROTOCOL 34: an operation whose outcome is unknown is looked up at the upstream before it runs again.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use onlyonce_gateway::Gateway;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::support::{client, gateway, started};

const LEDGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/reconciled/ledger.py");

/// A ledger as a process of its own; it ends with this value.
struct Ledger {
    child: Child,
    port: u16,
}

impl Ledger {
    async fn start(file: &Path, port: u16) -> Self {
        let mut child = Command::new("python3")
            .arg(LEDGER)
            .arg(file)
            .arg(port.to_string())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.next_line().await.unwrap();
        let port = said.expect("it says where it listens").parse().unwrap();
        Self { child, port }
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Waits until it was killed, and starts it again in its place.
    async fn again(mut self, file: &Path) -> Self {
        assert!(!self.child.wait().await.unwrap().success());
        Self::start(file, self.port).await
    }
}

fn charges(file: &Path) -> usize {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().count()
}

const ROUTE: &str = "[[route]]\nmatch = \"POST /charges\"\n\
                     reconcile = { ask = \"GET /charges/{operation}\", status = 201, after = \"0s\" }\n";

async fn charge(gateway: &Gateway, key: &str, body: &str) -> reqwest::Response {
    client()
        .post(format!("http://{}/charges", gateway.address()))
        .header("host", "shop.example")
        .header("authorization", "Bearer caller")
        .header("idempotency-key", key)
        .header("content-type", "application/json")
        .body(body.to_owned())
        .send()
        .await
        .unwrap()
}

/// Retries as a client does, until it is told something final.
async fn settled(gateway: &Gateway, key: &str, body: &str) -> (u16, String) {
    for _ in 0..200 {
        let answer = charge(gateway, key, body).await;
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        match status {
            409 | 502 | 503 => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            _ => return (status, text),
        }
    }
    panic!("it was not settled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_killed_before_or_after_its_effect_charges_once_through_any_gateway() {
    for crash in ["before", "after"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("charges");
        let ledger = Ledger::start(&file, 0).await;
        let store = format!("store = \"sqlite:{}/a.db\"\n", folder.path().display());
        let settings = format!("{store}{ROUTE}");
        let first = started(ledger.address(), &settings).await;
        let second = started(ledger.address(), &settings).await;
        let body = format!("{{\"amount\":7,\"crash\":\"{crash}\"}}");

        let lost = charge(&first, "key", &body).await;
        assert_eq!(lost.status(), 502, "{crash}");
        let problem: serde_json::Value = lost.json().await.unwrap();
        assert_eq!(problem["retryable"], true);
        // The upstream is down: nothing can be told, and nothing runs.
        assert_eq!(charge(&second, "key", &body).await.status(), 409, "{crash}");
        let ledger = ledger.again(&file).await;

        let (status, text) = settled(&second, "key", &body).await;
        assert_eq!(status, 201, "{crash}: {text}");
        let (_, again) = settled(&first, "key", &body).await;
        assert_eq!(again, text);
        assert_eq!(charges(&file), 1, "{crash}");
        drop(ledger);
    }
}

/// What arrived at a service, and what it says to looks.
#[derive(Default)]
struct Said {
    looks: Vec<(String, HeaderMap)>,
    runs: usize,
    answer: (u16, &'static str),
}

type Shared = Arc<Mutex<Said>>;

/// A service that fails at every first attempt after its effect, and answers looks as it is told.
async fn service(answer: (u16, &'static str)) -> (SocketAddr, Shared) {
    let said = Shared::default();
    said.lock().unwrap().answer = answer;
    let app = Router::new()
        .fallback(respond)
        .with_state(Arc::clone(&said));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, said)
}

async fn respond(State(said): State<Shared>, request: Request) -> Response {
    let mut said = said.lock().unwrap();
    if request.method() != "POST" {
        let target = request.uri().to_string();
        said.looks.push((target, request.headers().clone()));
        let (status, body) = said.answer;
        let json = [
            ("content-type", "application/json"),
            ("set-cookie", "a=b"),
            ("etag", "\"all of it\""),
            ("content-digest", "sha-256=:YWxsIG9mIGl0:"),
        ];
        return (StatusCode::from_u16(status).unwrap(), json, body).into_response();
    }
    said.runs += 1;
    match said.runs {
        1 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        runs => (StatusCode::CREATED, format!("run {runs}")).into_response(),
    }
}

fn route(reconcile: &str) -> String {
    format!(
        "[[route]]\nmatch = \"POST /charges\"\nreconcile = {reconcile}\n\
         rules.stored.below = 500\n"
    )
}

const ASK: &str = "\"GET /charges/{operation}\"";

#[tokio::test]
async fn only_a_clear_yes_and_a_clear_no_count() {
    let listed = "{ ask = \"GET /charges?of={operation}\", answer = \"/data/0\", status = 201 }";
    for (reconcile, answer, wanted, runs) in [
        (ASK, (200, "{\"id\":1}"), Some((200, "{\"id\":1}")), 1),
        (ASK, (404, ""), Some((201, "run 2")), 2),
        (ASK, (410, ""), Some((201, "run 2")), 2),
        (ASK, (202, "{}"), None, 1),
        (ASK, (206, "{}"), None, 1),
        (ASK, (302, ""), None, 1),
        (ASK, (401, ""), None, 1),
        (ASK, (429, ""), None, 1),
        (ASK, (500, ""), None, 1),
        (ASK, (503, ""), None, 1),
        (
            listed,
            (200, "{\"data\":[{\"id\":1}]}"),
            Some((201, "{\"id\":1}")),
            1,
        ),
        (listed, (200, "{\"data\":[]}"), Some((201, "run 2")), 2),
        (listed, (200, "{\"data\":[null]}"), Some((201, "run 2")), 2),
        (listed, (200, "{\"error\":\"busy\"}"), None, 1),
        (listed, (200, "{\"data\":[{\"id\":1}]"), None, 1),
        (listed, (200, "<html>"), None, 1),
    ] {
        let (address, said) = service(answer).await;
        let gateway = gateway(address, &route(reconcile)).await;
        assert_eq!(charge(&gateway, "key", "{}").await.status(), 500);

        let retry = charge(&gateway, "key", "{}").await;

        let status = retry.status().as_u16();
        assert!(!retry.headers().contains_key("set-cookie"));
        match wanted {
            Some((wanted, body)) => {
                assert_eq!(status, wanted, "{answer:?}");
                assert_eq!(retry.text().await.unwrap(), body, "{answer:?}");
                let replay = charge(&gateway, "key", "{}").await;
                assert_eq!(replay.headers()["idempotent-replayed"], "true");
                assert_eq!(replay.text().await.unwrap(), body);
            }
            None => {
                assert_eq!(status, 409, "{answer:?}");
                assert!(retry.headers().contains_key("retry-after"));
            }
        }
        let said = said.lock().unwrap();
        assert_eq!((said.runs, said.looks.len()), (runs, 1), "{answer:?}");
    }
}

#[tokio::test]
async fn a_look_carries_the_callers_credentials_and_no_key_or_the_configured_ones() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "Bearer service\n").unwrap();
    let own = format!(
        "{{ ask = \"GET /charges/{{operation}}\", authorization_file = \"{}\" }}",
        file.display()
    );
    for (reconcile, credential) in [(ASK, "Bearer caller"), (own.as_str(), "Bearer service")] {
        let (address, said) = service((200, "{}")).await;
        let gateway = gateway(address, &route(reconcile)).await;
        charge(&gateway, "key", "{}").await;

        assert_eq!(charge(&gateway, "key", "{}").await.status(), 200);

        let said = said.lock().unwrap();
        let (target, headers) = &said.looks[0];
        assert_eq!(headers["authorization"], credential);
        let id = headers["onlyonce-operation"].to_str().unwrap();
        assert_eq!(*target, format!("/charges/{id}"));
        for absent in ["idempotency-key", "content-type", "content-length"] {
            assert!(!headers.contains_key(absent), "{absent}");
        }
    }
}

/// What the gateway counts of an event.
async fn counted(gateway: &Gateway, event: &str) -> u64 {
    let page = format!("http://{}/metrics", gateway.admin_address());
    let page = client()
        .get(page)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let named = format!("event=\"{event}\"");
    let line = page.lines().find(|line| line.contains(&named));
    line.map_or(0, |line| {
        let (_, count) = line.rsplit_once(' ').unwrap();
        count.parse().unwrap()
    })
}

async fn until_counted(gateways: &[&Gateway], event: &str) {
    for _ in 0..600 {
        for gateway in gateways {
            if counted(gateway, event).await > 0 {
                return;
            }
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{event} was not counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_whose_answer_was_lost_is_settled_before_anyone_retries() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("charges");
    let audit = folder.path().join("audit.jsonl");
    let ledger = Ledger::start(&file, 0).await;
    let settings = |number: usize| {
        format!(
            "store = \"sqlite:{}/a.db\"\naudit = {{ path = \"{}.{number}\" }}\n\
             [[route]]\nmatch = \"POST /charges\"\n\
             reconcile = {{ ask = \"GET /charges/{{operation}}\", status = 201, after = \"0s\", \
             background = \"1s\" }}\n",
            folder.path().display(),
            audit.display()
        )
    };
    let first = started(ledger.address(), &settings(1)).await;
    let second = started(ledger.address(), &settings(2)).await;
    let body = "{\"amount\":7,\"crash\":\"after\"}";
    assert_eq!(charge(&first, "key", body).await.status(), 502);
    let ledger = ledger.again(&file).await;

    until_counted(&[&first, &second], "background_reconciled_happened").await;

    let retry = charge(&second, "key", body).await;
    assert_eq!(retry.status(), 201);
    assert_eq!(retry.headers()["idempotent-replayed"], "true");
    assert_eq!(charges(&file), 1);
    let mut settled = 0;
    for gateway in [&first, &second] {
        settled += counted(gateway, "background_reconciled_happened").await;
    }
    assert_eq!(settled, 1);
    first.drain().await;
    second.drain().await;
    let kept: String = (1..=2)
        .map(|number| std::fs::read_to_string(format!("{}.{number}", audit.display())).unwrap())
        .collect();
    let is_told = |line: &str| {
        line.contains("\"inBackground\":true") && line.contains("\"found\":\"happened\"")
    };
    assert_eq!(
        kept.lines().filter(|line| is_told(line)).count(),
        1,
        "{kept}"
    );
    drop(ledger);
}

#[tokio::test]
async fn the_background_asks_with_the_configured_credential_alone_and_never_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "Bearer service\n").unwrap();
    let own = format!(", authorization_file = \"{}\"", file.display());
    for (credential, more) in [(Some("Bearer service"), own.as_str()), (None, "")] {
        let (address, said) = service((404, "")).await;
        let ask = format!("{{ ask = {ASK}, background = \"1s\"{more} }}");
        let gateway = gateway(address, &route(&ask)).await;
        charge(&gateway, "key", "{}").await;

        until_counted(&[&gateway], "background_reconciled_did_not").await;

        {
            let said = said.lock().unwrap();
            let (target, headers) = &said.looks[0];
            let found = headers.get("authorization").map(|it| it.to_str().unwrap());
            assert_eq!(found, credential);
            assert!(!headers.contains_key("cookie"));
            let id = headers["onlyonce-operation"].to_str().unwrap();
            assert_eq!(*target, format!("/charges/{id}"));
            assert_eq!(said.runs, 1, "what did not happen waits for a retry");
        }
        let retry = settled(&gateway, "key", "{}").await;
        assert_eq!(retry, (201, "run 2".to_owned()));
    }
}

const VALUES: &str = "[[route]]\nmatch = \"POST /{shop}/charges\"\n\
    reconcile = \"GET /{shop}/charges/{body:id}?key={key}&note={body:/a/note}\"\n\
    rules.stored.below = 500\n";

async fn charge_in(gateway: &Gateway, shop: &str, key: &str, body: &str) -> u16 {
    let request = client()
        .post(format!("http://{}/{shop}/charges", gateway.address()))
        .header("idempotency-key", key)
        .body(body.to_owned());
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn values_are_data_and_cannot_change_what_is_asked_for() {
    let (address, said) = service((200, "{}")).await;
    let gateway = gateway(address, VALUES).await;
    let body = "{\"id\":\"a?b=c#d e\",\"a\":{\"note\":\"x&key=y/../z\"}}";

    charge_in(&gateway, "sh%20op", "k&?", body).await;
    assert_eq!(charge_in(&gateway, "sh%20op", "k&?", body).await, 200);

    let said = said.lock().unwrap();
    assert_eq!(
        said.looks[0].0,
        "/sh%20op/charges/a%3Fb%3Dc%23d%20e?key=k%26%3F&note=x%26key%3Dy%2F..%2Fz"
    );
}

#[tokio::test]
async fn a_request_that_could_not_be_looked_up_is_refused_before_it_is_sent() {
    let (address, said) = service((200, "{}")).await;
    let gateway = gateway(address, VALUES).await;

    for (number, id) in [
        "\"..\"",
        "\".\"",
        "\"\"",
        "\"../../admin\"",
        "\"a/b\"",
        "\"a\\\\b\"",
        "\"a%2fb\"",
        "\"a;b\"",
        "\"a\\u0000b\"",
        "null",
        "{}",
        "[1]",
    ]
    .iter()
    .enumerate()
    {
        let body = format!("{{\"id\":{id},\"a\":{{\"note\":1}}}}");
        let key = format!("key-{number}");
        assert_eq!(charge_in(&gateway, "shop", &key, &body).await, 422, "{id}");
    }
    let twice = "{\"id\":1,\"id\":2,\"a\":{\"note\":1}}";
    assert_eq!(charge_in(&gateway, "shop", "twice", twice).await, 422);
    assert_eq!(charge_in(&gateway, "shop", "key", "no json").await, 422);

    let said = said.lock().unwrap();
    assert_eq!((said.runs, said.looks.len()), (0, 0));
}

#[tokio::test]
async fn a_part_of_an_answer_keeps_its_digits_and_no_word_about_the_whole() {
    let (address, said) = service((200, "{\"data\":[{\"wei\":123456789012345678901.10}]}")).await;
    let listed = "{ ask = \"GET /charges?of={body:id}\", answer = \"/data/0\" }";
    let gateway = gateway(address, &route(listed)).await;
    let body = "{\"id\":12345678901234567890123}";
    charge(&gateway, "key", body).await;

    let found = charge(&gateway, "key", body).await;

    for absent in ["etag", "content-digest"] {
        assert!(!found.headers().contains_key(absent), "{absent}");
    }
    assert_eq!(
        found.text().await.unwrap(),
        "{\"wei\":123456789012345678901.10}"
    );
    let said = said.lock().unwrap();
    assert_eq!(said.looks[0].0, "/charges?of=12345678901234567890123");
}

#[tokio::test]
async fn a_look_without_a_body_is_an_answer_without_one() {
    let (address, said) = service((200, "{\"id\":1}")).await;
    let gateway = gateway(address, &route("\"HEAD /charges/{operation}\"")).await;
    charge(&gateway, "key", "{}").await;

    for _ in 0..2 {
        let answer = charge(&gateway, "key", "{}").await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.content_length().unwrap_or_default(), 0);
        assert_eq!(answer.text().await.unwrap(), "");
    }

    assert_eq!(said.lock().unwrap().runs, 1);
}

//! Upstreams in other languages that store the answer in their own transaction, and die.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use onlyonce_core::{Entropy, OsEntropy};
use onlyonce_gateway::{Gateway, config};
use onlyonce_testkit::servers::{Shared, shared};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

use crate::python;
use crate::support::{Service, client, gateway, started};

const PYTHON: &str = "psycopg==3.2.3\npsycopg-binary==3.2.3\ntyping_extensions==4.12.2\n";
/// The same with FastAPI.
const FASTAPI: &str = "psycopg==3.2.3\npsycopg-binary==3.2.3\nannotated-doc==0.0.6\n\
    annotated-types==0.8.0\nanyio==4.16.0\nclick==8.5.1\nfastapi==0.162.7\nh11==0.16.0\nidna==3.20\n\
    opentelemetry-api==1.45.2\npydantic==2.14.3\npydantic_core==2.50.4\nstarlette==1.10.0\n\
    typing-inspection==0.4.5\ntyping_extensions==4.16.0\nuvicorn==0.54.0\n";
const NODE: &str = r#"{"private": true, "dependencies": {"express": "5.2.1", "pg": "8.13.1"}}"#;

const JDBC: &str = "/usr/share/java/postgresql.jar";

const KEY: &str = "a-charge-that-must-not-happen-twice";

/// Where a service dies, and whether its effect is there then.
const CRASHES: [(&str, bool); 3] = [
    ("before-complete", false),
    ("before-commit", false),
    ("after-commit", true),
];

/// A database of its own, with a ledger and records.
struct Ledger {
    url: String,
    table: String,
}

impl Ledger {
    async fn new() -> Self {
        let mut random = [0; 8];
        OsEntropy::new().fill(&mut random);
        let table = format!("t{:016x}", u64::from_le_bytes(random));
        let ledger = Self {
            url: shared(Shared::Postgres),
            table,
        };
        // Each test has a schema of its own, so that all ledgers can be called alike.
        ledger.psql(&format!("CREATE SCHEMA {0}; CREATE TABLE {0}.ledger (id bigint GENERATED ALWAYS AS IDENTITY, cents bigint)", ledger.table)).await;
        ledger
    }

    fn in_schema(&self) -> String {
        let joint = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{joint}options=-csearch_path%3D{}", self.url, self.table)
    }

    fn store(&self) -> String {
        let joint = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{joint}table={}", self.url, self.table)
    }

    async fn psql(&self, sql: &str) -> String {
        let mut psql = Command::new("psql");
        let output = psql
            .args([&*self.url, "-XqAtc", sql])
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    async fn rows(&self) -> String {
        self.psql(&format!("SELECT count(*) FROM {}.ledger", self.table))
            .await
    }

    async fn gateway(&self, upstream: SocketAddr) -> Gateway {
        let more = format!(
            "store = \"{}\"\n[[route]]\nmatch = \"POST /charges\"\ntransactional = true\n",
            self.store()
        );
        started(upstream, &more).await
    }

    async fn end(self) {
        let table = &self.table;
        let tables = ["", "_agreed", "_archive", "_migrations"].map(|it| format!("{table}{it}"));
        self.psql(&format!(
            "DROP SCHEMA {table} CASCADE; DROP TABLE {}; DROP FUNCTION {table}_complete",
            tables.join(", ")
        ))
        .await;
    }
}

/// A service that runs until it is dropped, or dies.
struct Program {
    _child: Child,
    address: SocketAddr,
}

async fn start(program: &[PathBuf], ledger: &Ledger, port: u16, crash: &str) -> Program {
    let mut command = Command::new(&program[0]);
    command
        .args(&program[1..])
        .env("DATABASE_URL", ledger.in_schema())
        .env("COMPLETE", format!("public.{}_complete", ledger.table))
        .env("PORT", port.to_string())
        .env("CRASH_AT", crash)
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.next_line().await.unwrap().expect("it starts");
    let port = said.rsplit(' ').next().unwrap().parse().unwrap();
    Program {
        _child: child,
        address: SocketAddr::from(([127, 0, 0, 1], port)),
    }
}

fn example(name: &str) -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/transactional");
    examples.join(name).canonicalize().unwrap()
}

async fn in_python() -> Vec<PathBuf> {
    static MADE: OnceCell<PathBuf> = OnceCell::const_new();
    let made = MADE
        .get_or_init(|| python::environment("psycopg", PYTHON))
        .await;
    vec![made.join("bin/python"), example("ledger.py")]
}

async fn in_fastapi() -> Vec<PathBuf> {
    let made = python::environment("fastapi-psycopg", FASTAPI).await;
    vec![made.join("bin/python"), example("ledger_fastapi.py")]
}

/// Installed once, for both programs.
async fn in_node(name: &str) -> Vec<PathBuf> {
    static MADE: OnceCell<PathBuf> = OnceCell::const_new();
    let made = MADE.get_or_init(node_modules).await;
    vec!["node".into(), made.join(name)]
}

async fn node_modules() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node-pg-express");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("package.json"), NODE).unwrap();
    let is_there = |name: &str| {
        folder
            .join(format!("node_modules/{name}/package.json"))
            .exists()
    };
    if !is_there("pg") || !is_there("express") {
        let arguments = ["install", "--no-audit", "--no-fund", "--silent"];
        let installed = python::run(Path::new("npm"), &arguments, &folder).await;
        assert!(installed.status.success(), "npm: {installed:?}");
    }
    for name in ["ledger.js", "ledger-express.js"] {
        std::fs::copy(example(name), folder.join(name)).unwrap();
    }
    folder
}

async fn in_java() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("java-pg");
    std::fs::create_dir_all(&folder).unwrap();
    let source = example("Ledger.java");
    let arguments = ["-d", ".", source.to_str().unwrap()];
    let compiled = python::run(Path::new("javac"), &arguments, &folder).await;
    assert!(compiled.status.success(), "javac: {compiled:?}");
    let classes = format!("{JDBC}:{}", folder.display());
    ["java", "-cp", &classes, "Ledger"]
        .map(PathBuf::from)
        .to_vec()
}

async fn charge(gateway: &Gateway) -> reqwest::Response {
    client()
        .post(format!("http://{}/charges", gateway.address()))
        .header("idempotency-key", KEY)
        .header("onlyonce-lease", "0".repeat(96))
        .header("content-type", "application/json")
        .body(r#"{"cents": 500}"#)
        .send()
        .await
        .unwrap()
}

/// Sends a charge to a service that dies at each point in turn, and then to one that lives.
async fn settles_every_crash(program: &[PathBuf]) {
    for (crash, is_done) in CRASHES {
        let ledger = Ledger::new().await;
        let dying = start(program, &ledger, 0, crash).await;
        let gateway = ledger.gateway(dying.address).await;

        let first = charge(&gateway).await;
        let port = dying.address.port();
        drop(dying);
        let _alive = start(program, &ledger, port, "").await;
        let retry = charge(&gateway).await;

        let status = first.status().as_u16();
        assert_eq!(status, if is_done { 201 } else { 502 }, "{crash}");
        assert_eq!(retry.status(), 201, "{crash}");
        assert_eq!(retry.headers()["content-type"], "application/json");
        let replayed = retry.headers().contains_key("idempotent-replayed");
        assert_eq!(replayed, is_done, "{crash}");
        let answer = retry.text().await.unwrap();
        if is_done {
            assert_eq!(first.text().await.unwrap(), answer);
        }
        assert_eq!(ledger.rows().await, "1", "{crash}");
        gateway.drain().await;
        ledger.end().await;
    }
}

#[tokio::test]
async fn a_python_service_that_dies_anywhere_charges_once() {
    settles_every_crash(&in_python().await).await;
}

#[tokio::test]
async fn a_node_service_that_dies_anywhere_charges_once() {
    settles_every_crash(&in_node("ledger.js").await).await;
}

#[tokio::test]
async fn a_fastapi_service_that_dies_anywhere_charges_once() {
    settles_every_crash(&in_fastapi().await).await;
}

#[tokio::test]
async fn an_express_service_that_dies_anywhere_charges_once() {
    settles_every_crash(&in_node("ledger-express.js").await).await;
}

#[tokio::test]
async fn a_java_service_that_dies_anywhere_charges_once() {
    settles_every_crash(&in_java().await).await;
}

#[tokio::test]
async fn what_was_committed_is_the_answer_whatever_the_service_says() {
    let ledger = Ledger::new().await;
    let program = start(&in_python().await, &ledger, 0, "").await;
    let gateway = ledger.gateway(program.address).await;

    let first = charge(&gateway).await;
    let retry = charge(&gateway).await;

    assert_eq!(first.status(), 201);
    // The service's own answer has a header that it did not store.
    assert!(
        !first.headers().contains_key("server"),
        "{:?}",
        first.headers()
    );
    assert_eq!(first.text().await.unwrap(), retry.text().await.unwrap());
    assert_eq!(ledger.rows().await, "1");
    gateway.drain().await;
    ledger.end().await;
}

#[tokio::test]
async fn no_client_hands_a_lease_to_a_service() {
    let service = Service::start().await;
    let routes = "[[route]]\nmatch = \"* /told\"\npass = true\n";
    for more in ["", routes] {
        let gateway = gateway(service.address, more).await;
        for key in [None, Some(KEY)] {
            let mut request = client()
                .post(format!("http://{}/told", gateway.address()))
                .header("Onlyonce-Lease", "f".repeat(96));
            if let Some(key) = key {
                request = request.header("idempotency-key", key);
            }
            let told = request.send().await.unwrap().text().await.unwrap();
            assert!(told.contains("x-forwarded-for"), "{told}");
            assert!(!told.contains("onlyonce-lease"), "{told}");
        }
    }
}

#[tokio::test]
async fn each_attempt_gets_a_lease_of_its_own_and_no_answer_carries_one() {
    let ledger = Ledger::new().await;
    let service = Service::start().await;
    let more = format!(
        "store = \"{}\"\n[[route]]\nmatch = \"POST /told\"\ntransactional = true\n",
        ledger.store()
    );
    let gateway = started(service.address, &more).await;
    let ask = async |key: &str| {
        let request = client().post(format!("http://{}/told", gateway.address()));
        let request = request.header("idempotency-key", key);
        let answer = request
            .header("onlyonce-lease", "forged")
            .send()
            .await
            .unwrap();
        assert!(!answer.headers().contains_key("onlyonce-lease"));
        answer.text().await.unwrap()
    };
    let lease = |told: &str| {
        let line = told.lines().find(|it| it.starts_with("onlyonce-lease: "));
        line.unwrap()["onlyonce-lease: ".len()..].to_owned()
    };

    let (first, second) = (
        lease(&ask("first-key").await),
        lease(&ask("second-key").await),
    );

    assert_eq!((first.len(), second.len()), (96, 96));
    assert_ne!(first[..64], second[..64]);
    assert_ne!(first[64..], second[64..]);
    gateway.drain().await;
    ledger.end().await;
}

#[test]
fn a_store_or_contract_that_is_not_fit_for_it_is_told_before_the_start() {
    let cases = [
        ("", "", "only databases"),
        ("store = \"redis://127.0.0.1\"", "", "only databases"),
        ("store = \"memory:\"", "", "only databases"),
        ("store = \"postgres://db/shop?sealed=keys\"", "", "sealed"),
        (
            "store = \"postgres://db/shop\"",
            "pass = true",
            "passes everything",
        ),
        (
            "store = \"postgres://db/shop\"",
            "rules.on_lapse = \"hold\"",
            "rerun",
        ),
    ];
    for (store, route, why) in cases {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!(
            "upstream = \"http://127.0.0.1:1\"\n{store}\n[[route]]\nmatch = \"POST /charges\"\n\
             transactional = true\n{route}\n"
        );
        std::fs::write(file.path(), text).unwrap();

        let refused = config::load(Some(file.path()), [], &[])
            .unwrap_err()
            .to_string();

        assert!(refused.contains("transactional = true"), "{refused}");
        assert!(refused.contains(why), "{refused}");
    }
}

//! A FastAPI service, an Express service and the gateway on one Redis: a key runs once between them,
//! and a killed holder is taken over.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use onlyonce_gateway::{Gateway, Settings};
use onlyonce_testkit::servers::{Redis, RedisOptions, Server as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::judge::Service;
use crate::package::{here, shop};
use crate::python::python;

/// A short lease, so that a killed holder is taken over soon.
const RULES: &str = "base = \"standard\"\nlease = \"2s\"\n";

/// Three ways to one shop, which writes a line per execution.
struct Shop {
    python: Service,
    node: Service,
    gateway: Gateway,
    effects: tempfile::NamedTempFile,
    _redis: Redis,
}

impl Shop {
    async fn open() -> Self {
        let redis = Redis::start(RedisOptions::default()).unwrap();
        let effects = tempfile::NamedTempFile::new().unwrap();
        let path = effects.path().to_str().unwrap().to_owned();
        let settings = [
            "--store",
            &redis.url(),
            "--rules",
            RULES,
            "--effects",
            &path,
        ];
        let mut fastapi = Command::new(python());
        fastapi.arg(here().join("../python/tests/shop.py"));
        Self {
            python: Service::start(fastapi.args(settings)),
            node: Service::start(shop("express").args(settings)),
            gateway: gateway(upstream(effects.path()).await, &redis.url()).await,
            effects,
            _redis: redis,
        }
    }

    fn urls(&self) -> [String; 3] {
        let gateway = format!("http://{}", self.gateway.address());
        [self.python.url.clone(), self.node.url.clone(), gateway]
    }

    /// Who has run it, one line per execution.
    fn executions(&self) -> Vec<String> {
        let told = fs::read_to_string(self.effects.path()).unwrap();
        told.lines().map(str::to_owned).collect()
    }
}

/// The service behind the gateway, which takes as long as the others.
async fn upstream(effects: &Path) -> SocketAddr {
    let effects = effects.to_owned();
    let handler = async move || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut file = OpenOptions::new().append(true).open(&effects).unwrap();
        file.write_all(b"gateway\n").unwrap();
        "from behind the gateway"
    };
    let app = Router::new()
        .route("/slow", post(handler.clone()))
        .route("/stuck", post(handler));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn gateway(upstream: SocketAddr, store: &str) -> Gateway {
    let settings = format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nupstream = \"http://{upstream}\"\nstore = \"{store}\"\n[rules]\nlease = \"2s\"\n"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), settings).unwrap();
    let settings = Settings::load(Some(file.path()), [], &[]).unwrap();
    Gateway::start(&settings).await.unwrap()
}

/// One try: its status and its body. All three are called by one name, so that they are one scope.
async fn order(client: reqwest::Client, url: String, key: &'static str) -> Option<(u16, Vec<u8>)> {
    let request = client.post(url).header("host", "shop.test");
    let request = request.header("content-type", "application/json");
    let sent = request.header("idempotency-key", key).body("{}").send();
    let answer = sent.await.ok()?;
    let status = answer.status().as_u16();
    Some((status, answer.bytes().await.ok()?.to_vec()))
}

/// Repeats while it is asked to, as a client does.
async fn answered(client: reqwest::Client, url: String, key: &'static str) -> (u16, Vec<u8>) {
    loop {
        match order(client.clone(), url.clone(), key).await {
            Some((409 | 429 | 503, _)) | None => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Some(answer) => return answer,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_runs_once_between_python_node_and_the_gateway() {
    let shop = Shop::open().await;
    let client = reqwest::Client::new();

    let mut calls = JoinSet::new();
    for url in shop.urls().into_iter().cycle().take(64) {
        let url = format!("{url}/slow");
        calls.spawn(answered(client.clone(), url, "a-key-for-sixty-four"));
    }
    let answers = calls.join_all().await;

    assert_eq!(answers.len(), 64);
    assert_eq!(shop.executions().len(), 1);
    assert!(answers.iter().all(|it| *it == answers[0]), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_is_taken_over_and_there_is_one_answer() {
    let mut shop = Shop::open().await;
    let client = reqwest::Client::new();
    let [python, node, gateway] = shop.urls().map(|url| format!("{url}/stuck"));
    let key = "a-key-whose-holder-dies";
    let holder = tokio::spawn(order(client.clone(), python, key));
    while shop.executions().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    shop.python.kill();
    assert_eq!(holder.await.unwrap(), None, "the holder answered");

    let calls = [node, gateway].map(|url| tokio::spawn(answered(client.clone(), url, key)));
    let [first, second] = calls;
    let (first, second) = (first.await.unwrap(), second.await.unwrap());

    assert_eq!(first, second);
    // The killed one took effect before it died, which is why it runs again under `rerun`.
    assert_eq!(shop.executions().len(), 2);
}

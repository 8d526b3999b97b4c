//! `onlyonce queue` as scripts use it: every call is a process of its own, and any of them may be killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::Value;
use tempfile::{TempDir, tempdir};
use tokio::net::TcpListener;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::support::program::{RUN_MAX, onlyonce, run, run_with};

mod daemon;

/// A service that writes down what it gets, and answers as its path says.
#[derive(Clone, Default)]
struct Service {
    seen: Arc<Mutex<Vec<Seen>>>,
    open: Arc<watch::Sender<bool>>,
}

#[derive(Clone, Debug)]
struct Seen {
    what: String,
    key: String,
    authorization: Option<String>,
    body: String,
}

impl Service {
    async fn start() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let service = Self::default();
        let app = Router::new().fallback(answer).with_state(service.clone());
        tokio::spawn(axum::serve(listener, app).into_future());
        (service, address)
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn story(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.what).collect()
    }

    /// Returns once this many requests came.
    async fn until_seen(&self, count: usize) {
        eventually(|| self.seen().len() >= count).await;
    }
}

async fn answer(
    State(service): State<Service>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let text = |name: &str| Some(headers.get(name)?.to_str().unwrap().to_owned());
    let path = uri.path().to_owned();
    service.seen.lock().unwrap().push(Seen {
        what: format!("{method} {path}"),
        key: text("idempotency-key").unwrap_or_default(),
        authorization: text("authorization"),
        body: String::from_utf8(body.to_vec()).unwrap(),
    });
    if path.contains("held") {
        drop(service.open.subscribe().wait_for(|open| *open).await);
    }
    if path.contains("bad") {
        return (StatusCode::BAD_REQUEST, "no".to_owned());
    }
    (StatusCode::CREATED, "made".to_owned())
}

async fn eventually(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(RUN_MAX, waiting).await.expect("it becomes so");
}

/// A queue in a folder of its own.
struct Outbox {
    folder: TempDir,
}

impl Outbox {
    fn new() -> Self {
        let folder = tempdir().unwrap();
        Self { folder }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("queue")
    }

    /// A command's arguments, with the folder.
    fn args(&self, args: &[&str]) -> Vec<String> {
        let folder = self.path();
        let mut all = vec!["queue".to_owned()];
        all.extend(args.iter().map(|&arg| arg.to_owned()));
        all.extend(["--queue".to_owned(), folder.to_str().unwrap().to_owned()]);
        all
    }

    /// Exit code, stdout and stderr.
    async fn run(&self, args: &[&str]) -> (i32, String, String) {
        let args = self.args(args);
        run(&args.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    /// The number and the key of a request that was added.
    async fn add(&self, args: &[&str]) -> (String, String) {
        let args: Vec<_> = ["add"].iter().chain(args).copied().collect();
        let (code, printed, told) = self.run(&args).await;
        assert_eq!(code, 0, "{told}");
        let (id, key) = printed.trim_end().split_once(' ').unwrap();
        (id.to_owned(), key.to_owned())
    }

    async fn list(&self) -> Vec<Value> {
        let (code, printed, told) = self.run(&["list", "--json"]).await;
        assert_eq!(code, 0, "{told}");
        let lines = printed.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Starts a program that goes on.
    fn start(&self, args: &[&str]) -> Child {
        let args = self.args(args);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        onlyonce(&args).spawn().unwrap()
    }
}

#[tokio::test]
async fn what_was_added_is_sent_once_under_the_key_that_was_printed() {
    let (service, address) = Service::start().await;
    let outbox = Outbox::new();
    let url = format!("{address}/orders?token=sesame");

    let (id, key) = outbox.add(&["POST", &url, "-d", r#"{"item":"tea"}"#]).await;
    let (code, printed, told) = outbox.run(&["send"]).await;
    assert_eq!(code, 0, "{told}");
    assert_eq!(printed, format!("1 POST {address}/orders?…: done (201)\n"));
    assert!(told.contains("0 waiting, 0 failed, 1 done"), "{told}");
    let (code, printed, _) = outbox.run(&["send"]).await;

    assert_eq!((code, printed.as_str()), (0, ""));
    assert_eq!(id, "1");
    let seen = service.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].key, key);
    assert_eq!(seen[0].body, r#"{"item":"tea"}"#);
    let (_, answer, _) = outbox.run(&["show", "1", "--body"]).await;
    assert_eq!(answer, "made");
}

#[tokio::test]
async fn a_body_comes_from_an_argument_a_file_or_stdin() {
    let (service, address) = Service::start().await;
    let outbox = Outbox::new();
    let file = outbox.folder.path().join("body");
    std::fs::write(&file, "from a file").unwrap();
    let file = format!("@{}", file.display());

    outbox.add(&["POST", &address, "-d", "as it is"]).await;
    outbox.add(&["POST", &address, "-d", &file]).await;
    let args = outbox.args(&["add", "PUT", &address, "-d", "@-"]);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let (code, _, told) = run_with(&args, "from stdin").await;
    assert_eq!(code, 0, "{told}");
    outbox.run(&["send", "--parallel", "1"]).await;

    let bodies: Vec<_> = service.seen().into_iter().map(|it| it.body).collect();
    assert_eq!(bodies, ["as it is", "from a file", "from stdin"]);
}

#[tokio::test]
async fn a_key_names_a_request_and_is_no_other_s() {
    let (service, address) = Service::start().await;
    let outbox = Outbox::new();
    let add = ["POST", address.as_str(), "--key", "order-17", "-d", "tea"];

    let first = outbox.add(&add).await;
    let again = outbox.add(&add).await;
    let (code, _, told) = outbox
        .run(&["add", "POST", &address, "--key", "order-17", "-d", "coffee"])
        .await;
    outbox.run(&["send"]).await;

    assert_eq!(first, again);
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("another operation"), "{told}");
    assert_eq!(service.seen().len(), 1);
}

#[tokio::test]
async fn secrets_are_in_private_files_and_are_not_printed_unless_asked_for() {
    let (service, address) = Service::start().await;
    let outbox = Outbox::new();
    let headers = outbox.folder.path().join("headers");
    std::fs::write(
        &headers,
        "Authorization: Bearer sesame\nX-Api-Key: sesame\n",
    )
    .unwrap();
    let headers = format!("@{}", headers.display());
    let url = format!("{address}/bad?password=sesame");
    let (id, _) = outbox
        .add(&["POST", &url, "-H", &headers, "-H", "X-Plain: 1"])
        .await;
    let (code, attempts, told) = outbox.run(&["send", "--json"]).await;
    assert_eq!(code, 1, "it was rejected: {told}");

    for args in [
        &["list"][..],
        &["list", "--json"],
        &["show", &id],
        &["show", &id, "--json"],
    ] {
        let (code, printed, told) = outbox.run(args).await;
        assert_eq!(code, 0, "{told}");
        assert!(
            !format!("{printed}{told}{attempts}").contains("sesame"),
            "{printed}"
        );
    }
    let (_, printed, _) = outbox.run(&["show", &id]).await;
    assert!(printed.contains("x-plain: 1"), "{printed}");
    let (_, printed, _) = outbox.run(&["show", &id, "--secrets"]).await;
    assert!(
        printed.contains("authorization: Bearer sesame"),
        "{printed}"
    );
    assert!(printed.contains("?password=sesame"), "{printed}");
    let sent = service.seen().remove(0);
    assert_eq!(sent.authorization.as_deref(), Some("Bearer sesame"));
    assert_private(&outbox.path());
}

fn assert_private(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;

    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder), 0o700);
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[tokio::test]
async fn an_edited_request_gets_a_new_key_and_a_retried_one_keeps_its_own() {
    let (service, address) = Service::start().await;
    let outbox = Outbox::new();
    let bad = format!("{address}/bad");
    let (id, first) = outbox
        .add(&["POST", &bad, "-d", "a", "-H", "X-One: 1"])
        .await;
    assert_eq!(outbox.run(&["send"]).await.0, 1);

    assert_eq!(outbox.run(&["retry", &id]).await.0, 0);
    assert_eq!(outbox.run(&["send"]).await.0, 1);
    let good = format!("{address}/good");
    let (code, printed, told) = outbox.run(&["edit", &id, "--url", &good]).await;
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("may have taken effect"), "{told}");
    let edited = printed.trim_end().strip_prefix("1 ").unwrap().to_owned();
    assert_eq!(outbox.run(&["send"]).await.0, 0);

    let keys: Vec<_> = service.seen().into_iter().map(|it| it.key).collect();
    assert_eq!(keys, [first.clone(), first.clone(), edited.clone()]);
    assert_ne!(first, edited);
    assert!(service.seen().iter().all(|it| it.body == "a"));
    assert_eq!(
        outbox.run(&["edit", &id, "-d", "b"]).await.0,
        1,
        "it is done"
    );
}

#[tokio::test]
async fn what_is_dropped_is_not_sent_and_what_is_not_there_is_said() {
    let (service, address) = Service::start().await;
    let outbox = Outbox::new();
    let (id, _) = outbox.add(&["POST", &address]).await;

    let (code, _, told) = outbox.run(&["drop", &id, "99"]).await;
    let (shown, _, _) = outbox.run(&["show", &id]).await;
    outbox.run(&["send"]).await;

    assert_eq!(code, 1);
    assert!(
        told.contains("1 is forgotten") && told.contains("99: "),
        "{told}"
    );
    assert_eq!(shown, 1);
    assert!(service.seen().is_empty());
}

#[tokio::test]
async fn a_group_is_undone_when_a_step_fails() {
    let (service, address) = Service::start().await;
    let outbox = Outbox::new();
    let file = outbox.folder.path().join("group.json");
    let group = serde_json::json!({"name": "sign-up-7", "steps": [
        {"do": {"method": "PUT", "url": format!("{address}/users/7"), "json": {"name": "Ada"}},
         "undo": {"method": "DELETE", "url": format!("{address}/users/7")}},
        {"do": {"method": "POST", "url": format!("{address}/bad-rooms")}},
        {"do": {"method": "POST", "url": format!("{address}/never")}},
    ]});
    std::fs::write(&file, group.to_string()).unwrap();
    let add = ["add", "--group", file.to_str().unwrap()];

    let (code, printed, told) = outbox.run(&add).await;
    assert_eq!((code, printed.as_str()), (0, "group 1\n"), "{told}");
    assert_eq!(outbox.run(&add).await.1, "group 1\n", "it has a name");
    assert_eq!(outbox.run(&["send"]).await.0, 1);

    let story = ["PUT /users/7", "POST /bad-rooms", "DELETE /users/7"];
    assert_eq!(service.story(), story);
    let (_, printed, _) = outbox.run(&["show", "--group", "1"]).await;
    assert!(printed.starts_with("group 1 is undone\n"), "{printed}");
}

#[tokio::test]
async fn a_service_that_cannot_be_reached_is_tried_again_later() {
    let outbox = Outbox::new();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let (_, key) = outbox
        .add(&["POST", &format!("http://{address}/orders")])
        .await;

    let (code, printed, _) = outbox.run(&["send"]).await;
    assert_eq!(code, 3);
    assert!(printed.contains("waits, unreachable"), "{printed}");
    let waiting = outbox.list().await;
    assert_eq!(waiting[0]["state"], "waiting");
    assert!(waiting[0].get("first_sent").is_none(), "nothing was sent");
    let service = Service::default();
    let app = Router::new().fallback(answer).with_state(service.clone());
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());
    let mut daemon = outbox.start(&["serve"]);
    service.until_seen(1).await;

    assert_eq!(service.seen()[0].key, key);
    daemon.kill().await.unwrap();
}

#[tokio::test]
async fn wrong_calls_are_explained_without_the_secret_in_them() {
    let outbox = Outbox::new();
    for (args, says) in [
        (&["add", "POST", "orders"][..], "write it like https://"),
        (
            &["add", "POST", "http://a.test/", "-H", "sesame"],
            "'Name: value'",
        ),
        (
            &[
                "add",
                "POST",
                "http://a.test/",
                "-H",
                "Idempotency-Key: sesame",
            ],
            "--key",
        ),
        (&["add", "POST", "http://me:sesame@a.test/"], "credential"),
        (
            &["add", "POST", "http://a.test/", "-d", "@no-such-file"],
            "no-such-file cannot be read",
        ),
        (&["add"], "--group"),
        (&["serve", "--listen", "0.0.0.0:7070"], "loopback"),
        (&["send", "--status-path", "status"], "/status"),
    ] {
        let (code, _, told) = outbox.run(args).await;

        assert_eq!(code, 2, "{args:?}: {told}");
        assert!(told.contains(says), "{args:?}: {told}");
        assert!(!told.contains("sesame"), "{told}");
    }
}

/// How often each key was seen.
fn by_key(service: &Service) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for seen in service.seen() {
        *counts.entry(seen.key).or_default() += 1;
    }
    counts
}

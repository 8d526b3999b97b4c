//! `onlyonce mcp --background`: a server process is killed between its effect and its answer, nobody retries, and
//! the call is settled all the same.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{sleep, timeout};

use crate::support::program::{RUN_MAX, onlyonce, run};

const SERVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/it/mcp_settled/server.py"
);
const VERIFY: &str = r#"pay=find:{"of":"{operation}"}"#;
const KEY: &str = "idem_0190a5c4-3f6e-4c1b-9a57-2f0d8f6f1c11";
const LOOK_AGAIN: Duration = Duration::from_millis(100);

struct Bank {
    folder: TempDir,
    store: String,
}

impl Bank {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("sqlite:{}", folder.path().join("store.db").display());
        Self { folder, store }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("payments")
    }

    fn payments(&self) -> usize {
        let text = std::fs::read_to_string(self.file()).unwrap_or_default();
        text.lines().count()
    }

    fn start(&self, more: &[&str]) -> Child {
        let file = self.file().display().to_string();
        let mut args = vec!["mcp", "--name", "bank", "--store", &self.store];
        args.extend(["--reconcile", VERIFY, "--background", "1s"]);
        args.extend(more);
        args.extend(["--", "python3", SERVER, &file]);
        onlyonce(&args).stdin(Stdio::piped()).spawn().unwrap()
    }

    async fn until_settled(&self) {
        let settled = async {
            loop {
                let state = ["keys", "list", "--state", "done", "--json", "--store"];
                let (_, listed, _) = run(&[&state[..], &[&self.store]].concat()).await;
                if listed.contains("pay") {
                    return;
                }
                sleep(LOOK_AGAIN).await;
            }
        };
        timeout(RUN_MAX, settled).await.expect("it is settled");
    }
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }})
}

fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

fn pay(id: u64) -> Value {
    let params = json!({"name": "pay", "arguments": {"cents": 7, "idempotencyKey": KEY}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

fn is_settled(answer: &Value) {
    let result = &answer["result"];
    assert_eq!(result["content"][0]["text"], "{\"payment\": 1}", "{answer}");
    assert_eq!(result["_meta"]["onlyonce/reconciled"], true, "{answer}");
    assert_eq!(result["_meta"]["onlyonce/replayed"], true, "{answer}");
}

/// The client of a proxy on stdio.
struct Agent {
    _program: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Agent {
    async fn begin(mut program: Child) -> Self {
        let output = program.stdout.take().unwrap();
        let mut agent = Self {
            input: program.stdin.take().unwrap(),
            output: BufReader::new(output).lines(),
            _program: program,
        };
        agent.ask(&initialize()).await.expect("it begins");
        agent.say(&initialized()).await;
        agent
    }

    async fn say(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    /// The answer; nothing if the proxy has ended.
    async fn ask(&mut self, message: &Value) -> Option<Value> {
        self.say(message).await;
        loop {
            let line = timeout(RUN_MAX, self.output.next_line()).await.unwrap();
            let heard: Value = serde_json::from_str(&line.unwrap()?).unwrap();
            if heard["id"] == message["id"] {
                return Some(heard);
            }
        }
    }
}

#[tokio::test]
async fn a_killed_server_s_call_is_settled_though_nobody_retries() {
    let bank = Bank::open();
    let mut first = Agent::begin(bank.start(&[])).await;
    drop(first.ask(&pay(2)).await);
    assert_eq!(bank.payments(), 1);

    let mut second = Agent::begin(bank.start(&[])).await;
    bank.until_settled().await;

    is_settled(&second.ask(&pay(3)).await.unwrap());
    assert_eq!(bank.payments(), 1);
}

#[tokio::test]
async fn a_session_whose_server_was_killed_is_not_needed_to_settle_its_call() {
    let bank = Bank::open();
    let mut program = bank.start(&["--listen", "127.0.0.1:0"]);
    let mut lines = BufReader::new(program.stderr.take().unwrap()).lines();
    let said = timeout(RUN_MAX, lines.next_line()).await.unwrap().unwrap();
    let said = said.expect("it says where it listens");
    let (_, url) = said.split_once("listening on ").expect("it listens");
    let http = Client::builder().no_proxy().build().unwrap();
    let post = |session: Option<&str>, message: &Value| {
        let request = http
            .post(url)
            .header("accept", "application/json")
            .header("content-type", "application/json")
            .body(message.to_string());
        match session {
            Some(session) => request.header("mcp-session-id", session).send(),
            None => request.send(),
        }
    };
    let begin = async || {
        let begun = post(None, &initialize()).await.unwrap();
        let session = begun.headers()["mcp-session-id"].to_str().unwrap();
        let session = session.to_owned();
        post(Some(&session), &initialized()).await.unwrap();
        session
    };
    let first = begin().await;
    drop(post(Some(&first), &pay(2)).await.unwrap().text().await);
    assert_eq!(bank.payments(), 1);

    bank.until_settled().await;

    let second = begin().await;
    let retry = post(Some(&second), &pay(3)).await.unwrap().text().await;
    is_settled(&serde_json::from_str(&retry.unwrap()).unwrap());
    assert_eq!(bank.payments(), 1);
}

#[tokio::test]
async fn a_background_that_could_not_ask_is_refused_at_the_start() {
    for (verify, every, why) in [
        (
            r#"pay=find:{"of":"{key}"}"#,
            "1s",
            "keeps neither the key nor",
        ),
        (r#"pay=find:{"of":"{/id}"}"#, "1s", "by {operation} alone"),
        (VERIFY, "0s", "a second to an hour"),
        (VERIFY, "2h", "a second to an hour"),
    ] {
        let settled = ["--reconcile", verify, "--background", every];
        let args = [&["mcp", "--name", "bank"][..], &settled, &["--", "cat"]].concat();

        let (code, _, said) = run(&args).await;

        assert_ne!(code, 0, "{verify}");
        assert!(said.contains(why), "{said}");
    }
    let nameless = [
        "mcp",
        "--reconcile",
        VERIFY,
        "--background",
        "1s",
        "--",
        "cat",
    ];
    let (code, _, said) = run(&nameless).await;
    assert_ne!(code, 0);
    assert!(said.contains("--name"), "{said}");
}

//! `onlyonce mcp --listen` over HTTP by hand: who is let in, and what is said to whom is not. The server
//! on its pipes is the demo, whose intakes are tools.

use std::fs;
use std::process::Stdio;

use reqwest::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::time::timeout;

use crate::support::program::{RUN_MAX, onlyonce, run};

const TOKENS: [&str; 2] = ["adas-own-token-0001", "bobs-own-token-0002"];

/// The program, and where it listens.
struct Listening {
    program: Child,
    url: String,
    folder: TempDir,
    http: Client,
}

impl Listening {
    async fn start(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tokens"), TOKENS.join("\n")).unwrap();
        let tokens = folder.path().join("tokens").display().to_string();
        let store = format!("sqlite:{}", folder.path().join("store.db").display());
        let mut args = vec!["mcp", "--listen", "127.0.0.1:0", "--store", &store];
        for flag in flags {
            args.push(if *flag == "TOKENS" { &tokens } else { flag });
        }
        let data = folder.path().join("demo").display().to_string();
        args.extend(["--", env!("CARGO_BIN_EXE_onlyonce"), "demo", "--mcp"]);
        args.extend(["--listen=127.0.0.1:0", "--admin=127.0.0.1:0"]);
        args.extend(["--data", &data]);
        let mut program = onlyonce(&args).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(program.stderr.take().unwrap()).lines();
        let said = timeout(RUN_MAX, lines.next_line()).await.unwrap().unwrap();
        let said = said.expect("it says where it listens");
        let (_, url) = said.split_once("listening on ").expect("it listens");
        let url = url.to_owned();
        // What its servers say is not wanted, but must go somewhere.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self {
            program,
            url,
            folder,
            http: Client::builder().no_proxy().build().unwrap(),
        }
    }

    fn post(&self, message: &Value) -> RequestBuilder {
        self.http
            .post(&self.url)
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .body(message.to_string())
    }

    fn initialize(&self) -> RequestBuilder {
        self.post(
            &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }}),
        )
    }
}

fn session(begun: &Response) -> String {
    assert_eq!(begun.status(), StatusCode::OK);
    let session = begun.headers().get("mcp-session-id").expect("a session");
    session.to_str().unwrap().to_owned()
}

async fn status(request: RequestBuilder) -> StatusCode {
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn a_session_is_begun_used_and_ended_over_http() {
    let here = Listening::start(&[]).await;

    let session = session(&here.initialize().send().await.unwrap());
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let listed = here.post(&list).header("mcp-session-id", &session);
    let listed = listed.send().await.unwrap().text().await.unwrap();
    let delete = || {
        here.http
            .delete(&here.url)
            .header("mcp-session-id", &session)
    };
    let ended = status(delete()).await;
    let again = status(delete()).await;

    assert!(listed.contains("idempotencyKey"), "{listed}");
    assert!(listed.contains("\"id\":2"), "{listed}");
    assert_eq!(ended, StatusCode::NO_CONTENT);
    assert_eq!(again, StatusCode::NOT_FOUND);
    let elsewhere = here.url.replace("/mcp", "/other");
    assert_eq!(
        status(here.http.get(elsewhere)).await,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn web_pages_and_names_that_were_pointed_here_are_refused() {
    let origin = "https://app.example.org";
    let here = Listening::start(&["--origin", origin, "--host", "tools.example.org"]).await;
    let from = |origin: &str| here.initialize().header(ORIGIN, origin);
    let to = |host: &str| here.initialize().header(HOST, host);
    let listening = here
        .http
        .get(&here.url)
        .header(ORIGIN, "https://evil.example");

    assert_eq!(
        status(from("https://evil.example")).await,
        StatusCode::FORBIDDEN
    );
    assert_eq!(status(from("null")).await, StatusCode::FORBIDDEN);
    assert_eq!(status(listening).await, StatusCode::FORBIDDEN);
    let cross = here.initialize().header("sec-fetch-site", "cross-site");
    assert_eq!(status(cross).await, StatusCode::FORBIDDEN);
    let rebound = to("rebound.example");
    assert_eq!(status(rebound).await, StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(status(from(origin)).await, StatusCode::OK);
    assert_eq!(status(to("tools.example.org")).await, StatusCode::OK);
    let rebound = from(origin).header(HOST, "rebound.example");
    assert_eq!(status(rebound).await, StatusCode::MISDIRECTED_REQUEST);
}

#[tokio::test]
async fn with_tokens_each_is_a_caller_of_its_own_and_nobody_else_is_let_in() {
    let here = Listening::start(&["--token-file", "TOKENS"]).await;
    let bearer = |token: &str| format!("Bearer {token}");

    let denied = here.initialize().send().await.unwrap();
    let wrong = here
        .initialize()
        .header(AUTHORIZATION, bearer("no-such-token-at-all"));
    let wrong = status(wrong).await;
    let begun = here.initialize().header(AUTHORIZATION, bearer(TOKENS[0]));
    let adas = session(&begun.send().await.unwrap());
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let [own, stolen] = TOKENS.map(|token| {
        let ping = here.post(&ping).header("mcp-session-id", &adas);
        ping.header(AUTHORIZATION, bearer(token))
    });

    assert_eq!(denied.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(denied.headers()[WWW_AUTHENTICATE], "Bearer");
    assert_eq!(wrong, StatusCode::UNAUTHORIZED);
    assert_eq!(status(own).await, StatusCode::OK);
    assert_eq!(status(stolen).await, StatusCode::NOT_FOUND);
    drop(here.folder);
}

#[tokio::test]
async fn one_that_is_told_to_stop_ends_with_its_servers() {
    let mut here = Listening::start(&[]).await;
    session(&here.initialize().send().await.unwrap());

    let process = here.program.id().unwrap().to_string();
    let told = std::process::Command::new("kill").arg(process).status();
    assert!(told.unwrap().success());
    let status = timeout(RUN_MAX, here.program.wait()).await.unwrap();

    assert_eq!(status.unwrap().code(), Some(0));
}

#[tokio::test]
async fn what_would_let_anybody_in_or_cannot_be_read_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let short = folder.path().join("short");
    fs::write(&short, "# a comment\nshort\n").unwrap();
    let empty = folder.path().join("empty");
    fs::write(&empty, "# a comment\n\n").unwrap();
    let file = |path: &std::path::Path| path.display().to_string();

    for (flags, says) in [
        (vec!["--listen=0.0.0.0:0".to_owned()], "give --token-file"),
        (vec!["--token-file=x".to_owned()], "--listen"),
        (
            vec![
                "--listen=127.0.0.1:0".into(),
                format!("--token-file={}", file(&short)),
            ],
            "too short",
        ),
        (
            vec![
                "--listen=127.0.0.1:0".into(),
                format!("--token-file={}", file(&empty)),
            ],
            "has no token",
        ),
    ] {
        let mut args = vec!["mcp", "--store=memory:"];
        args.extend(flags.iter().map(String::as_str));
        args.extend(["--", "cat"]);

        let (code, _, err) = run(&args).await;

        assert_eq!(code, 2, "{flags:?}: {err}");
        assert!(err.contains(says), "{flags:?}: {err}");
    }
}

//! The documents' own scripts, run against `onlyonce demo` as they are written but for host and port.
//! Each is kept here as it stands in its document, and compared with it where the documents are at
//! hand.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::demo::process::{Clock, Process};
use crate::support::npm;
use crate::support::program::{RUN_MAX, run};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/documents");
/// By when ten thousand requests, one after the other, must be answered.
const LOAD_MAX: Duration = Duration::from_secs(900);
const REQUIREMENTS: &str = include_str!("documents/requirements.txt");

/// The scripts: their document, which of its fenced blocks they are, and where they are kept.
const SCRIPTS: [(&str, usize, &str); 8] = [
    ("000_", 47, "d0_47.js"),
    ("000_", 48, "d0_48.js"),
    ("000_", 60, "d0_60.sh"),
    ("000_", 67, "d0_67.ts"),
    ("002_", 5, "d2_5.sh"),
    ("002_", 6, "d2_6.sh"),
    ("002_", 7, "d2_7.sh"),
    ("003_", 35, "d3_35.py"),
];

fn script(name: &str) -> String {
    std::fs::read_to_string(Path::new(HERE).join(name)).unwrap()
}

/// The text of a document, where there is one.
fn document(prefix: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/seeds");
    let mut files = std::fs::read_dir(folder).ok()?.flatten();
    let file = files.find(|file| file.file_name().to_string_lossy().starts_with(prefix))?;
    std::fs::read_to_string(file.path()).ok()
}

/// What is between the fences, block by block.
fn blocks(document: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in document.lines() {
        if line.trim_start().starts_with("```") {
            match open.take() {
                Some(block) => blocks.push(block),
                None => open = Some(String::new()),
            }
        } else if let Some(block) = &mut open {
            block.push_str(line);
            block.push('\n');
        }
    }
    blocks
}

#[test]
fn the_scripts_are_the_documents_own() {
    for (prefix, number, name) in SCRIPTS {
        let kept = script(name);
        assert!(!kept.trim().is_empty(), "{name}");
        if let Some(document) = document(prefix) {
            assert_eq!(kept, blocks(&document)[number - 1], "{name}");
        }
    }
}

async fn demo(more: &[&str]) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().unwrap();
    let demo = Process::start_with(folder.path(), Clock::RIGHT, more).await;
    (folder, demo)
}

async fn output(command: &mut Command, at_most: Duration) -> String {
    let running = command.kill_on_drop(true).env("NO_PROXY", "*").output();
    let Output {
        status,
        stdout,
        stderr,
    } = timeout(at_most, running).await.unwrap().unwrap();
    let (told, wrong) = (
        String::from_utf8_lossy(&stdout).into_owned(),
        String::from_utf8_lossy(&stderr).into_owned(),
    );
    assert!(status.success(), "{command:?}: {told}\n{wrong}");
    told
}

/// Runs a script of curl lines; gives the JSON of each answer.
async fn answers(script: &str) -> Vec<Value> {
    let told = output(Command::new("bash").args(["-c", script]), RUN_MAX).await;
    let answers = serde_json::Deserializer::from_str(&told).into_iter();
    answers.map(Result::unwrap).collect()
}

#[tokio::test]
async fn d2_tests_1_to_3_run_as_written() {
    let (_folder, demo) = demo(&[]).await;
    let here = |name| script(name).replace("http://localhost:3001", demo.url());

    let same = answers(&here("d2_5.sh")).await;
    let different = answers(&here("d2_6.sh")).await;
    let custom = answers(&here("d2_7.sh")).await;

    let [first, second] = &same[..] else {
        panic!("{same:?}");
    };
    assert_eq!(second["idempotent"], true);
    assert_eq!(second["recordId"], first["recordId"]);
    assert!(second["originalSubmittedAt"].is_string(), "{second}");
    assert_eq!(
        (&different[0]["success"], &different[0]["idempotent"]),
        (&json!(true), &Value::Null)
    );
    assert_ne!(different[0]["recordId"], first["recordId"]);
    let [jane, duplicate] = &custom[..] else {
        panic!("{custom:?}");
    };
    assert_eq!(duplicate["idempotent"], true);
    assert_eq!(duplicate["recordId"], jane["recordId"]);
    let kept = demo.get("/api/forms/test-form/records").await;
    assert_eq!(kept["count"], 3, "{kept}");
    assert!(!kept.to_string().contains("DIFFERENT NAME"), "{kept}");
    demo.kill().await;
}

#[tokio::test]
async fn d0_7_1_the_curl_line_submits_once_as_written() {
    let (folder, demo) = demo(&[]).await;
    let line = script("d0_60.sh").replace(" /api/", &format!(" {}/api/", demo.url()));
    // Shows the head of each answer too, without a word changed in the line.
    std::fs::write(folder.path().join(".curlrc"), "include\nsilent\n").unwrap();
    let submit = async || {
        let mut shell = Command::new("bash");
        shell.args(["-c", &line]).env("CURL_HOME", folder.path());
        let told = output(&mut shell, RUN_MAX).await;
        let (head, body) = told.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        (head.to_ascii_lowercase(), body)
    };

    let (first, made) = submit().await;
    let (again, replayed) = submit().await;

    assert!(first.starts_with("http/1.1 201 "), "{first}");
    assert_eq!(
        (&made["ok"], &made["state"]),
        (&json!(true), &json!("submitted"))
    );
    assert!(again.starts_with("http/1.1 200 "), "{again}");
    assert!(again.contains("idempotent-replayed: true"), "{again}");
    assert!(again.contains("x-original-request-time: 20"), "{again}");
    assert!(again.contains("content-type: application/json"), "{again}");
    assert_eq!(replayed, made);
    demo.kill().await;
}

/// The TypeScript of a document as JavaScript.
async fn javascript(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let package = include_str!("documents/package.json");
        let lock = include_str!("documents/package-lock.json");
        npm::installed("documents", package, lock)
    });
    let made = folder.join(format!("{name}.js"));
    let mut esbuild = Command::new(folder.join("node_modules/.bin/esbuild"));
    let out = format!("--outfile={}", made.display());
    esbuild.arg(Path::new(HERE).join(name)).arg(out);
    output(&mut esbuild, RUN_MAX).await;
    made
}

/// Runs a scenario of a client's retry function; gives what came of it.
async fn retried(demo: &Process, script: &Path, names: &str, scenario: &str) -> Value {
    let mut node = Command::new("node");
    let harness = Path::new(HERE).join("retry.mjs");
    node.arg(harness).arg(demo.url()).arg(script);
    let told = output(node.args([names, scenario]), RUN_MAX).await;
    serde_json::from_str(&told).unwrap()
}

#[tokio::test]
async fn d0_8_1_2_the_retry_function_ends_as_the_table_of_8_1_3_says() {
    let (_folder, demo) = demo(&[]).await;
    let script = javascript("d0_67.ts").await;
    let run = async |scenario| retried(&demo, &script, "submitWithRetry", scenario).await;

    let succeeded = run("succeeded").await;
    let failed = run("failed").await;
    let running = run("running").await;
    let conflict = run("conflict").await;
    let hopeless = run("hopeless").await;

    assert_eq!(succeeded["heard"], json!([[200, "true"]]), "{succeeded}");
    assert_eq!(failed["heard"], json!([[201, null]]), "{failed}");
    assert_eq!(
        running["result"]["submissionId"],
        running["result"]["other"]
    );
    let statuses = running["heard"].to_string();
    assert!(statuses.contains("[201,null]") && statuses.contains("[200,\"true\"]"));
    for once in [&succeeded, &failed, &running] {
        assert_eq!(once["keys"], 1, "{once}");
    }
    assert_eq!(succeeded["slept"], json!([1000]));
    // It reads `retryable` beside the error instead of in it, and so tries again, in vain.
    assert_eq!(
        conflict["heard"],
        json!([[201, null], [409, null], [409, null], [409, null]])
    );
    assert!(conflict["result"]["refused"].is_string(), "{conflict}");
    assert_eq!(hopeless["result"]["refused"], "Failed after 3 attempts");
    assert_eq!(hopeless["slept"], json!([1000, 2000, 4000]));
    demo.kill().await;
}

#[tokio::test]
async fn d0_6_6_3_the_http_client_keeps_its_key_until_it_succeeds() {
    let (folder, demo) = demo(&[]).await;
    let both = format!("{}\n{}", script("d0_47.js"), script("d0_48.js"));
    let path = folder.path().join("client.js");
    std::fs::write(&path, both).unwrap();
    let names = "FormBridgeClient, submitWithRetry";
    let run = async |scenario| retried(&demo, &path, names, scenario).await;

    let succeeded = run("succeeded").await;
    let failed = run("failed").await;
    let hopeless = run("hopeless").await;

    assert_eq!(succeeded["heard"], json!([[200, "true"]]), "{succeeded}");
    assert_eq!(failed["heard"], json!([[201, null]]), "{failed}");
    for once in [&succeeded, &failed, &hopeless] {
        assert_eq!(once["keys"], 1, "{once}");
    }
    assert_eq!(succeeded["slept"], json!([2000]));
    assert_eq!(hopeless["result"]["refused"], "fetch failed");
    demo.kill().await;
}

#[tokio::test]
async fn d4_15_a_record_is_shown_with_every_field_of_the_example() {
    let (_folder, demo) = demo(&[]).await;
    let key = "abc123-a-key-long-enough-to-be-one";
    let body = json!({"item": "book"});
    let (status, made) = demo.post("/api/orders", key, body).await;

    let line = ["keys", "show", key, "--admin", demo.admin()];
    let (code, out, err) = run(&[&line[..], &["--json"]].concat()).await;
    let (_, people, _) = run(&line).await;

    assert_eq!((status, code), (201, 0), "{err}");
    let shown: Value = serde_json::from_str(&out).unwrap();
    let fingerprint = shown["fingerprint"].as_str().unwrap();
    assert!(fingerprint.len() == 64 && fingerprint.chars().all(|c| c.is_ascii_hexdigit()));
    assert_eq!(
        (&shown["state"], &shown["document_state"]),
        (&json!("done"), &json!("COMPLETED"))
    );
    let response = &shown["response"];
    assert_eq!(
        (&response["status"], &response["headers"]),
        (&json!(201), &json!({"content-type": "application/json"}))
    );
    let stored: Value = serde_json::from_str(response["body"].as_str().unwrap()).unwrap();
    assert_eq!(stored, made);
    let encoded = response["body_b64"].as_str().unwrap();
    assert_eq!(
        encoded.len(),
        response["body"].as_str().unwrap().len().div_ceil(3) * 4
    );
    for time in ["created_at", "expires_at"] {
        assert!(shown[time].as_str().unwrap().ends_with('Z'), "{shown}");
    }
    assert!(shown["execution_time_ms"].is_u64(), "{shown}");
    assert!(!out.contains(key), "a key is a secret: {out}");
    let id = made["order_id"].as_str().unwrap();
    assert_eq!(response["resource"], id);
    assert!(people.contains(&format!("made        {id}")), "{people}");
    assert!(people.contains("done (COMPLETED)"), "{people}");
    demo.kill().await;
}

/// The first line of the log that is as wanted, once it is there.
async fn logged(demo: &Process, wanted: impl Fn(&Value) -> bool) -> Value {
    let looking = async {
        loop {
            let log = demo.log();
            let mut lines = log
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            if let Some(line) = lines.find(|line| wanted(line)) {
                return line;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(RUN_MAX, looking).await.unwrap()
}

#[tokio::test]
async fn d2_a_duplicate_is_logged_in_the_words_of_the_broker() {
    let (_folder, demo) = demo(&[]).await;

    let script = script("d2_5.sh").replace("http://localhost:3001", demo.url());
    let answers = answers(&script).await;

    let line = logged(&demo, |line| {
        let message = line["message"].as_str().unwrap_or_default();
        message.starts_with("Duplicate submission detected - returning stored response for ")
    })
    .await;
    assert_eq!(line["level"], "info");
    assert_eq!(
        line["original_submission_time"],
        answers[1]["originalSubmittedAt"]
    );
    demo.kill().await;
}

#[tokio::test]
async fn d3_hits_and_concurrent_requests_are_logged_in_the_words_of_the_sync_service() {
    let (_folder, demo) = demo(&[]).await;
    let key = |n: u64| format!("550e8400-e29b-41d4-a716-{n:012}");
    let body = json!({"email": "ada@example.com"});
    for _ in 0..2 {
        demo.post("/api/v1/users", &key(0), body.clone()).await;
    }
    // Until one comes while another with its key runs.
    for round in 1..=100 {
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..10 {
            calls.spawn(demo.sender("/api/v1/users", &key(round), body.clone()));
        }
        let answers = calls.join_all().await;
        if answers.iter().flatten().any(|(status, _)| *status == 409) {
            break;
        }
    }

    let named = |name: &'static str| move |line: &Value| line["event"] == name;
    let hit = logged(&demo, named("idempotency_cache_hit")).await;
    let concurrent = logged(&demo, named("idempotency_concurrent_request")).await;

    assert_eq!(
        (&hit["level"], &concurrent["level"]),
        (&json!("info"), &json!("warn"))
    );
    assert!(hit["cached_status"].is_u64(), "{hit}");
    for line in [&hit, &concurrent] {
        assert_eq!(line["user_id"], "ada", "{line}");
        assert_eq!(line["operation_type"], "createUser", "{line}");
        let label = line["idempotencyKey"].as_str().unwrap();
        assert!(label.len() < 28, "a key is a secret: {line}");
    }
    assert!(hit["cached_at"].as_str().unwrap().ends_with('Z'), "{hit}");
    demo.kill().await;
}

/// The Python of a virtual environment with what the load test imports: made once, and for good.
async fn python() -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = all.join("documents-python");
    let noted = folder.join("requirements.txt");
    let python = folder.join("bin/python");
    if std::fs::read_to_string(&noted).is_ok_and(|it| it == REQUIREMENTS) {
        return python;
    }
    drop(std::fs::remove_dir_all(&folder));
    output(
        Command::new("python3").args(["-m", "venv"]).arg(&folder),
        RUN_MAX,
    )
    .await;
    let wanted = folder.join("wanted.txt");
    std::fs::write(&wanted, REQUIREMENTS).unwrap();
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--no-deps", "--quiet", "-r"])
        .arg(&wanted);
    output(&mut pip, RUN_MAX).await;
    // Last, so that half an installation is never taken for one.
    std::fs::rename(&wanted, &noted).unwrap();
    python
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_the_load_test_passes_as_written() {
    let python = python().await;
    let (_folder, demo) = demo(&[]).await;

    let mut load = Command::new(python);
    load.arg(Path::new(HERE).join("load.py"))
        .args([demo.url(), demo.token()])
        .arg(Path::new(HERE).join("d3_35.py"));
    let told: Value = serde_json::from_str(&output(&mut load, LOAD_MAX).await).unwrap();

    // Those that were retries replay the first answer, whatever they sent.
    assert_eq!(told["answers"], json!({"201": 10_000}), "{told}");
    let users = demo.get_as_user("/api/v1/users").await;
    let made = users["meta"]["count"].as_i64().unwrap();
    assert!((8_900..=9_100).contains(&made), "{told}: {made} users");
    demo.kill().await;
}

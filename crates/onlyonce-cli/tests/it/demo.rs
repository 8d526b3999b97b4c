//! `onlyonce demo` as a newcomer starts it: its curl lines, its end and its next start; and what
//! only a process can show, that a crash and the passing of time end as the documents say.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::JoinSet;

use self::process::{Clock, Process};
use crate::support::program::run;

pub(crate) mod process;

#[tokio::test]
async fn the_printed_curl_lines_do_what_they_say() {
    for profile in ["formbridge", "formbridge-008"] {
        let folder = tempfile::tempdir().unwrap();
        let args = ["--profile", profile];
        try_all(Process::start_with(folder.path(), Clock::RIGHT, &args).await).await;
    }
}

#[tokio::test]
async fn a_newcomer_sees_the_counters_move_and_keys_that_outlive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let submit = async |demo: &Process, key: &str| {
        let body = json!({"fields": {"companyName": "Acme"}});
        demo.post("/api/intakes/vendor-onboarding/submit", key, body)
            .await
            .0
    };
    let demo = Process::start(folder.path(), Clock::RIGHT).await;
    for key in ["k-1", "k-2", "k-3"] {
        assert_eq!(submit(&demo, key).await, 201);
    }
    for _ in 0..2 {
        assert_eq!(submit(&demo, "k-1").await, 200);
    }

    let replayed = "idempotency_request_replayed_total";
    assert_eq!(demo.metric(replayed).await, 2.0);
    let (code, top, _) = run(&["keys", "top", "--admin", demo.admin()]).await;
    assert_eq!(code, 0);
    assert!(top.contains("submit"), "{top}");
    let numbers = async |demo: &Process, wanted: usize| loop {
        let log = demo.log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let replays = lines.filter(|line| line["event"] == "idempotency.replay");
        let numbers: Vec<_> = replays
            .filter_map(|it| it["replay_count"].as_u64())
            .collect();
        if numbers.len() >= wanted {
            return numbers;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(numbers(&demo, 2).await, [1, 2]);
    assert!(demo.interrupt().await);

    let demo = Process::start(folder.path(), Clock::RIGHT).await;
    let kept = demo.metric("idem_keys_active").await;
    assert!(kept >= 3.0, "{kept}");
    assert_eq!(demo.metric("idempotency_key_active_count").await, kept);
    assert_eq!(submit(&demo, "k-1").await, 200);
    assert_eq!(numbers(&demo, 1).await, [3]);
    demo.kill().await;
}

async fn try_all(mut demo: Process) {
    let lines = demo.curl_lines().await;
    assert_eq!(lines.len(), 12, "{lines:?}");

    let mut before = String::new();
    for (answers, curl) in lines {
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &curl]).output().await.unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let (head, body) = said
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{curl}: {said}"));
        let mut expected = answers.split(", ");
        let status = expected.next().unwrap();
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{curl}\nanswers {answers}, but:\n{said}"
        );
        for part in expected {
            let is_there = match part {
                "the same body" => body == before,
                part => said.contains(part),
            };
            assert!(is_there, "{curl}\nanswers {answers}, but:\n{said}");
        }
        before = body.to_owned();
    }
    demo.kill().await;
}

#[tokio::test]
async fn ctrl_c_ends_it_well_and_a_restart_with_the_same_data_replays() {
    let folder = tempfile::tempdir().unwrap();
    let submit = async |demo: &Process| {
        demo.post(
            "/api/intakes/vendor-onboarding/submit",
            "k-1",
            json!({"fields": {"companyName": "Acme"}}),
        )
        .await
    };
    let charge = async |demo: &Process| {
        demo.post("/legacy/charges", "k-2", json!({"cents": 1}))
            .await
    };

    let demo = Process::start(folder.path(), Clock::RIGHT).await;
    let (submitted, charged) = (submit(&demo).await, charge(&demo).await);
    assert_eq!((submitted.0, charged.0), (201, 201));
    assert!(demo.interrupt().await, "it ends with exit code 0");

    let demo = Process::start(folder.path(), Clock::RIGHT).await;
    let (again, recharged) = (submit(&demo).await, charge(&demo).await);
    assert_eq!((again.0, again.1), (200, submitted.1));
    assert_eq!(recharged, charged);
    assert_eq!(demo.get("/legacy/charges").await["meta"]["count"], json!(1));
    assert!(demo.interrupt().await);
}

/// What a process answers to the same request now, an hour later and 25 hours later.
async fn over_time(path: &str, body: &Value) -> [(u16, Value); 3] {
    let folder = tempfile::tempdir().unwrap();
    let mut answers = Vec::new();
    for hours in [0, 1, 25] {
        let clock = Clock::ahead(Duration::from_secs(hours * 60 * 60));
        let demo = Process::start(folder.path(), clock).await;
        answers.push(demo.post(path, "abc123", body.clone()).await);
        assert!(demo.interrupt().await);
    }
    answers.try_into().unwrap()
}

#[tokio::test]
async fn d0_2_4_4_a_key_replays_within_its_time_and_is_new_after_it() {
    let body = json!({"fields": {"companyName": "Acme"}});

    let [first, soon, late] = over_time("/api/intakes/vendor-onboarding/submit", &body).await;

    assert_eq!((first.0, soon.0, late.0), (201, 200, 201));
    assert_eq!(first.1, soon.1);
    assert_ne!(first.1["submissionId"], late.1["submissionId"]);
}

#[tokio::test]
async fn d0_9_4_expired_keys_are_audit_events() {
    let folder = tempfile::tempdir().unwrap();
    let body = json!({"fields": {"companyName": "Acme"}});
    let demo = Process::start(folder.path(), Clock::RIGHT).await;
    let path = "/api/intakes/vendor-onboarding/submit";
    demo.post(path, "idem_abcdefghijklmnop", body.clone()).await;
    demo.post(path, "idem_abcdefghijklmnop", body.clone()).await;
    assert!(demo.interrupt().await);

    let late = Clock::ahead(Duration::from_secs(25 * 60 * 60));
    let demo = Process::start(folder.path(), late).await;
    let audit = demo.get("/demo/audit").await;

    let expired = audit["events"].as_array().unwrap().iter().find(|event| {
        event["eventType"] == "idempotency.key.expired"
            && event["metadata"]["operation"] == "submit"
    });
    let metadata = &expired.unwrap_or_else(|| panic!("{audit}"))["metadata"];
    assert_eq!(
        (&metadata["replayCount"], &metadata["reason"]),
        (&json!(1), &json!("ttl_elapsed"))
    );
    assert_eq!(
        (&metadata["intakeId"], &metadata["ttl_ms"]),
        (&json!("vendor-onboarding"), &json!(86_400_000))
    );
    assert!(
        metadata["submissionId"]
            .as_str()
            .unwrap()
            .starts_with("sub_")
    );
    assert!(
        metadata["lifetime_ms"].as_i64().unwrap() >= 24 * 60 * 60 * 1000,
        "{metadata}"
    );
    assert!(
        metadata["idempotencyKey"]
            .as_str()
            .unwrap()
            .starts_with("idem…")
    );

    // The key is a new one now, and so are its replays.
    for _ in 0..2 {
        demo.post(path, "idem_abcdefghijklmnop", body.clone()).await;
    }
    let audit = demo.get("/demo/audit").await;
    let events = audit["events"].as_array().unwrap().iter();
    let replays = events.filter(|event| {
        event["eventType"] == "idempotency.replay" && event["metadata"]["operation"] == "submit"
    });
    let counts: Vec<_> = replays.map(|it| &it["metadata"]["replayCount"]).collect();
    assert_eq!(counts, [&json!(1), &json!(1)], "{audit}");
    assert!(demo.interrupt().await);
}

#[tokio::test]
async fn d0_9_4_2_audit_events_are_kept_90_days_or_as_long_as_told() {
    let events = async |demo: &Process| {
        let audit = demo.get("/demo/audit").await;
        let events = audit["events"].as_array().unwrap().clone();
        let of_key = |it: &&Value| it["eventType"] == "idempotency.key.created";
        events.iter().filter(of_key).count()
    };
    for (keep, days, left) in [(None, 89, 2), (None, 91, 0), (Some("95d"), 91, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let more: Vec<&str> = keep.map_or(vec![], |keep| vec!["--audit-keep", keep]);
        let demo = Process::start_with(folder.path(), Clock::RIGHT, &more).await;
        for key in ["order-1", "order-2"] {
            demo.post("/api/orders", key, json!({"item": "book"})).await;
        }
        assert_eq!(events(&demo).await, 2);
        assert!(demo.interrupt().await);

        let later = Clock::ahead(Duration::from_secs(days * 24 * 60 * 60));
        let demo = Process::start_with(folder.path(), later, &more).await;

        assert_eq!(events(&demo).await, left, "{keep:?} after {days} days");
        assert!(demo.interrupt().await);
    }
}

#[tokio::test]
async fn d4_14_4_a_key_is_used_anew_once_its_time_is_over() {
    let [first, soon, late] = over_time("/api/orders", &json!({"item": "book"})).await;

    assert_eq!((first.0, soon.0, late.0), (201, 201, 201));
    assert_eq!(first.1, soon.1);
    assert_ne!(first.1["order_id"], late.1["order_id"]);
}

const KEYS: u64 = 40;
/// Each round is killed at another moment; one in which nothing was under way shows nothing.
const ROUNDS_MAX: usize = 20;

/// Sends one request a key, kills the process in the middle of it, and retries all of them in a
/// process whose clock is past every lease. Gives how many things were made, and whether a retry
/// took over what the dead process had begun.
async fn crash_and_retry(folder: &TempDir, round: usize, path: &str, body: &Value) -> (i64, bool) {
    let demo = Process::start(folder.path(), Clock::RIGHT).await;
    let mut calls = JoinSet::new();
    for n in 0..KEYS {
        calls.spawn(demo.sender(path, &key(round, n), body.clone()));
    }
    for _ in 0..=round {
        calls.join_next().await;
    }
    demo.kill().await;
    calls.join_all().await;

    let demo = Process::start(folder.path(), Clock::ahead(Duration::from_secs(60))).await;
    let mut calls = JoinSet::new();
    for n in 0..KEYS {
        calls.spawn(demo.sender(path, &key(round, n), body.clone()));
    }
    for answer in calls.join_all().await {
        assert_eq!(answer.map(|(status, _)| status), Some(201));
    }
    let made = demo.get_as_user(path).await["meta"]["count"]
        .as_i64()
        .unwrap();
    let attempts = demo.attempts().await;
    assert!(demo.interrupt().await);
    (made, attempts.iter().any(|attempt| *attempt > 1))
}

fn key(round: usize, n: u64) -> String {
    format!("{round:08x}-e29b-41d4-a716-{n:012x}")
}

async fn crashes(path: &str, body: Value) {
    for round in 0..ROUNDS_MAX {
        let folder = tempfile::tempdir().unwrap();
        let (made, took_over) = crash_and_retry(&folder, round, path, &body).await;
        assert_eq!(
            made,
            i64::try_from(KEYS).unwrap(),
            "one for each key, whenever it crashed"
        );
        if took_over {
            return;
        }
    }
    panic!("in {ROUNDS_MAX} rounds no crash left anything to take over");
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_case_5_a_backend_that_crashes_mid_processing_makes_nothing_twice() {
    crashes(
        "/api/v1/users",
        json!({"meta": {}, "payload": {"email": "john@example.com"}}),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_14_5_after_a_crash_the_lease_expires_and_a_retry_runs() {
    crashes("/api/orders", json!({"item": "book"})).await;
}

#[tokio::test]
async fn a_client_that_sends_too_much_hears_so_from_the_services_and_from_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let demo = Process::start(folder.path(), Clock::RIGHT).await;
    let large = vec![b'x'; 4 << 20];

    for round in 0..5 {
        for path in [
            "/api/orders",
            "/api/intakes/vendor-onboarding/submit",
            "/legacy/charges",
        ] {
            let status = demo.send_first(path, &key(round, 1), &large).await;
            assert_eq!(status, 413, "{path}");
        }
    }

    demo.kill().await;
}

#[tokio::test]
async fn what_the_demo_cannot_use_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let refused = async |args: &[&str]| {
        let data = folder.path().join("data").display().to_string();
        let usual = [
            "demo",
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--data",
            &data,
        ];
        let (code, _, err) = run(&[&usual[..], args].concat()).await;
        assert_eq!(code, 2, "{err}");
        err
    };
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let inside = Path::new(&file).join("data").display().to_string();

    assert!(
        refused(&["--profile", "formbrige"])
            .await
            .contains("unknown profile \"formbrige\"; there are: standard, formbridge,")
    );
    assert!(
        refused(&["--database", "redis://127.0.0.1"])
            .await
            .contains("the database must be sqlite:PATH or postgres://")
    );
    for flag in ["--intakes", "--forms"] {
        let told = refused(&[flag, "/nowhere.json"]).await;
        assert!(told.contains("/nowhere.json: cannot be read"), "{told}");
    }
    let (code, _, err) = run(&["demo", "--data", &inside]).await;
    assert_eq!(code, 2);
    assert!(err.contains("choose another folder with --data"), "{err}");
}

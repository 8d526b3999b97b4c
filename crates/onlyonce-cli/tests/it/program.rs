//! The real program: exit codes, output for people and for programs, and watching.

use onlyonce_cli::verify::CHECKS;
use onlyonce_core::Profile;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::support::foreign::{self, Flaw};
use crate::support::ours;
use crate::support::program::{RUN_MAX, onlyonce, run};

#[tokio::test]
async fn a_conforming_server_is_exit_0_with_a_readable_report() {
    let url = ours::start(Profile::Standard.policy()).await;

    let (code, out, err) = run(&["verify", &url, "--slow-path=/slow"]).await;

    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.starts_with(&format!("POST {url} held to the profile standard\n")));
    assert!(out.contains("pass  replay "), "{out}");
    assert!(
        out.contains("28 passed, 0 failed, 0 inconclusive, 4 not applicable ("),
        "{out}"
    );
    assert!(!out.contains('\x1b'), "colours are for terminals");
    assert_eq!(
        out.lines().filter(|line| line.starts_with("pass ")).count(),
        28
    );
}

#[tokio::test]
async fn a_server_that_does_not_conform_is_exit_1_with_evidence() {
    let url = foreign::start(Flaw::IgnoresPayloads).await;

    let (code, out, _) = run(&["verify", &url, "--only=replay,mismatch"]).await;

    assert_eq!(code, 1, "{out}");
    assert!(out.contains("FAIL  mismatch"), "{out}");
    assert!(out.contains("another payload was given the first answer, the profile says 422"));
    assert!(
        out.contains("another payload under the same key → 201 {\"order\":"),
        "{out}"
    );
    assert!(out.contains("idempotent-replayed: true"), "{out}");
    assert!(out.contains("1 passed, 1 failed, 0 inconclusive, 0 not applicable"));
}

#[tokio::test]
async fn a_report_for_programs_is_json() {
    let url = foreign::start(Flaw::StoresText).await;

    let (code, out, err) = run(&["verify", &url, "--only=replay,binary", "--json"]).await;

    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, err.as_str()), (1, ""));
    assert_eq!(report["url"], url);
    assert_eq!(
        (&report["profile"], &report["method"]),
        (&"standard".into(), &"POST".into())
    );
    assert_eq!(report["conforms"], false);
    assert_eq!(report["summary"]["failed"], 1);
    assert_eq!(report["checks"][0]["id"], "replay");
    assert_eq!(report["checks"][0]["judgement"], "pass");
    assert_eq!(report["checks"][1]["judgement"], "fail");
    assert_eq!(report["checks"][1]["proves"][0], "R2");
    let evidence = &report["checks"][1]["evidence"][0];
    assert_eq!(evidence["status"], 201);
    assert_eq!(
        evidence["headers"]["content-type"][0],
        "application/octet-stream"
    );
    assert!(evidence["body"].as_str().unwrap().contains("bytes: 00"));
}

#[tokio::test]
async fn what_cannot_be_used_is_exit_2_with_a_hint() {
    for args in [
        &["verify"][..],
        &["verify", "nonsense"],
        &["verify", "http://127.0.0.1:1/", "--profile=unheard-of"],
        &["verify", "http://127.0.0.1:1/", "--only=unheard-of"],
        &["verify", "http://127.0.0.1:1/"],
        &["unheard-of"],
        &[],
    ] {
        let (code, out, err) = run(args).await;

        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(!err.is_empty(), "{args:?}");
    }
    let (_, _, err) = run(&["verify", "http://127.0.0.1:1/"]).await;
    assert!(err.contains("hint: nothing listens there"), "{err}");
}

#[tokio::test]
async fn the_help_teaches() {
    let (code, out, _) = run(&["verify", "--help"]).await;

    assert_eq!(code, 0);
    for taught in [
        "--slow-path",
        "--other-header",
        "0  conforms: no check failed, and at least one passed",
        "1  does not conform",
        "2  wrong usage, or the endpoint cannot be used",
        "--explain CODE",
        "inconclusive: it could not be seen from outside",
        "exit code is 1 if the last finished round had failed, else 0",
        "never printed",
        "onlyonce verify http://127.0.0.1:8080/orders",
        "formbridge-008",
    ] {
        assert!(out.contains(taught), "{taught}:\n{out}");
    }
    let (_, short, _) = run(&["verify", "-h"]).await;
    assert!(short.lines().count() < 70, "{short}");
}

#[tokio::test]
async fn the_list_names_every_check_and_what_it_proves() {
    let (code, out, _) = run(&["verify", "--list"]).await;
    let (json_code, json, _) = run(&["verify", "--list", "--json"]).await;

    assert_eq!((code, json_code), (0, 0));
    assert_eq!(out.lines().count(), CHECKS.len());
    let json: Vec<Value> = serde_json::from_str(&json).unwrap();
    for ((line, check), listed) in out.lines().zip(CHECKS).zip(&json) {
        assert!(
            line.starts_with(check.id) && line.ends_with(check.title),
            "{line}"
        );
        assert!(check.proves.iter().all(|id| line.contains(id)), "{line}");
        assert_eq!(listed["id"], check.id);
    }
}

/// Watches until `rounds` lines are there, then presses Ctrl-C; gives the lines and the exit code.
#[cfg(unix)]
async fn watch(url: &str, rounds: usize, more: &[&str]) -> (Vec<String>, i32) {
    let args = [
        "verify",
        url,
        "--only=replay,marks",
        "--watch",
        "--every=200ms",
    ];
    let args: Vec<_> = args.iter().chain(more).copied().collect();
    let mut child = onlyonce(&args).spawn().unwrap();
    let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = Vec::new();
    let watching = async {
        while lines.len() < rounds {
            lines.push(told.next_line().await.unwrap().unwrap());
        }
        let id = child.id().unwrap().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().await;
        assert!(sent.unwrap().success());
        child.wait().await.unwrap()
    };
    let status = timeout(RUN_MAX, watching).await.unwrap();
    (lines, status.code().unwrap())
}

#[cfg(unix)]
#[tokio::test]
async fn watching_tells_one_line_a_round_and_ends_well_on_ctrl_c() {
    let url = ours::start(Profile::Standard.policy()).await;

    let (lines, code) = watch(&url, 3, &[]).await;

    assert_eq!(code, 0, "{lines:?}");
    for line in lines {
        assert!(line.contains("Z ok: 2 passed, 0 failed"), "{line}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn watching_is_exit_1_when_stopped_after_a_failed_round() {
    let url = foreign::start(Flaw::ForgetsMarks).await;

    let (lines, code) = watch(&url, 2, &[]).await;

    assert_eq!(code, 1, "{lines:?}");
    for line in lines {
        assert!(line.contains("Z FAILED: 1 passed, 1 failed"), "{line}");
        assert!(
            line.contains("marks (the first answer has no idempotency-key)"),
            "{line}"
        );
    }
}

#[cfg(unix)]
#[tokio::test]
async fn watching_goes_on_while_the_server_is_away() {
    let (lines, code) = watch("http://127.0.0.1:1/", 2, &["--json"]).await;

    assert_eq!(code, 1);
    for line in lines {
        let round: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(round["conforms"], false);
        assert!(round["error"].as_str().unwrap().contains("cannot connect"));
    }
}

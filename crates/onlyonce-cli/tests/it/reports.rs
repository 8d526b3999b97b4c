//! What `verify` reports to a team: causes by harm, in every format, and never a success that was
//! not seen.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use onlyonce_cli::verify::{CHECKS, CODES, Harm};
use onlyonce_core::Profile;
use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::Value;

use crate::support::foreign::{self, Flaw};
use crate::support::program::run;
use crate::support::{ours, plan, report, serve};

const URL: &str = "http://127.0.0.1:8080/orders";

/// The codes of a report's causes, in order.
async fn codes(flaw: Flaw) -> Vec<&'static str> {
    let url = foreign::start(flaw).await;
    let report = report(&url, &["--slow-path=/slow"]).await;
    report.causes.iter().map(|cause| cause.code).collect()
}

#[tokio::test]
async fn one_broken_thing_is_one_cause_however_many_checks_it_fails() {
    let url = foreign::start(Flaw::IgnoresKeys).await;

    let report = report(&url, &["--slow-path=/slow"]).await;

    let causes = &report.causes;
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert_eq!(
        (causes[0].code, causes[0].harm),
        ("runs-again", Harm::RunsTwice)
    );
    assert_eq!(causes[0].checks.len(), report.summary.failed);
    assert_eq!(causes[0].checks[0], "replay");
}

#[tokio::test]
async fn each_flaw_is_reported_by_its_cause() {
    for (flaw, expected) in [
        (Flaw::None, &[][..]),
        (Flaw::StoresAfterAnswering, &["duplicates-run"]),
        (Flaw::GivesUpWithItsClient, &["abandoned-run"]),
        (Flaw::IgnoresPayloads, &["payload-ignored"]),
        (Flaw::ReplaysCookies, &["cookies-replayed"]),
        (Flaw::TakesQuotesAsPartOfTheKey, &["key-form-runs"]),
        (Flaw::SpeaksPlainText, &["error-shape"]),
        (Flaw::NeedsKeys, &["good-request-refused"]),
        (Flaw::FoldsCase, &["keys-confused"]),
    ] {
        assert_eq!(codes(flaw).await, expected, "{flaw:?}");
    }
}

#[tokio::test]
async fn a_key_that_must_be_there_is_expected_to_be_demanded() {
    let mut policy = Profile::Standard.policy();
    let required = onlyonce_core::policy::KeyNeed::Required;
    policy.http.methods = policy.http.methods.all_need(required);
    let demanding = ours::start(policy).await;
    let lenient = ours::start(Profile::Standard.policy()).await;
    let only = "--only=missing-key";

    let as_expected = report(&demanding, &[only, "--key=required"]).await;
    let unexpected = report(&demanding, &[only]).await;
    let missed = report(&lenient, &[only, "--key=required"]).await;

    assert!(as_expected.conforms);
    assert_eq!(unexpected.causes[0].code, "good-request-refused");
    assert_eq!(missed.causes[0].code, "unkeyed-runs");
    assert_eq!(missed.causes[0].harm, Harm::RunsTwice);
}

#[tokio::test]
async fn a_config_says_what_each_route_promises() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onlyonce.toml");
    let text = r#"
        upstream = "http://127.0.0.1:3000"

        [[route]]
        match = "POST /orders"
        profile = "stripe"
        rules.key = "required"

        [[route]]
        match = "POST /free/{*rest}"
        pass = true
    "#;
    std::fs::write(&file, text).unwrap();
    let config = format!("--config={}", file.display());
    let server = serve(Router::new().route("/orders", post(async || "the same"))).await;

    let held = report(&server, &[&config, "--only=missing-key"]).await;
    let passing = plan("http://127.0.0.1:8080/free/x", &[&config])
        .err()
        .unwrap();
    let both = plan(URL, &[&config, "--profile=stripe"]).err().unwrap();
    let missing = plan(URL, &["--config=no-such-file.toml"]).err().unwrap();

    assert!(
        held.profile.starts_with("stripe (as in "),
        "{}",
        held.profile
    );
    assert!(
        held.profile.ends_with("route POST /orders)"),
        "{}",
        held.profile
    );
    assert_eq!(held.causes[0].code, "unkeyed-runs");
    assert!(passing.contains("passes through unprotected"), "{passing}");
    assert!(both.contains("cannot be used with"), "{both}");
    assert!(missing.contains("cannot be read"), "{missing}");
}

#[tokio::test]
async fn a_run_that_saw_nothing_hold_does_not_conform() {
    let url = serve(Router::new().route("/orders", post(async || "always the same"))).await;

    let (code, out, _) = run(&["verify", &url, "--only=new-key"]).await;
    let (_, junit, _) = run(&["verify", &url, "--only=new-key", "--format=junit"]).await;

    assert_eq!(code, 1, "{out}");
    assert!(out.contains("nothing is proven"), "{out}");
    assert_eq!(elements(&junit, "error").len(), 1, "{junit}");
}

#[tokio::test]
async fn a_server_that_goes_away_during_the_run_is_a_failure_without_an_answer() {
    let requests = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let app = Router::new().route(
        "/orders",
        post(async move || {
            let number = requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            // The first two are the soundings.
            if number >= 2 {
                std::future::pending::<()>().await;
            }
            number.to_string()
        }),
    );
    let url = serve(app).await;

    let report = report(&url, &["--only=replay,marks", "--timeout=300ms"]).await;

    assert!(!report.conforms);
    assert_eq!(report.causes[0].code, "no-answer");
    assert_eq!(report.causes[0].checks, ["replay", "marks"]);
}

/// The attributes `message` and `type` of every element called so; fails if it is no XML.
fn elements(xml: &str, name: &str) -> Vec<(String, String)> {
    let mut reader = Reader::from_str(xml);
    let mut found = Vec::new();
    loop {
        let event = reader.read_event().unwrap();
        let (Event::Start(element) | Event::Empty(element)) = event else {
            if matches!(event, Event::Eof) {
                return found;
            }
            continue;
        };
        let text = |name: &str| {
            let attribute = element.try_get_attribute(name).unwrap();
            let value = attribute.map(|it| it.value.into_owned());
            value.unwrap_or_default()
        };
        if element.name().as_ref() == name {
            found.push((text("type"), text("message")));
        }
    }
}

#[tokio::test]
async fn junit_has_a_test_case_per_check_and_a_failure_per_failed_one() {
    let url = foreign::start(Flaw::IgnoresPayloads).await;
    let only = "--only=replay,mismatch,derived-key";

    let (code, xml, err) = run(&["verify", &url, only, "--format=junit"]).await;

    assert_eq!((code, err.as_str()), (1, ""));
    assert_eq!(elements(&xml, "testcase").len(), 3, "{xml}");
    assert_eq!(elements(&xml, "skipped").len(), 1);
    let failures = elements(&xml, "failure");
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].0, "payload-ignored");
    assert!(failures[0].1.contains("was given the first answer"));
    assert!(
        xml.contains(r#"tests="3" failures="1" errors="0" skipped="1""#),
        "{xml}"
    );
}

#[tokio::test]
async fn markdown_names_the_worst_first_with_why_mend_and_evidence() {
    let url = foreign::start(Flaw::IgnoresPayloads).await;

    let (code, out, _) = run(&[
        "verify",
        &url,
        "--only=replay,mismatch",
        "--format=markdown",
    ])
    .await;

    assert_eq!(code, 1);
    assert!(
        out.starts_with(&format!("# POST `{url}` does not conform\n")),
        "{out}"
    );
    for part in [
        "## 1. May lose an operation: another payload under a used key gets the first answer",
        "- **Code:** `payload-ignored`",
        "- **Why it matters:** ",
        "- **How to mend it:** ",
        "  - `mismatch`: another payload was given the first answer",
        "    another payload under the same key → 201",
        "| `replay` | ",
    ] {
        assert!(out.contains(part), "{part}:\n{out}");
    }
}

#[tokio::test]
async fn what_a_server_sends_cannot_break_out_of_a_report() {
    let hostile = "]]></failure><x a='\"&`|**\u{7}\n\n# not a heading";
    let app = Router::new().route(
        "/orders",
        post(async move || {
            static RUNS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            let run = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            (StatusCode::CREATED, format!("{run}{hostile}"))
        }),
    );
    let url = serve(app).await;

    let (_, xml, _) = run(&["verify", &url, "--only=replay", "--format=junit"]).await;
    let (_, markdown, _) = run(&["verify", &url, "--only=replay", "--format=markdown"]).await;

    assert_eq!(elements(&xml, "failure").len(), 1, "{xml}");
    assert!(elements(&xml, "x").is_empty(), "{xml}");
    assert!(!markdown.contains("\n# not"), "{markdown}");
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_used_is_an_error_in_every_format() {
    let url = "http://127.0.0.1:1/orders";

    let (json_code, json, _) = run(&["verify", url, "--format=json"]).await;
    let (junit_code, junit, _) = run(&["verify", url, "--format=junit"]).await;
    let (markdown_code, markdown, err) = run(&["verify", url, "--format=markdown"]).await;

    assert_eq!((json_code, junit_code, markdown_code), (2, 2, 2));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["conforms"], false);
    assert!(json["error"].as_str().unwrap().contains("cannot connect"));
    assert_eq!(elements(&junit, "error").len(), 1, "{junit}");
    assert!(markdown.contains("was not verified"), "{markdown}");
    assert!(err.contains("hint: nothing listens there"), "{err}");
}

#[tokio::test]
async fn every_code_is_explained_without_a_server() {
    let (code, runs_again, _) = run(&["verify", "--explain", "runs-again"]).await;
    let (_, check, _) = run(&["verify", "--explain", "hang-up"]).await;
    let (wrong, _, err) = run(&["verify", "--explain", "run-again"]).await;

    assert_eq!(code, 0);
    assert!(
        runs_again.contains("harm       may run twice"),
        "{runs_again}"
    );
    assert!(runs_again.contains("shown by   replay"), "{runs_again}");
    assert!(check.contains("abandoned-run"), "{check}");
    assert_eq!(wrong, 2);
    assert!(err.contains("did you mean runs-again?"), "{err}");
    for code in CODES {
        assert!(!code.why().is_empty() && !code.mend().is_empty());
    }
    assert!(CHECKS.iter().all(|check| CODES.contains(&check.code)));
}

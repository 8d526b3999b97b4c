//! An endpoint whose executions answer the same bytes: what cannot be told is not passed.

use axum::Router;
use axum::routing::post;
use onlyonce_cli::verify::Judgement;
use onlyonce_core::{Engine, MemoryStore, Profile};
use onlyonce_tower::IdempotencyLayer;

use crate::support::{ours, report, serve, told};

/// What only shows where two executions answer differently.
const UNSEEN: [&str; 10] = [
    "new-key",
    "replay",
    "json-spelling",
    "concurrency",
    "binary",
    "empty-body",
    "large-request",
    "missing-key",
    "quoted-key",
    "case",
];

async fn same_answer() -> &'static str {
    "done"
}

async fn constant() -> String {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let layer = IdempotencyLayer::new(engine).profile(Profile::Standard);
    serve(
        Router::new()
            .route("/orders", post(same_answer))
            .layer(layer),
    )
    .await
}

#[tokio::test]
async fn what_two_equal_answers_do_not_show_is_inconclusive() {
    let report = report(&constant().await, &[]).await;

    for id in UNSEEN {
        let finding = report.finding(id).unwrap();
        assert_eq!(finding.judgement, Judgement::Inconclusive, "{id}");
        assert!(
            finding.because.contains("cannot tell"),
            "{id}: {}",
            finding.because
        );
    }
    assert_eq!(report.summary.failed, 0, "{}", told(&report));
    assert!(report.conforms);
}

#[tokio::test]
async fn what_two_equal_answers_do_show_is_judged() {
    let report = report(&constant().await, &[]).await;

    for id in ["marks", "mismatch", "two-keys", "empty-key", "error-body"] {
        let finding = report.finding(id).unwrap();
        assert_eq!(
            finding.judgement,
            Judgement::Pass,
            "{id}: {}",
            finding.because
        );
    }
}

#[tokio::test]
async fn who_is_strict_does_not_take_that_for_conforming() {
    let report = report(&constant().await, &["--strict", "--only=replay,mismatch"]).await;

    assert_eq!((report.summary.inconclusive, report.summary.passed), (1, 1));
    assert!(!report.conforms);
}

#[tokio::test]
async fn a_server_without_idempotency_is_caught_all_the_same() {
    let url = serve(Router::new().route("/orders", post(same_answer))).await;

    let report = report(&url, &["--only=replay,marks,mismatch,two-keys"]).await;

    for id in ["marks", "mismatch", "two-keys"] {
        let finding = report.finding(id).unwrap();
        assert_eq!(finding.judgement, Judgement::Fail, "{id}");
    }
    assert!(!report.conforms);
}

/// A quick endpoint under a profile that does not mark replays.
#[tokio::test]
async fn what_cannot_be_met_while_it_runs_is_inconclusive_and_says_what_would_help() {
    let url = ours::start(Profile::Ietf.policy()).await;

    let args = [
        "--profile=ietf",
        "--only=in-flight,in-flight-mismatch,hang-up",
    ];
    let report = report(&url, &args).await;

    assert_eq!(report.summary.inconclusive, 3, "{}", told(&report));
    for finding in &report.checks {
        assert!(
            finding.because.contains("--slow-path"),
            "{}",
            finding.because
        );
    }
}

//! Real services of every profile, and what the client makes of their refusals.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use http::HeaderName;
use onlyonce_client::{Cause, Failure, Key, Keys, Operation, Sender};
use onlyonce_core::policy::Duplicate;
use onlyonce_core::{Engine, MemoryStore, OnLapse, Policy, Profile};
use onlyonce_tower::IdempotencyLayer;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::{http, serve};

/// `/quick` answers, `/slow` only when the gate opens, `/long` with a long answer.
pub(crate) async fn start(mut policy: Policy) -> (String, Arc<Semaphore>) {
    // The client has one way to send its key.
    policy.http.key_header = HeaderName::from_static("idempotency-key");
    policy.http.key_time = None;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let slow = async move || {
        let _pass = held.acquire().await;
        "slow"
    };
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let app = Router::new()
        .route("/quick", post(async || "quick"))
        .route("/slow", post(slow))
        .route("/long", post(async || "long".repeat(1000)))
        .layer(IdempotencyLayer::new(engine).policy(policy));
    (serve(app).await, gate)
}

fn sender() -> Sender {
    Sender::new(http())
}

fn ask(url: &str, context: u32, bytes: usize) -> Operation {
    let body = json!({"contextId": "c", "formData": {"n": context, "pad": "x".repeat(bytes)}});
    Operation::post(url).unwrap().json(&body).unwrap()
}

async fn refused(operation: &Operation, key: &Key) -> Failure {
    sender().attempt(operation, key).await.unwrap_err()
}

#[tokio::test]
async fn a_mismatch_is_a_conflict_whatever_the_profile() {
    for profile in Profile::ALL {
        let mut policy = profile.policy();
        // Where the document would replay the original, let the body count.
        policy.fingerprint = Policy::default().fingerprint;
        let (address, _) = start(policy).await;
        let (url, key) = (format!("{address}/quick"), Keys::default().v4());
        sender().attempt(&ask(&url, 1, 0), &key).await.unwrap();

        let failure = sender().send(&ask(&url, 2, 0), &key).await.unwrap_err();

        assert_eq!(
            (failure.cause, failure.attempts),
            (Cause::Conflict, 1),
            "{profile}: {failure}"
        );
    }
}

#[tokio::test]
async fn an_operation_in_progress_is_told_from_a_conflict_whatever_the_profile() {
    for profile in Profile::ALL {
        let policy = Policy {
            duplicate: Duplicate::Refuse,
            ..profile.policy()
        };
        let (address, gate) = start(policy).await;
        let (url, key) = (format!("{address}/slow"), Keys::default().v4());
        let first = tokio::spawn({
            let (operation, key) = (ask(&url, 1, 0), key.clone());
            async move { sender().attempt(&operation, &key).await }
        });

        // Either it is running, or this attempt is the one that runs: then it is that.
        let again = ask(&url, 1, 0);
        let failure = tokio::select! {
            failure = refused(&again, &key) => failure,
            first = first => first.unwrap().unwrap_err(),
        };

        assert_eq!(failure.cause, Cause::InProgress, "{profile}: {failure}");
        gate.add_permits(2);
    }
}

#[tokio::test]
async fn an_unknown_outcome_is_told_from_a_conflict_whatever_the_profile() {
    for profile in Profile::ALL {
        let policy = Policy {
            on_lapse: OnLapse::Hold,
            execution_max: Duration::from_millis(10),
            ..profile.policy()
        };
        let (address, _gate) = start(policy).await;
        let (url, key) = (format!("{address}/slow"), Keys::default().v4());
        let late = refused(&ask(&url, 1, 0), &key).await;

        let failure = refused(&ask(&url, 1, 0), &key).await;

        assert!(late.cause.may_have_run(), "{profile}: {late}");
        assert_eq!(failure.cause, Cause::OutcomeUnknown, "{profile}: {failure}");
        assert!(!failure.cause.is_retryable());
    }
}

#[tokio::test]
async fn too_large_is_told_whatever_the_profile() {
    for profile in Profile::ALL {
        let mut policy = profile.policy();
        policy.limits.request_bytes_max = 500;
        policy.limits.response_bytes_max = 500;
        let (address, _) = start(policy).await;
        let (url, key) = (format!("{address}/long"), Keys::default().v4());

        let request = refused(&ask(&url, 1, 1000), &Keys::default().v4()).await;
        sender().attempt(&ask(&url, 1, 0), &key).await.unwrap();
        let response = refused(&ask(&url, 1, 0), &key).await;

        assert_eq!(
            request.cause,
            Cause::RequestTooLarge,
            "{profile}: {request}"
        );
        assert_eq!(
            response.cause,
            Cause::ResponseTooLarge,
            "{profile}: {response}"
        );
    }
}

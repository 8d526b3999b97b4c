//! D1, feature 008: its headers and its edge cases, under its own profile.

use serde_json::json;

use crate::support::{Ask, Bed};

async fn bed() -> Bed {
    Bed::with(|options| options.intake_profile = "formbridge-008".to_owned()).await
}

fn submit(bed: &Bed, company: &str) -> Ask {
    bed.post("/api/intakes/vendor-onboarding/submit")
        .json(json!({"fields": {"companyName": company}}))
}

#[tokio::test]
async fn d1_response_headers_echo_the_key_and_tell_replay_and_expiry() {
    let bed = bed().await;

    let first = submit(&bed, "Acme").key("any text: 1/2").send().await;
    let retry = submit(&bed, "Acme").key("any text: 1/2").send().await;

    assert_eq!(
        (
            first.status.as_u16(),
            first.header("Idempotency-Key"),
            first.header("X-Idempotent-Replayed")
        ),
        (201, Some("any text: 1/2"), None)
    );
    assert_eq!(
        (
            retry.status.as_u16(),
            retry.header("Idempotency-Key"),
            retry.header("X-Idempotent-Replayed")
        ),
        (200, Some("any text: 1/2"), Some("true"))
    );
    assert_eq!(first.text, retry.text);
    let expires = first.header("X-Idempotent-Expires").unwrap();
    assert_eq!(retry.header("X-Idempotent-Expires"), Some(expires));
    assert!(expires.ends_with('Z'), "{expires}");
}

#[tokio::test]
async fn d1_edge_case_request_body_mismatch_is_422() {
    let bed = bed().await;

    submit(&bed, "Acme").key("k").send().await;
    let other = submit(&bed, "Evil").key("k").send().await;

    assert_eq!(
        (other.status.as_u16(), &other.json()["error"]["type"]),
        (422, &json!("conflict"))
    );
    assert_eq!(other.header("Idempotency-Key"), Some("k"));
}

#[tokio::test]
async fn d1_edge_case_key_format_invalid_is_400_with_a_message() {
    let bed = bed().await;

    let long = submit(&bed, "Acme").key(&"x".repeat(257)).send().await;
    let exact = submit(&bed, "Acme").key(&"x".repeat(256)).send().await;

    assert_eq!((long.status.as_u16(), exact.status.as_u16()), (400, 201));
    assert!(
        long.json()["error"]["message"]
            .as_str()
            .unwrap()
            .contains("256"),
        "{}",
        long.text
    );
}

#[tokio::test]
async fn d1_edge_case_key_missing_on_required_endpoint_is_400_with_a_message() {
    let bed = bed().await;

    let missing = submit(&bed, "Acme").send().await;
    let id = bed
        .post("/api/intakes/vendor-onboarding/submissions")
        .key("d")
        .json(json!({}))
        .send()
        .await
        .text_at("submissionId");
    let optional = bed
        .patch(&format!("/api/submissions/{id}/fields"))
        .json(json!({"fields": {"companyName": "Acme"}}))
        .send()
        .await;
    let looking = bed
        .post(&format!("/api/submissions/{id}/validate"))
        .send()
        .await;

    assert_eq!(
        (missing.status.as_u16(), &missing.json()["ok"]),
        (400, &json!(false))
    );
    assert!(
        missing.json()["error"]["message"]
            .as_str()
            .unwrap()
            .contains("key"),
        "{}",
        missing.text
    );
    assert_eq!(
        (optional.status.as_u16(), looking.status.as_u16()),
        (200, 200)
    );
}

#[tokio::test]
async fn d1_key_scoping_keeps_users_and_anonymous_callers_apart() {
    let bed = bed().await;
    let (ada, bob) = (
        bed.token("user", "ada").await,
        bed.token("user", "bob").await,
    );

    let anonymous = submit(&bed, "Acme").key("k").send().await;
    let by_ada = submit(&bed, "Acme").key("k").token(&ada).send().await;
    let by_bob = submit(&bed, "Acme").key("k").token(&bob).send().await;
    let refreshed = bed.token("user", "ada").await;
    let again = submit(&bed, "Acme").key("k").token(&refreshed).send().await;

    let ids = [&anonymous, &by_ada, &by_bob].map(|answer| answer.text_at("submissionId"));
    assert!(
        ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2],
        "{ids:?}"
    );
    assert_ne!(ada, refreshed);
    assert_eq!(
        (again.status.as_u16(), again.text_at("submissionId")),
        (200, ids[1].clone())
    );
}

//! D0, the idempotency design of FormBridge: its sequence diagrams (§2.4), its HTTP API (§7.1), its
//! event stream (§7.3), its keys (§6) and its edge cases (§8), as they are written there.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Answer, Ask, Bed};

const SUBMIT: &str = "/api/intakes/vendor-onboarding/submit";

fn submit(bed: &Bed, key: &str, company: &str) -> Ask {
    bed.post(SUBMIT)
        .key(key)
        .json(json!({"fields": {"companyName": company}}))
}

async fn submissions(bed: &Bed) -> i64 {
    // One webhook is put for each; the inbox counts them once they are delivered.
    let told = bed
        .until("/demo/inbox", |inbox| inbox["count"].as_i64() > Some(0))
        .await;
    told["count"].as_i64().unwrap()
}

#[tokio::test]
async fn d0_2_4_1_an_initial_request_and_its_replay() {
    let bed = Bed::new().await;

    let first = submit(&bed, "abc123", "Acme").send().await;
    let retry = submit(&bed, "abc123", "Acme").send().await;

    assert_eq!(first.status, 201);
    assert_eq!(
        (retry.status.as_u16(), retry.header("Idempotent-Replayed")),
        (200, Some("true"))
    );
    assert_eq!(first.text, retry.text);
}

#[tokio::test]
async fn d0_2_4_2_the_same_key_with_another_payload_conflicts() {
    let bed = Bed::new().await;

    let first = submit(&bed, "abc123", "Acme").send().await;
    let other = submit(&bed, "abc123", "Evil Corp").send().await;

    assert_eq!((first.status.as_u16(), other.status.as_u16()), (201, 409));
    let error = &other.json()["error"];
    assert_eq!(
        (&error["type"], &error["retryable"]),
        (&json!("conflict"), &json!(false))
    );
    assert_eq!(
        submit(&bed, "another-key", "Evil Corp").send().await.status,
        201
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn d0_2_4_3_of_concurrent_requests_one_runs_and_all_hear_the_same() {
    let bed = Bed::new().await;

    let mut calls = JoinSet::new();
    for _ in 0..32 {
        calls.spawn(submit(&bed, "abc123", "Acme").send());
    }
    let answers: Vec<Answer> = calls.join_all().await;

    let created = answers.iter().filter(|answer| answer.status == 201).count();
    let replayed = answers
        .iter()
        .filter(|answer| answer.header("Idempotent-Replayed") == Some("true"))
        .count();
    assert_eq!((created, replayed), (1, 31));
    let ids: BTreeSet<_> = answers
        .iter()
        .map(|answer| answer.text_at("submissionId"))
        .collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(submissions(&bed).await, 1);
}

#[tokio::test]
async fn d0_7_1_the_http_api_answers_as_written() {
    let bed = Bed::new().await;

    let first = submit(&bed, "idem_abc123xyz", "Acme Corp").send().await;
    let retry = submit(&bed, "idem_abc123xyz", "Acme Corp").send().await;

    let body =
        json!({"ok": true, "submissionId": first.text_at("submissionId"), "state": "submitted"});
    assert_eq!(
        (
            first.status.as_u16(),
            first.header("Content-Type"),
            first.json()
        ),
        (201, Some("application/json"), body.clone())
    );
    assert_eq!(
        (
            first.header("Idempotent-Replayed"),
            first.header("X-Original-Request-Time")
        ),
        (None, None)
    );
    assert_eq!(
        (
            retry.status.as_u16(),
            retry.header("Content-Type"),
            retry.json()
        ),
        (200, Some("application/json"), body)
    );
    assert_eq!(retry.header("Idempotent-Replayed"), Some("true"));
    let time = retry.header("X-Original-Request-Time").unwrap();
    assert!(
        time.len() == 24 && time.ends_with('Z') && time.contains('T'),
        "{time}"
    );
}

#[tokio::test]
async fn d0_7_3_a_replay_is_an_event_with_its_original_and_number() {
    let bed = Bed::new().await;
    let token = bed.token("agent", "agent_xyz").await;
    let submit = || submit(&bed, "idem_7f3a9d2e-8c4b-4f1a", "Acme Corp").token(&token);

    let id = submit().send().await.text_at("submissionId");
    submit().send().await;
    submit().send().await;

    let path = format!("/api/submissions/{id}/events");
    let events = bed.getting(&path).token(&token).send().await.json()["events"].clone();
    let [original, first, second] = &events.as_array().unwrap()[..] else {
        panic!("{events}")
    };
    assert_eq!(original["type"], "submission.submitted");
    for (number, replay) in [(1, first), (2, second)] {
        assert_eq!(replay["type"], "submission.replayed");
        assert_eq!(replay["submissionId"], json!(id));
        assert_eq!(replay["actor"], json!({"type": "agent", "id": "agent_xyz"}));
        assert_eq!(replay["payload"]["originalEventId"], original["eventId"]);
        assert_eq!(replay["payload"]["replayNumber"], json!(number));
        assert_eq!(
            replay["payload"]["idempotencyKey"],
            original["payload"]["idempotencyKey"]
        );
        assert!(replay["timestamp"].is_string() && replay["eventId"].is_string());
    }
    let key = original["payload"]["idempotencyKey"].as_str().unwrap();
    assert!(
        key.starts_with("idem…") && !key.contains("7f3a9d2e-8c4b"),
        "{key}"
    );
}

#[tokio::test]
async fn d0_5_3_an_intake_and_a_request_can_say_how_long() {
    let bed = Bed::new().await;
    let expires = async |key: &str| {
        let audit = bed.get("/demo/audit").await.json();
        let events = audit["events"].as_array().unwrap().clone();
        let it = events
            .iter()
            .find(|it| {
                it["metadata"]["idempotencyKey"]
                    .as_str()
                    .unwrap()
                    .starts_with(key)
            })
            .unwrap()
            .clone();
        it["metadata"]["expiresAt"].as_str().unwrap().to_owned()
    };
    let day = |text: &str| text[8..10].parse::<i32>().unwrap();
    let today = |audit: &Value| audit["events"][0]["timestamp"].as_str().unwrap().to_owned();

    submit(&bed, "aaaa-key-of-more-than-twenty", "Acme")
        .send()
        .await;
    let now = today(&bed.get("/demo/audit").await.json());
    let built_in = expires("aaaa").await;
    let asked =
        submit(&bed, "bbbb-key-of-more-than-twenty", "Acme").header("X-Idempotency-TTL", "3600000");
    assert_eq!(asked.send().await.status, 201);
    let requested = expires("bbbb").await;
    let longer = bed
        .post("/api/intakes/access-request/submit")
        .key("cccc-key-of-more-than-twenty")
        .json(json!({"fields": {"system": "vpn", "reason": "travel"}}));
    assert_eq!(longer.send().await.status, 201);
    let by_intake = expires("cccc").await;

    assert!(
        now < requested && requested < built_in && built_in < by_intake,
        "{now} {requested} {built_in} {by_intake}"
    );
    assert_ne!(day(&now), day(&built_in));
    let wrong = submit(&bed, "dddd", "Acme")
        .header("X-Idempotency-TTL", "soon")
        .send()
        .await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test]
async fn d0_6_1_a_key_is_scoped_to_its_intake() {
    let bed = Bed::new().await;

    let vendor = submit(&bed, "abc123", "Acme").send().await;
    let access = bed
        .post("/api/intakes/access-request/submit")
        .key("abc123")
        .json(json!({"fields": {"system": "vpn", "reason": "travel"}}))
        .send()
        .await;

    assert_eq!((vendor.status.as_u16(), access.status.as_u16()), (201, 201));
    assert_ne!(
        vendor.text_at("submissionId"),
        access.text_at("submissionId")
    );
}

#[tokio::test]
async fn d0_6_4_keys_are_1_to_255_url_safe_characters_and_case_sensitive() {
    let bed = Bed::new().await;

    for bad in [
        "a b",
        "a#b",
        "a/b",
        "a?b",
        "a&b",
        "a=b",
        "a%b",
        "workflow-123:step-1",
        &"x".repeat(256),
    ] {
        let refused = submit(&bed, bad, "Acme").send().await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json()["error"]["type"]),
            (400, &json!("invalid_request")),
            "{bad}"
        );
    }
    for good in [
        &"x".repeat(255),
        "abc123",
        "ABC123",
        "workflow-abc123_step-onboarding",
        "20240129T120000Z_abc.123",
    ] {
        assert_eq!(
            submit(&bed, good, "Acme").send().await.status,
            201,
            "{good}"
        );
    }
}

#[tokio::test]
async fn d0_1_2_a_request_without_a_key_works_normally() {
    let bed = Bed::new().await;
    let send = async || {
        bed.post(SUBMIT)
            .json(json!({"fields": {"companyName": "Acme"}}))
            .send()
            .await
    };

    let (first, second) = (send().await, send().await);

    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    assert_ne!(
        first.text_at("submissionId"),
        second.text_at("submissionId")
    );
}

#[tokio::test]
async fn d0_8_1_a_client_that_times_out_gets_its_answer_by_retrying() {
    let bed = Bed::new().await;

    // The client gives up at once; what it sent may or may not have begun.
    let lost = submit(&bed, "abc123", "Acme")
        .within(std::time::Duration::from_millis(1))
        .try_send()
        .await;
    let retry = submit(&bed, "abc123", "Acme").send().await;

    drop(lost);
    assert!(retry.status.is_success(), "{retry:?}");
    assert_eq!(submissions(&bed).await, 1);
    assert_eq!(submit(&bed, "abc123", "Acme").send().await.text, retry.text);
}

#[tokio::test]
async fn d0_8_4_2_field_order_and_whitespace_are_no_conflict() {
    let bed = Bed::new().await;
    let send = async |body: &str| bed.post(SUBMIT).key("abc123").body(body).send().await;

    let first = send(r#"{"fields":{"companyName":"Acme","country":"DE"}}"#).await;
    let again =
        send("{ \"fields\" : { \"country\" : \"DE\",\n \"companyName\" : \"\\u0041cme\" } }").await;

    assert_eq!((first.status.as_u16(), again.status.as_u16()), (201, 200));
    assert_eq!(first.text, again.text);
}

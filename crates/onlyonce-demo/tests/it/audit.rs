//! D0 §9.4: the audit events of keys.

use std::time::Duration;

use onlyonce_demo::Options;
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::postgres::database;
use crate::support::Bed;

#[tokio::test]
async fn d0_9_4_created_replayed_and_conflicting_keys_are_audit_events() {
    let bed = Bed::new().await;
    let (ada, key) = (
        bed.token("agent", "agent_456").await,
        "idem_abcdefghijklmnopqrst",
    );
    let submit = async |company: &str| {
        bed.post("/api/intakes/vendor-onboarding/submit")
            .token(&ada)
            .key(key)
            .json(json!({"fields": {"companyName": company}}))
            .send()
            .await
    };

    let made = submit("Acme").await.text_at("submissionId");
    submit("Acme").await;
    submit("Acme").await;
    submit("Evil").await;

    let audit = bed.get("/demo/audit").await;
    assert!(
        !audit.text.contains(key),
        "a key is never whole in an event"
    );
    // The webhook's own delivery is a keyed request too.
    let is_intake = |event: &&Value| event["metadata"]["operation"] != "/demo/inbox";
    let events = audit.json()["events"].as_array().unwrap().clone();
    let events: Vec<Value> = events.iter().filter(is_intake).cloned().collect();
    let of = |name: &str| -> Vec<&Value> {
        events
            .iter()
            .filter(|event| event["eventType"] == name)
            .collect()
    };
    let created = of("idempotency.key.created");
    assert_eq!(
        (created.len(), &created[0]["metadata"]["operation"]),
        (1, &json!("submit"))
    );
    assert!(created[0]["metadata"]["expiresAt"].is_string());
    assert_eq!(created[0]["metadata"]["ttl_ms"], 86_400_000);
    for event in created.iter().chain(&of("idempotency.replay")) {
        assert_eq!(event["metadata"]["submissionId"], json!(made), "{event}");
    }
    let counts: Vec<_> = of("idempotency.replay")
        .iter()
        .map(|it| it["metadata"]["replayCount"].as_i64().unwrap())
        .collect();
    assert_eq!(counts.iter().max(), Some(&2), "{events:?}");
    let conflict = of("idempotency.conflict");
    assert_eq!(conflict.len(), 1);
    let metadata = &conflict[0]["metadata"];
    assert_eq!(
        (&metadata["conflictType"], &metadata["originalActor"]),
        (
            &json!("payload_mismatch"),
            &json!({"type": "agent", "id": "agent_456"})
        )
    );
    let hashes = ["originalRequestHash", "conflictingRequestHash"].map(|it| metadata[it].as_str());
    assert!(hashes[0].is_some() && hashes[1].is_some() && hashes[0] != hashes[1]);
    for event in &events {
        assert_eq!(
            event["metadata"]["intakeId"], "vendor-onboarding",
            "{event}"
        );
        assert_eq!(event["actor"], json!({"type": "agent", "id": "agent_456"}));
        assert!(
            event["metadata"]["idempotencyKey"]
                .as_str()
                .unwrap()
                .starts_with("idem…")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d0_9_4_waiting_for_a_running_request_is_an_audit_event() {
    let url = database("demo_contention").await;
    let bed = Bed::start(&Options::new(&url), None).await;
    let submit = || {
        bed.post("/api/intakes/vendor-onboarding/submit")
            .key("abc123")
            .json(json!({"fields": {"companyName": "Acme"}}))
    };

    // As long as this is held, the first request cannot end.
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    let mut held = connection.begin().await.unwrap();
    sqlx::query("LOCK TABLE submissions")
        .execute(&mut *held)
        .await
        .unwrap();
    let first = tokio::spawn(submit().send());
    let second = tokio::spawn(submit().send());
    let waiting = async || bed.demo.engine().load().waiting == 1;
    while !waiting().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    held.rollback().await.unwrap();
    let is_contention = |event: &&Value| event["eventType"] == "idempotency.lock.contention";
    let audit = bed
        .until("/demo/audit", |audit| {
            audit["events"]
                .as_array()
                .unwrap()
                .iter()
                .any(|event| is_contention(&event))
        })
        .await;

    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(first.text, second.text);
    let event = audit["events"]
        .as_array()
        .unwrap()
        .iter()
        .find(is_contention)
        .unwrap()
        .clone();
    assert_eq!(event["metadata"]["queueDepth"], json!(1));
    assert!(event["metadata"]["waitTime_ms"].is_u64(), "{event}");
    assert!(
        event["metadata"]["lockHolder"]
            .as_str()
            .unwrap()
            .starts_with("instance-"),
        "{event}"
    );
}

#[tokio::test]
async fn d0_9_4_3_the_events_of_an_actor_are_deleted_on_request() {
    let bed = Bed::new().await;
    let (ada, other) = (
        bed.token("agent", "ada").await,
        bed.token("user", "ADA").await,
    );
    for (token, key) in [(&ada, "of-ada"), (&other, "of-the-other")] {
        for company in ["Acme", "Evil"] {
            bed.post("/api/intakes/vendor-onboarding/submit")
                .token(token)
                .key(key)
                .json(json!({"fields": {"companyName": company}}))
                .send()
                .await;
        }
    }
    let names = async || -> Vec<String> {
        let audit = bed.get("/demo/audit").await.json();
        let events = audit["events"].as_array().unwrap().clone();
        let ids = events.iter().filter_map(|it| it["actor"]["id"].as_str());
        ids.map(str::to_owned).collect()
    };
    let of = |names: &[String], name: &str| names.iter().filter(|it| *it == name).count();

    let before = names().await;
    let gone = bed.deleting("/demo/audit?actor=ada").send().await;
    let after = names().await;
    let again = bed.deleting("/demo/audit?actor=ada").send().await;

    assert_eq!((of(&before, "ada"), of(&before, "ADA")), (2, 2));
    assert_eq!(
        (gone.status.as_u16(), gone.json()),
        (200, json!({"removed": 2}))
    );
    assert_eq!((of(&after, "ada"), of(&after, "ADA")), (0, 2));
    assert_eq!(again.json(), json!({"removed": 0}));
    assert!(!bed.get("/demo/audit").await.text.contains("\"ada\""));
    for wrong in ["/demo/audit", "/demo/audit?actor="] {
        assert_eq!(bed.deleting(wrong).send().await.status, 400, "{wrong}");
    }
}

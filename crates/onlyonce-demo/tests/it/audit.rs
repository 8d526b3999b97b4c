//! D0 §9.4: the audit events of keys.

use serde_json::{Value, json};

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

    submit("Acme").await;
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
        (1, &json!("/api/intakes/vendor-onboarding/submit"))
    );
    assert!(created[0]["metadata"]["expiresAt"].is_string());
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
    for event in &events {
        assert_eq!(event["actor"], json!({"type": "agent", "id": "agent_456"}));
        assert!(
            event["metadata"]["idempotencyKey"]
                .as_str()
                .unwrap()
                .starts_with("idem…#")
        );
    }
}

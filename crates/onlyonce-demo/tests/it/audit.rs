//! D0 §9.4: the audit events of keys.

use std::time::Duration;

use onlyonce::core::operate::{Filter, Page};
use onlyonce::core::{Deed, Engine, Operate, Operated, Record, Slot};
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

/// Events of this type, the newest first.
async fn events(bed: &Bed, name: &str) -> Vec<Value> {
    let audit = bed.get("/demo/audit").await.json();
    let events = audit["events"].as_array().unwrap().iter();
    let of_intake = events.filter(|event| event["metadata"]["operation"] == "submit");
    of_intake
        .filter(|event| event["eventType"] == name)
        .cloned()
        .collect()
}

/// The record of the one submission there is.
async fn submitted(engine: &Engine) -> (Slot, Record) {
    let filter = Filter {
        operation: Some("submit".to_owned()),
        ..Filter::default()
    };
    let page = Page {
        after: None,
        records_max: 2,
    };
    let mut found = operate(engine).list(&filter, &page).await.unwrap();
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn operate(engine: &Engine) -> &dyn Operate {
    engine.store().operate().unwrap()
}

fn operated(deed: Deed) -> Operated {
    Operated {
        deed,
        by: Some("ops".into()),
        reason: None,
        via: "api",
    }
}

async fn submit_for(bed: &Bed, key: &str, ttl_ms: u32) {
    let request = bed.post("/api/intakes/vendor-onboarding/submit").key(key);
    let request = request.header("X-Idempotency-TTL", &ttl_ms.to_string());
    let body = json!({"fields": {"companyName": "Acme"}});
    assert_eq!(request.json(body).send().await.status, 201);
}

#[tokio::test]
async fn d0_9_4_3_the_events_of_an_actor_are_deleted_from_the_audit_trail_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let bed = Bed::with(|options| options.audit = Some(path.clone())).await;
    let (ada, other) = (
        bed.token("agent", "ada").await,
        bed.token("user", "other").await,
    );
    for (token, key) in [(&ada, "of-ada"), (&other, "of-the-other")] {
        for company in ["Acme", "Acme", "Evil"] {
            bed.post("/api/intakes/vendor-onboarding/submit")
                .token(token)
                .key(key)
                .json(json!({"fields": {"companyName": company}}))
                .send()
                .await;
        }
    }
    let trail = || std::fs::read_to_string(&path).unwrap();
    let of = |text: &str, id: &str| text.matches(&format!("\"{id}\"")).count();
    bed.get("/demo/audit").await;
    while of(&trail(), "ada") < 4 || of(&trail(), "other") < 4 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let gone = bed.deleting("/demo/audit?actor=ada").send().await;

    assert_eq!(gone.status, 200, "{gone:?}");
    let told = gone.json();
    assert_eq!(
        (&told["removed"], &told["removedFromTrail"]),
        (&json!(3), &json!(3))
    );
    let left = trail();
    assert_eq!(of(&left, "ada"), 0, "{left}");
    assert!(of(&left, "other") >= 4, "{left}");
}

#[tokio::test]
async fn d0_9_4_what_an_operator_forgets_is_told_once_as_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let bed = Bed::with(|options| options.audit = Some(path.clone())).await;
    submit_for(&bed, "a-key", 60_000).await;
    let observed = bed.demo.observed();
    let (slot, record) = submitted(&observed.engine).await;

    assert!(operate(&observed.engine).forget(&slot).await.unwrap());
    observed
        .observers
        .operated(&slot, &record, operated(Deed::Forgot));

    let expired = events(&bed, "idempotency.key.expired").await;
    assert_eq!(expired.len(), 1, "{expired:?}");
    let metadata = &expired[0]["metadata"];
    assert_eq!(metadata["reason"], "explicit_delete");
    assert_eq!(metadata["ttl_ms"], 60_000);
    assert!(metadata["submissionId"].is_string(), "{metadata}");
    // It had more than a second; this one has not.
    submit_for(&bed, "a-key", 1_000).await;
    let expired = bed
        .until("/demo/audit", |audit| {
            let ended = audit.to_string().matches("ttl_elapsed").count();
            ended == 1
        })
        .await;
    let told = expired.to_string().matches("explicit_delete").count();
    assert_eq!(told, 1, "{expired}");
}

#[tokio::test]
async fn d0_9_4_what_an_operator_keeps_longer_ends_then() {
    let bed = Bed::new().await;
    submit_for(&bed, "a-key", 1_000).await;
    let observed = bed.demo.observed();
    let (slot, _) = submitted(&observed.engine).await;
    let by = Duration::from_secs(3);
    assert!(operate(&observed.engine).extend(&slot, by).await.unwrap());
    let record = operate(&observed.engine).get(&slot).await.unwrap().unwrap();
    observed
        .observers
        .operated(&slot, &record, operated(Deed::Extended { by }));

    let mut replays = 0;
    while events(&bed, "idempotency.key.expired").await.is_empty() {
        let retry = bed
            .post("/api/intakes/vendor-onboarding/submit")
            .key("a-key");
        let retry = retry.json(json!({"fields": {"companyName": "Acme"}}));
        if retry.send().await.header("Idempotent-Replayed") == Some("true") {
            replays += 1;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    let expired = events(&bed, "idempotency.key.expired").await;
    let metadata = &expired[0]["metadata"];
    assert_eq!(metadata["ttl_ms"], 4_000, "{metadata}");
    assert!(
        metadata["lifetime_ms"].as_i64() >= Some(3_900),
        "{metadata}"
    );
    assert_eq!(metadata["reason"], "ttl_elapsed");
    assert!(replays > 3, "{replays}");
}

/// Two processes on one database number the replays of one key together.
#[tokio::test(flavor = "multi_thread")]
async fn d0_9_4_replays_have_the_numbers_that_the_engine_gives_them() {
    let url = database("demo_numbers").await;
    let options = Options {
        hosts: vec!["shop.example".to_owned()],
        ..Options::new(&url)
    };
    let beds = [
        Bed::start(&options, None).await,
        Bed::start(&options, None).await,
    ];
    let submit = async |bed: &Bed| {
        bed.post("/api/intakes/vendor-onboarding/submit")
            .host("shop.example")
            .key("one-key")
            .json(json!({"fields": {"companyName": "Acme"}}))
            .send()
            .await
    };
    assert_eq!(submit(&beds[0]).await.status, 201);
    // A replay that nobody wrote down: its process ended before.
    let (slot, _) = submitted(beds[0].demo.engine()).await;
    let unwritten = operate(beds[0].demo.engine());
    unwritten.count_replays(&[(slot, 1)]).await.unwrap();

    for bed in [&beds[0], &beds[1], &beds[0], &beds[1]] {
        submit(bed).await;
        bed.get("/demo/audit").await;
    }

    let told = events(&beds[0], "idempotency.replay").await;
    let mut numbers: Vec<_> = told
        .iter()
        .map(|it| it["metadata"]["replayCount"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3, 4, 5], "{told:?}");
}

//! What is settled only in part is told as that, and the trail has each outcome that was settled.

use std::path::Path;
use std::sync::Arc;

use onlyonce_gateway::Gateway;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::forms::deeds;
use super::{attempts, in_doubt_around, send, slots, url};
use crate::support::client;
use crate::support::flaky::{Act, Flaky, Shared};

/// A gateway on a store that can fail, with outcomes in doubt, that keeps a trail.
async fn flaky(outcomes: usize, trail: &Path) -> (Gateway, Arc<Flaky>) {
    let store = Arc::<Flaky>::default();
    let shared = Arc::new(Shared(Arc::clone(&store)));
    let audit = format!("audit = {{ path = {trail:?} }}\n");
    let gateway = in_doubt_around(outcomes, &audit, |_| shared).await;
    (gateway, store)
}

async fn settle(gateway: &Gateway, body: Value) -> (StatusCode, Value) {
    let request = client().post(url(gateway, "/api/v1/records/settle"));
    let answer = request.json(&body).send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

#[tokio::test]
async fn outcomes_that_cannot_be_settled_are_named_and_all_others_are_settled_and_audited() {
    let folder = tempfile::tempdir().unwrap();
    let trail = folder.path().join("audit.jsonl");
    let (gateway, store) = flaky(4, &trail).await;
    let all = slots(&gateway).await;
    store.fail(Act::Resolve, &all[1]);
    store.fail(Act::ResolveReply, &all[2]);
    let asked = json!({"outcome": "did_not_happen", "by": "mia", "reason": "a crash"});

    let (status, settled) = settle(&gateway, asked).await;

    assert_eq!(status, 200, "{settled}");
    assert_eq!(
        (&settled["matched"], &settled["settled"]),
        (&json!(4), &json!(3))
    );
    assert_eq!(settled["failed"][0]["slot"], *all[1]);
    assert_eq!(settled["failed"].as_array().unwrap().len(), 1);
    assert_eq!(slots(&gateway).await, [all[1].clone()]);
    let deeds = deeds(&trail, 3).await;
    assert_eq!(deeds.len(), 3);
    assert!(deeds.iter().all(|it| it["actor"]["id"] == "mia"));
}

#[tokio::test]
async fn an_outcome_whose_slot_cannot_be_freed_at_once_is_settled_and_audited() {
    let folder = tempfile::tempdir().unwrap();
    let trail = folder.path().join("audit.jsonl");
    let (gateway, store) = flaky(1, &trail).await;
    let all = slots(&gateway).await;
    store.fail(Act::Forget, &all[0]);
    let asked = json!({"outcome": "did_not_happen", "reason": "a crash"});

    let (status, settled) = settle(&gateway, asked).await;

    assert_eq!(
        (status.as_u16(), &settled["settled"]),
        (200, &json!(1)),
        "{settled}"
    );
    let why = settled["failed"][0]["why"].as_str().unwrap();
    assert!(why.contains("was not freed at once"), "{why}");
    assert_eq!(slots(&gateway).await, Vec::<String>::new());
    let deeds = deeds(&trail, 1).await;
    assert_eq!(deeds[0]["eventType"], "idempotency.operator.discard");
}

#[tokio::test]
async fn where_nothing_can_be_settled_it_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, store) = flaky(5, &folder.path().join("audit.jsonl")).await;
    for slot in slots(&gateway).await {
        store.fail(Act::Resolve, &slot);
    }
    let asked = json!({"outcome": "did_not_happen", "reason": "a crash"});

    let (status, problem) = settle(&gateway, asked).await;

    assert_eq!(status, 503, "{problem}");
    assert_eq!(slots(&gateway).await.len(), 5);
}

#[tokio::test]
async fn the_console_names_what_was_not_settled() {
    let folder = tempfile::tempdir().unwrap();
    let (gateway, store) = flaky(2, &folder.path().join("audit.jsonl")).await;
    let (all, ids) = (slots(&gateway).await, attempts(&gateway).await);
    store.fail(Act::Resolve, &all[0]);
    let fields = [
        ("attempt", ids[0].as_str()),
        ("attempt", ids[1].as_str()),
        ("outcome", "did_not_happen"),
        ("reason", "a crash"),
    ];

    let told = send(&gateway, "/in-doubt/settle", &fields).await;

    assert_eq!(told.status, 200);
    told.has("1 of 2 outcomes settled");
    told.has(&format!("href=\"/records/{}\"", all[0]));
    told.has_not(&all[1]);
}

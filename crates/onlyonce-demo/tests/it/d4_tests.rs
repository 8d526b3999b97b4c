//! D4 §14, the middleware's test plan, 1 to 3 and 6, on a service under its profile. 4 and 5 need a
//! process whose clock can be moved and which can be killed: see the `onlyonce` command.

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{Ask, Bed};

fn order(bed: &Bed, key: &str, item: &str) -> Ask {
    bed.post("/api/orders").key(key).json(json!({"item": item}))
}

async fn orders(bed: &Bed) -> i64 {
    bed.get("/api/orders").await.json()["meta"]["count"]
        .as_i64()
        .unwrap()
}

#[tokio::test]
async fn d4_14_1_happy_path_replays_identically() {
    let bed = Bed::new().await;

    let first = order(&bed, "abc123", "book").send().await;
    let retry = order(&bed, "abc123", "book").send().await;

    assert_eq!(
        (
            first.status.as_u16(),
            first.header("Idempotency-Key"),
            first.header("Idempotent-Replay")
        ),
        (201, Some("abc123"), None)
    );
    assert_eq!(
        (
            retry.status.as_u16(),
            retry.header("Idempotency-Key"),
            retry.header("Idempotent-Replay")
        ),
        (201, Some("abc123"), Some("true"))
    );
    assert_eq!(
        (
            first.text == retry.text,
            first.header("Content-Type") == retry.header("Content-Type")
        ),
        (true, true)
    );
    assert_eq!(orders(&bed).await, 1);
}

#[tokio::test]
async fn d4_14_2_a_different_fingerprint_conflicts_with_409() {
    let bed = Bed::new().await;

    order(&bed, "abc123", "book").send().await;
    let other = order(&bed, "abc123", "car").send().await;

    assert_eq!(
        (other.status.as_u16(), other.header("Content-Type")),
        (409, Some("application/problem+json"))
    );
    assert_eq!(
        order(&bed, &"x".repeat(201), "book").send().await.status,
        422,
        "a malformed key"
    );
    assert_eq!(orders(&bed).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_14_3_of_concurrent_requests_only_one_executes() {
    let bed = Bed::new().await;

    let mut calls = JoinSet::new();
    for _ in 0..64 {
        calls.spawn(order(&bed, "abc123", "book").send());
    }
    let answers = calls.join_all().await;

    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 201 && answer.text == answers[0].text)
    );
    let replays = answers
        .iter()
        .filter(|answer| answer.header("Idempotent-Replay").is_some())
        .count();
    assert_eq!((replays, orders(&bed).await), (63, 1));
}

#[tokio::test]
async fn d4_14_6_a_large_body_is_rejected() {
    let bed = Bed::new().await;

    let large = order(&bed, "abc123", &"x".repeat(1024 * 1024)).send().await;
    let small = order(&bed, "abc123", "book").send().await;

    assert_eq!((large.status.as_u16(), small.status.as_u16()), (413, 201));
    assert_eq!(orders(&bed).await, 1);
}

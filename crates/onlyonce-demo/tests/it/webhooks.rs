//! One delivery a submission, never one for a replay, and the same key however often it is tried.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Redirect};
use axum::routing::{any, post};
use serde_json::json;
use tokio::sync::Notify;

use crate::support::{Bed, intakes};

#[tokio::test]
async fn a_submission_is_told_once_and_a_replay_never() {
    let bed = Bed::new().await;
    let submit = async |key: &str, company: &str| {
        bed.post("/api/intakes/vendor-onboarding/submit")
            .key(key)
            .json(json!({"fields": {"companyName": company}}))
            .send()
            .await
    };

    let first = submit("k1", "Acme").await;
    for _ in 0..5 {
        submit("k1", "Acme").await;
    }
    submit("k2", "Last").await;

    // One that fails at first goes out again later, after others: so both are waited for.
    let inbox = bed
        .until("/demo/inbox", |it| {
            let deliveries = it["deliveries"].as_array().unwrap();
            ["Acme", "Last"].iter().all(|company| {
                let mut told = deliveries.iter();
                told.any(|it| it["told"]["fields"]["companyName"] == *company)
            })
        })
        .await;
    assert_eq!(inbox["count"], json!(2), "{inbox}");
    let told = inbox["deliveries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["told"]["fields"]["companyName"] == "Acme")
        .unwrap();
    assert_eq!(told["told"]["event"], "submission.submitted");
    assert_eq!(
        told["told"]["submissionId"],
        json!(first.text_at("submissionId"))
    );
}

/// A receiver that refuses what it gets at first, and remembers under which key it came.
#[derive(Clone, Default)]
struct Receiver {
    keys: Arc<Mutex<Vec<String>>>,
    taken: Arc<Notify>,
}

impl Receiver {
    async fn serve(&self) -> String {
        let receiver = self.clone();
        let take = move |headers: HeaderMap| async move {
            let key = headers["idempotency-key"].to_str().unwrap().to_owned();
            let mut keys = receiver.keys.lock().unwrap();
            keys.push(key);
            if keys.len() < 3 {
                return StatusCode::BAD_GATEWAY;
            }
            receiver.taken.notify_one();
            StatusCode::OK
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/hook", post(take));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        format!("http://{address}/hook")
    }
}

#[tokio::test]
async fn a_delivery_that_is_refused_is_tried_again_under_the_same_key() {
    let receiver = Receiver::default();
    let folder = tempfile::tempdir().unwrap();
    let path = intakes(
        &folder,
        &json!([{
            "id": "poll", "title": "Poll", "fields": {}, "idempotency": {"enabled": true},
            "webhook": receiver.serve().await,
        }]),
    );
    let bed = Bed::with(|options| options.intakes = Some(path)).await;

    let submitted = bed
        .post("/api/intakes/poll/submit")
        .key("k1")
        .json(json!({}))
        .send()
        .await;
    receiver.taken.notified().await;

    assert_eq!(
        submitted.status, 201,
        "a receiver that is down is no concern of the caller"
    );
    let keys = receiver.keys.lock().unwrap().clone();
    let different: BTreeSet<_> = keys.iter().collect();
    assert_eq!((keys.len(), different.len()), (3, 1), "{keys:?}");
    assert!(keys[0].starts_with("whk_"));
}

#[tokio::test]
async fn a_delivery_that_is_redirected_to_a_page_is_not_delivered() {
    let tries = Arc::new(Mutex::new(0));
    let (tried, settled) = (Arc::clone(&tries), Arc::new(Notify::new()));
    let (taken, followed) = (Arc::clone(&settled), Arc::clone(&settled));
    let hook = move || async move {
        let mut tries = tried.lock().unwrap();
        *tries += 1;
        if *tries < 3 {
            return Redirect::to("/login").into_response();
        }
        taken.notify_one();
        StatusCode::OK.into_response()
    };
    let login = move || async move {
        followed.notify_one();
        "please sign in"
    };
    let router = Router::new()
        .route("/hook", post(hook))
        .route("/login", any(login));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let folder = tempfile::tempdir().unwrap();
    let path = intakes(
        &folder,
        &json!([{
            "id": "poll", "title": "Poll", "fields": {}, "idempotency": {"enabled": true},
            "webhook": format!("http://{address}/hook"),
        }]),
    );
    let bed = Bed::with(|options| options.intakes = Some(path)).await;

    let submit = bed.post("/api/intakes/poll/submit").key("k1");
    submit.json(json!({})).send().await;
    settled.notified().await;

    assert_eq!(*tries.lock().unwrap(), 3, "a page was taken for a receipt");
}

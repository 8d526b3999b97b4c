//! What a handler may know and say, as an argument of an axum handler.

use axum::body::Body;
use axum::routing::post;
use axum::{Router, http};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use onlyonce_core::{Engine, MemoryStore};
use onlyonce_tower::{Execution, IdempotencyLayer};
use tower::ServiceExt;

/// Two handlers: one that needs its execution, and one that can do without.
async fn app() -> Router {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    Router::new()
        .route("/needs", post(needs))
        .route("/takes", post(takes))
        .layer(IdempotencyLayer::new(engine))
}

async fn needs(execution: Execution) -> String {
    format!("{} {}", execution.key().expose(), execution.attempt())
}

async fn takes(execution: Option<Execution>) -> String {
    execution.map_or("no key".to_owned(), |it| it.key().expose().to_owned())
}

async fn send(app: &Router, path: &str, key: Option<&str>) -> (StatusCode, String) {
    let mut request = Request::post(path);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let response = app.clone().oneshot(request.body(Body::empty()).unwrap());
    let (parts, body) = response.await.unwrap().into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (parts.status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn a_handler_takes_its_execution_as_an_argument() {
    let app = app().await;

    let answer = send(&app, "/needs", Some("key-1")).await;

    assert_eq!(answer, (StatusCode::OK, "key-1 1".to_owned()));
}

#[tokio::test]
async fn a_handler_that_can_do_without_a_key_takes_an_option() {
    let app = app().await;

    let keyed = send(&app, "/takes", Some("key-1")).await;
    let bare = send(&app, "/takes", None).await;

    assert_eq!(keyed, (StatusCode::OK, "key-1".to_owned()));
    assert_eq!(bare, (StatusCode::OK, "no key".to_owned()));
}

#[tokio::test]
async fn a_handler_that_needs_a_key_is_not_run_without_one_and_the_answer_says_why() {
    let app = app().await;

    let (status, text) = send(&app, "/needs", None).await;

    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text.contains("needs an idempotency key"), "{text}");
}

//! An axum service behind our layer, with everything in its answers that a replay can get wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use axum::routing::post;
use onlyonce_core::{Engine, MemoryStore, Policy};
use onlyonce_tower::IdempotencyLayer;

use super::serve;

/// Long enough to be met while it runs.
pub(crate) const SLOW: Duration = Duration::from_millis(300);

type Orders = Arc<AtomicU64>;

/// Serves orders under a policy.
pub(crate) async fn start(policy: Policy) -> String {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    serve(bare().layer(IdempotencyLayer::new(engine).policy(policy))).await
}

/// The same service without protection.
pub(crate) fn bare() -> Router {
    Router::new()
        .route("/orders", post(order).get(async || "orders"))
        .route("/slow", post(slow_order))
        .with_state(Orders::default())
}

async fn order(State(orders): State<Orders>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    answer(&orders, &headers, &body)
}

async fn slow_order(orders: State<Orders>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    tokio::time::sleep(SLOW).await;
    order(orders, headers, body).await
}

/// A new order: its number is in the body, in its address and wherever else it may go wrong.
pub(crate) fn answer(orders: &Orders, headers: &HeaderMap, body: &[u8]) -> Response<Body> {
    let number = orders.fetch_add(1, Ordering::Relaxed) + 1;
    let content_type = headers.get("content-type").map(|it| it.as_bytes());
    let (content_type, body) = match content_type {
        Some(b"application/octet-stream") => (
            "application/octet-stream",
            [&number.to_be_bytes(), body].concat(),
        ),
        _ => (
            "application/json",
            format!(r#"{{"order":{number},"bytes":{}}}"#, body.len()).into_bytes(),
        ),
    };
    Response::builder()
        .status(201)
        .header("content-type", content_type)
        .header("location", format!("/orders/{number}"))
        .header("etag", format!("\"{number}\""))
        .header("link", "</orders>; rel=collection")
        .header("link", "</help>; rel=help")
        .header("set-cookie", format!("session={number}"))
        .header("keep-alive", format!("timeout=5, max={number}"))
        .body(body.into())
        .unwrap()
}

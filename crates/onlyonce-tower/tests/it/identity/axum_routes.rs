//! Two routes of an axum router that look the same from inside must not share a record.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::post as on_post;
use onlyonce_core::{Engine, MemoryStore};
use onlyonce_tower::IdempotencyLayer;

use crate::support::{App, numbered, post};

#[tokio::test]
async fn nested_routers_never_share_a_record() {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let inside = Router::new()
        .route(
            "/pay",
            on_post(move || {
                let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
                async move { numbered(200, run) }
            }),
        )
        .layer(IdempotencyLayer::new(engine.clone()));
    let router = Router::new()
        .nest("/orders/{id}", inside.clone())
        .nest("/refunds/{id}", inside);
    let app = App::routed(engine, runs, router);
    let order = post("/orders/1/pay").key("k");
    let other_order = post("/orders/2/pay").key("k");
    let refund = post("/refunds/1/pay").key("k");

    assert_eq!(app.send(&order).await.run(), 1);

    for other in [&other_order, &refund] {
        assert_eq!(app.send(other).await.status, 422);
    }
    assert_eq!(app.send(&order).await.run(), 1);
    assert_eq!(app.runs(), 1);
}

#[tokio::test]
async fn a_record_names_the_route_it_was_matched_by() {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let router = Router::new()
        .route("/orders/{id}/pay", on_post(async || numbered(200, 1)))
        .layer(IdempotencyLayer::new(engine.clone()));
    let app = App::routed(engine, Arc::default(), router);

    app.send(&post("/orders/1/pay").key("k")).await;

    let operation = &app.record().await.meta.operation;
    assert_eq!(&**operation, "/orders/{id}/pay");
}

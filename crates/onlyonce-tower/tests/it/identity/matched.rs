//! A router before the layer has matched the route: its parameters are taken from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::middleware::map_request;
use axum::routing::{get, post as on_post};
use http::Request;
use onlyonce_core::{Engine, MemoryStore, Policy, Profile};
use onlyonce_tower::{IdempotencyLayer, PathParams, ScopePart};

use crate::support::{App, Ask, ask, numbered, post};

const PATTERN: &str = "/intakes/{intake}/submit";

/// Takes what a test says in headers for what a router has found.
async fn matched(mut request: Request<Body>) -> Request<Body> {
    let said = |name: &str| {
        let value = request.headers().get(name)?.to_str().unwrap();
        Some(PathParams::new([("intake", value)]))
    };
    let params = said("x-own").or_else(|| Some(said("x-operation")?.of_operation()));
    if let Some(params) = params {
        request.extensions_mut().insert(params);
    }
    request
}

async fn app() -> App {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut policy: Policy = Profile::Standard.policy();
    policy.fingerprint.path = false;
    policy.http.status_path = Some("/status".into());
    let layer = IdempotencyLayer::new(engine.clone())
        .policy(policy)
        .scope([ScopePart::Path("intake".into())])
        .matched_route(PATTERN);
    let run = move || {
        let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
        async move { numbered(200, run) }
    };
    let router = Router::new()
        .fallback_service(on_post(run).merge(get(async || numbered(200, 99))))
        .layer(layer)
        .layer(map_request(matched));
    App::routed(engine, runs, router)
}

fn asked(path: &str) -> Ask {
    post(path).key("k")
}

#[tokio::test]
async fn the_parameters_of_the_router_address_the_record() {
    let app = app().await;

    let first = app.send(&asked("/one").header("x-own", "vendors")).await;
    let other = app.send(&asked("/one").header("x-own", "access")).await;
    let retry = app.send(&asked("/two").header("x-own", "vendors")).await;

    assert_eq!((first.run(), other.run(), retry.run()), (1, 2, 1));
    assert_eq!(app.runs(), 2);
    let records = app.records().await;
    assert!(records.iter().all(|it| &*it.meta.operation == PATTERN));
}

/// Taken for a route without parameters, all intakes would be one.
#[tokio::test]
async fn a_request_that_no_router_has_matched_is_refused() {
    let app = app().await;

    let refused = app.send(&asked("/intakes/vendors/submit")).await;

    assert!((400..500).contains(&refused.status), "{}", refused.status);
    assert_eq!(app.runs(), 0);
}

#[tokio::test]
async fn a_status_request_is_one_only_where_the_router_says_so() {
    let app = app().await;
    app.send(&asked("/intakes/vendors/submit").header("x-own", "vendors"))
        .await;
    let status = |place: &'static str| {
        let status = ask("GET", "/status/intakes/vendors/submit").key("k");
        status.header(place, "vendors")
    };

    let told = app.send(&status("x-operation")).await;
    let passed = app.send(&status("x-own")).await;

    assert!(
        told.text().contains("\"state\":\"done\""),
        "{}",
        told.text()
    );
    assert_eq!(passed.run(), 99);
}

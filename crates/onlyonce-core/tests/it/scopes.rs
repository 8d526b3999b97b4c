//! Processes on one store that address the records of a route by different parts of a request.

use std::sync::Arc;

use onlyonce_core::{Engine, MemoryStore};

async fn on(store: &Arc<MemoryStore>, namespace: &str) -> Engine {
    let builder = Engine::builder(Arc::clone(store));
    builder.namespace(namespace).open().await.unwrap()
}

/// What is said at a start with these parts.
async fn starts(engine: &Engine, parts: &str) -> Option<String> {
    let noted = engine.note_scope("POST /orders", parts).await.unwrap();
    noted.map(|it| it.to_string())
}

#[tokio::test]
async fn a_process_that_addresses_a_route_otherwise_is_told_what_the_others_do() {
    let store = Arc::new(MemoryStore::new());
    let (one, other) = (on(&store, "").await, on(&store, "").await);

    assert_eq!(starts(&one, "route, caller").await, None);
    assert_eq!(starts(&other, "route, caller").await, None);
    assert_eq!(
        starts(&other, "route, jwt:sub").await.as_deref(),
        Some("route, caller")
    );
    // Settings that were changed everywhere are told once, and those that differ at each start.
    assert_eq!(starts(&other, "route, jwt:sub").await, None);
    assert_eq!(
        starts(&one, "route, caller").await.as_deref(),
        Some("route, jwt:sub")
    );
    assert_eq!(starts(&one, "route, caller").await, None);
}

#[tokio::test]
async fn other_routes_and_other_namespaces_have_scopes_of_their_own() {
    let store = Arc::new(MemoryStore::new());
    let (one, other) = (on(&store, "").await, on(&store, "another").await);

    assert_eq!(starts(&one, "caller").await, None);
    assert_eq!(starts(&other, "cookie:a").await, None);
    assert_eq!(one.note_scope("POST /a", "cookie:b").await.unwrap(), None);
}

#[tokio::test]
async fn many_changes_are_followed_and_long_scopes_are_told_apart() {
    let store = Arc::new(MemoryStore::new());
    let engine = on(&store, "").await;
    let long = |last: char| "x".repeat(5_000) + &last.to_string();

    assert_eq!(starts(&engine, "0").await, None);
    for number in 1..40 {
        let before = Some((number - 1).to_string());
        assert_eq!(starts(&engine, &number.to_string()).await, before);
        assert_eq!(starts(&engine, &number.to_string()).await, None);
    }
    assert!(starts(&engine, &long('a')).await.is_some());
    assert_eq!(starts(&engine, &long('a')).await, None);
    assert!(starts(&engine, &long('b')).await.is_some());
}

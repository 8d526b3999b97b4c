//! Routes, or services, of different scope on one store: what is read in another way is never the same caller.

use std::sync::Arc;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use onlyonce_core::{MemoryStore, Policy, Profile, Store};
use onlyonce_tower::ScopePart;
use onlyonce_tower::scope::JwtVerifier;
use serde_json::json;

use crate::support::{App, Ask, post};

const SECRET: &[u8] = b"a test secret of more than 32 bytes";

/// Only the key and its scope tell requests apart.
fn scope_alone(policy: &mut Policy) {
    policy.fingerprint.method = false;
    policy.fingerprint.path = false;
}

async fn app(store: &Arc<dyn Store>, scope: &[&str]) -> App {
    let parts: Vec<ScopePart> = scope.iter().map(|it| it.parse().unwrap()).collect();
    App::under(Profile::Standard)
        .but(scope_alone)
        .scope(parts)
        .tokens(JwtVerifier::hs256(SECRET))
        .store(Arc::clone(store))
        .open()
        .await
}

/// Sends the same request twice to a service of each scope, on one store.
async fn runs_of(scopes: &[&[&str]], request: &Ask) -> Vec<usize> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut runs = Vec::new();
    for scope in scopes {
        let app = app(&store, scope).await;
        for _ in 0..2 {
            assert!(app.send(request).await.status < 300, "{scope:?}");
        }
        runs.push(app.runs());
    }
    runs
}

/// The same name and the same value, which means another caller each time.
#[tokio::test]
async fn parts_of_different_kinds_never_meet() {
    let request = post("/x/7")
        .json(r#"{"x":7}"#)
        .key("k")
        .header("x", "7")
        .header("cookie", "x=7; principal=7; credential=7");
    let scopes: [&[&str]; 5] = [
        &["cookie:x"],
        &["trusted-header:x"],
        &["header:x"],
        &["body:x"],
        &["path-after:x"],
    ];
    assert_eq!(runs_of(&scopes, &request).await, [1; 5]);

    let known = request.clone().principal("7");
    let scopes: [&[&str]; 2] = [&["caller"], &["cookie:principal"]];
    assert_eq!(runs_of(&scopes, &known).await, [1, 1]);

    let opaque = request.header("authorization", "7");
    let scopes: [&[&str]; 2] = [&["caller"], &["cookie:credential"]];
    assert_eq!(runs_of(&scopes, &opaque).await, [1, 1]);
}

/// User 7 is not organisation 7.
#[tokio::test]
async fn claims_of_different_names_never_meet() {
    let claims = json!({"iss": "https://login", "sub": "7", "org": "7", "exp": get_current_timestamp() + 60});
    let key = EncodingKey::from_secret(SECRET);
    let token = encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap();
    let request = post("/orders").key("k").bearer(&token);

    let scopes: [&[&str]; 2] = [&["jwt:sub"], &["jwt:org"]];
    assert_eq!(runs_of(&scopes, &request).await, [1, 1]);
}

/// A header that also names the actor addresses the same records.
#[tokio::test]
async fn one_scope_is_one_scope_wherever_it_is_used() {
    let request = post("/orders").key("k").header("x", "7");

    let scopes: [&[&str]; 3] = [
        &["trusted-header:x"],
        &["user-header:x"],
        &["trusted-header:x"],
    ];
    assert_eq!(runs_of(&scopes, &request).await, [1, 0, 0]);
}

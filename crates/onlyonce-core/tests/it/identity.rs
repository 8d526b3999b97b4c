//! The slot secret and the credential: who meets whom.

use std::sync::Arc;

use onlyonce_core::engine::{OpenError, Who};
use onlyonce_core::{
    Engine, FingerprintBuilder, Key, KeyRule, MemoryStore, Policy, Reason, Response, SlotSecret,
};

use crate::support::refused;

fn key() -> Key {
    Key::new("a-key", &KeyRule::default()).unwrap()
}

#[tokio::test]
async fn engines_on_one_store_agree_on_the_secret() {
    let store = Arc::new(MemoryStore::new());
    let first = Engine::open(Arc::clone(&store)).await.unwrap();
    let second = Engine::open(Arc::clone(&store)).await.unwrap();

    assert_eq!(
        first.slot(&first.scope(), &key()),
        second.slot(&second.scope(), &key())
    );
    let elsewhere = Engine::open(MemoryStore::new()).await.unwrap();
    assert_ne!(
        first.slot(&first.scope(), &key()),
        elsewhere.slot(&elsewhere.scope(), &key())
    );
}

#[tokio::test]
async fn another_configured_secret_refuses_to_start() {
    let store = Arc::new(MemoryStore::new());
    let open = |byte| {
        Engine::builder(Arc::clone(&store))
            .secret(SlotSecret::from_bytes([byte; 32]))
            .open()
    };
    open(1).await.unwrap();
    open(1).await.unwrap();

    assert!(matches!(open(2).await, Err(OpenError::SecretMismatch)));
    let kept = Engine::open(Arc::clone(&store)).await;
    assert!(matches!(kept, Err(OpenError::SecretMismatch)));
}

#[tokio::test]
async fn namespaces_keep_environments_apart() {
    let store = Arc::new(MemoryStore::new());
    let in_namespace =
        |name: &'static str| Engine::builder(Arc::clone(&store)).namespace(name).open();
    let (dev, prod) = (
        in_namespace("dev").await.unwrap(),
        in_namespace("prod").await.unwrap(),
    );

    assert_ne!(
        dev.slot(&dev.scope(), &key()),
        prod.slot(&prod.scope(), &key())
    );
}

/// PROTOCOL 17: an unverified identity may address a record, but not read another's.
#[tokio::test]
async fn another_credential_neither_runs_nor_replays() {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let policy = Arc::new(Policy::default());
    let call = |credential: &[u8]| {
        let digest = engine.credential(credential);
        let mut fingerprint = FingerprintBuilder::new();
        fingerprint.part(onlyonce_core::fingerprint::Part::Credential, &digest);
        let who = Who {
            credential: Some(digest),
            ..Who::doing("test")
        };
        engine.call(&engine.scope(), &key(), fingerprint.finish(), &policy, who)
    };
    let work = |_| async { Response::new(http::StatusCode::OK, "mine").into() };
    engine.once(call(b"the owner's token"), work).await;

    let stranger = engine.once(call(b"a forged token"), work).await;

    assert_eq!(refused(&stranger), Reason::OtherCredential);
}

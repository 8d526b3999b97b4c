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

/// docs/protocol.md#rule-17: an unverified identity may address a record, but not read another's.
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

/// A store of five verbs, without an operators' side.
struct VerbsOnly(MemoryStore);

#[onlyonce_core::async_trait]
impl onlyonce_core::Store for VerbsOnly {
    async fn claim(
        &self,
        claim: &onlyonce_core::Claim,
    ) -> Result<onlyonce_core::Claimed, onlyonce_core::StoreError> {
        self.0.claim(claim).await
    }

    async fn renew(
        &self,
        lease: &onlyonce_core::Lease,
        lease_for: std::time::Duration,
    ) -> Result<onlyonce_core::Renewed, onlyonce_core::StoreError> {
        self.0.renew(lease, lease_for).await
    }

    async fn complete(
        &self,
        lease: &onlyonce_core::Lease,
        response: &Arc<Response>,
        keep_for: std::time::Duration,
    ) -> Result<onlyonce_core::Completed, onlyonce_core::StoreError> {
        self.0.complete(lease, response, keep_for).await
    }

    async fn release(
        &self,
        lease: &onlyonce_core::Lease,
        why: onlyonce_core::Release,
    ) -> Result<onlyonce_core::Released, onlyonce_core::StoreError> {
        self.0.release(lease, why).await
    }

    async fn settled(
        &self,
        slot: &onlyonce_core::Slot,
        seen: &onlyonce_core::Token,
        at_most: std::time::Duration,
    ) -> Result<(), onlyonce_core::StoreError> {
        self.0.settled(slot, seen, at_most).await
    }
}

#[tokio::test]
async fn a_store_that_cannot_keep_the_secret_needs_a_configured_one() {
    let without = Engine::open(VerbsOnly(MemoryStore::new())).await;
    let with = Engine::builder(VerbsOnly(MemoryStore::new()))
        .secret(SlotSecret::from_bytes([1; 32]))
        .open()
        .await;

    assert!(matches!(without, Err(OpenError::SecretMissing)));
    assert!(with.is_ok());
}

#[tokio::test]
async fn a_kept_secret_that_cannot_be_read_refuses_to_start() {
    use onlyonce_core::Operate;
    for garbage in [&b""[..], b"S", b"Stoo short", b"?what is this"] {
        let store = Arc::new(MemoryStore::new());
        store.agree("slot-secret", garbage).await.unwrap();

        let opened = Engine::open(store).await;

        assert!(matches!(opened, Err(OpenError::SecretUnreadable)));
    }
}

#[tokio::test]
async fn every_attempt_has_a_fresh_token() {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let policy = Arc::new(Policy::default());
    let mut tokens = std::collections::BTreeSet::new();
    for number in 0..1000 {
        let key = Key::new(&format!("key-{number}"), &KeyRule::default()).unwrap();
        let fingerprint = FingerprintBuilder::new().finish();
        let call = engine.call(
            &engine.scope(),
            &key,
            fingerprint,
            &policy,
            Who::doing("test"),
        );
        let onlyonce_core::Verdict::Execute(held) = engine.begin(call).await else {
            panic!("the slot was free");
        };
        tokens.insert(held.execution().lease().unwrap().token);
    }

    assert_eq!(tokens.len(), 1000);
}

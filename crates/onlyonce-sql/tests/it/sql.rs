//! What the tests of the SQL stores share: claims, answers, and waiting for what must come.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    Claim, Claimed, Completed, Entropy, Fingerprint, Key, KeyRule, Lease, Meta, OnLapse, OsEntropy,
    Record, Response, Slot, Store, Token,
};

pub(crate) const LONG: Duration = Duration::from_secs(60);
/// By when what must come has come, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A claim for a slot never used before.
pub(crate) fn fresh() -> Claim {
    let mut slot = [0; Slot::BYTES];
    OsEntropy::new().fill(&mut slot);
    Claim {
        slot: Slot::from_bytes(slot),
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
        token: Token::generate(&OsEntropy::new()),
        on_lapse: OnLapse::Rerun,
        must_last: false,
        lease_for: LONG,
        keep_for: LONG,
        meta: meta("POST /payments"),
    }
}

/// The same claim by somebody else.
pub(crate) fn rival(claim: &Claim) -> Claim {
    Claim {
        token: Token::generate(&OsEntropy::new()),
        ..claim.clone()
    }
}

pub(crate) fn meta(operation: &str) -> Arc<Meta> {
    let key = Key::new("5f2b0c1e-7a64-4d1c-9d7e-3b8a2f6c4e10", &KeyRule::default());
    Arc::new(Meta {
        hint: key.unwrap().hint(),
        operation: operation.into(),
        actor: Some("alice".into()),
        holder: "test".into(),
        trace: None,
        credential: None,
    })
}

pub(crate) fn answer(body: &str) -> Arc<Response> {
    Arc::new(Response::new(http::StatusCode::OK, body.to_owned()))
}

pub(crate) fn body(record: &Record) -> &[u8] {
    &record.response().unwrap().body
}

/// Claims, and expects to be granted.
pub(crate) async fn lease(store: &dyn Store, claim: &Claim) -> Lease {
    match store.claim(claim).await.unwrap() {
        Claimed::Granted { lease, .. } => lease,
        other => panic!("not granted: {other:?}"),
    }
}

/// Claims, and expects to find this.
pub(crate) async fn taken(store: &dyn Store, claim: &Claim) -> Record {
    match store.claim(claim).await.unwrap() {
        Claimed::Taken(record) => record,
        other => panic!("not taken: {other:?}"),
    }
}

/// Claims and completes a new slot.
pub(crate) async fn done(store: &dyn Store, body: &str) -> Claim {
    let claim = fresh();
    let lease = lease(store, &claim).await;
    let completed = store.complete(&lease, &answer(body), LONG).await.unwrap();
    assert!(matches!(completed, Completed::Stored(_)), "{completed:?}");
    claim
}

/// Waits for what must come soon, and fails if it does not.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what)
        .await
        .expect("what must come soon came too late")
}

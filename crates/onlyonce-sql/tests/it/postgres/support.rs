//! Claims and answers, and what the tests ask of a store and its tables.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    Claim, Claimed, Completed, Entropy, Fingerprint, Key, KeyRule, Lease, Meta, OnLapse, Operate,
    OsEntropy, Record, Response, Slot, Store, Token,
};
use onlyonce_sql::PostgresStore;

/// Outlives every test.
pub(super) const LONG: Duration = Duration::from_secs(60);
/// Is over soon.
pub(super) const SHORT: Duration = Duration::from_millis(50);
/// By when anything must have happened that is not a matter of time.
pub(super) const SOON: Duration = Duration::from_secs(20);

pub(super) fn fresh() -> Claim {
    let entropy = OsEntropy::new();
    let mut slot = [0; Slot::BYTES];
    entropy.fill(&mut slot);
    let key = Key::new("5f2b0c1e-7a64-4d1c-9d7e-3b8a2f6c4e10", &KeyRule::default());
    Claim {
        slot: Slot::from_bytes(slot),
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
        token: Token::generate(&entropy),
        on_lapse: OnLapse::Rerun,
        must_last: false,
        lease_for: LONG,
        keep_for: LONG,
        meta: Arc::new(Meta {
            hint: key.expect("a UUID is a key").hint(),
            operation: "POST /payments".into(),
            actor: Some("alice".into()),
            holder: "here".into(),
            trace: None,
            credential: None,
        }),
    }
}

/// The same claim by somebody else.
pub(super) fn rival(claim: &Claim) -> Claim {
    Claim {
        token: Token::generate(&OsEntropy::new()),
        lease_for: LONG,
        ..claim.clone()
    }
}

pub(super) fn answer(body: &str) -> Arc<Response> {
    Arc::new(Response::new(http::StatusCode::OK, body.to_owned()))
}

pub(super) async fn granted(store: &PostgresStore, claim: &Claim) -> Lease {
    match store.claim(claim).await {
        Ok(Claimed::Granted { lease, .. }) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

pub(super) async fn taken(store: &PostgresStore, claim: &Claim) -> Record {
    match store.claim(claim).await {
        Ok(Claimed::Taken(record)) => record,
        other => panic!("not taken: {other:?}"),
    }
}

pub(super) async fn stored(store: &PostgresStore, lease: &Lease, body: &str) {
    let completed = store.complete(lease, &answer(body), LONG).await;
    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );
}

/// A claim with its answer stored.
pub(super) async fn done(store: &PostgresStore, body: &str) -> Claim {
    let claim = fresh();
    let lease = granted(store, &claim).await;
    stored(store, &lease, body).await;
    claim
}

/// A claim whose lease has lapsed.
pub(super) async fn lapsed(store: &PostgresStore, on_lapse: OnLapse) -> Claim {
    let claim = Claim {
        on_lapse,
        lease_for: SHORT,
        ..fresh()
    };
    granted(store, &claim).await;
    until(async || {
        let record = store.get(&claim.slot).await.unwrap().unwrap();
        record.is_lapsed()
    })
    .await;
    claim
}

pub(super) fn body(record: &Record) -> &[u8] {
    &record.response().expect("the record is finished").body
}

/// Waits for something that is not a matter of time alone.
pub(super) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(SOON, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waited.await.is_ok(), "it never came about");
}

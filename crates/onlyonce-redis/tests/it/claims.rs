//! Claims and answers that the tests share.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::key::Hint;
use onlyonce_core::{
    Claim, Claimed, Entropy, Fingerprint, Lease, Meta, OnLapse, OsEntropy, Response, Slot, Store,
    Token,
};

pub(super) const LONG: Duration = Duration::from_secs(60);

pub(super) fn fresh() -> Claim {
    let entropy = OsEntropy::new();
    let mut slot = [0; Slot::BYTES];
    entropy.fill(&mut slot);
    Claim {
        slot: Slot::from_bytes(slot),
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
        token: Token::generate(&entropy),
        on_lapse: OnLapse::Rerun,
        must_last: false,
        lease_for: LONG,
        keep_for: LONG,
        meta: Arc::new(Meta {
            hint: Hint::default(),
            operation: "POST /payments".into(),
            actor: None,
            holder: "here".into(),
            trace: None,
            credential: None,
        }),
    }
}

pub(super) fn rival(claim: &Claim) -> Claim {
    Claim {
        token: Token::generate(&OsEntropy::new()),
        ..claim.clone()
    }
}

pub(super) fn answer(body: &'static str) -> Arc<Response> {
    Arc::new(Response::new(http::StatusCode::OK, body))
}

pub(super) async fn granted(store: &dyn Store, claim: &Claim) -> Lease {
    match store.claim(claim).await.unwrap() {
        Claimed::Granted { lease, .. } => lease,
        other @ (Claimed::Taken(_) | Claimed::Dead) => panic!("not granted: {other:?}"),
    }
}

/// A claim whose answer is stored.
pub(super) async fn done(store: &dyn Store, body: &'static str) -> Claim {
    let claim = fresh();
    let lease = granted(store, &claim).await;
    store.complete(&lease, &answer(body), LONG).await.unwrap();
    claim
}

/// The body of the answer that a claim finds.
pub(super) async fn replayed(store: &dyn Store, claim: &Claim) -> Vec<u8> {
    match store.claim(&rival(claim)).await.unwrap() {
        Claimed::Taken(record) => record.response().expect("it is finished").body.to_vec(),
        other @ (Claimed::Granted { .. } | Claimed::Dead) => panic!("no replay: {other:?}"),
    }
}

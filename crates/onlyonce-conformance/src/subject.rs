//! A store as the suite speaks to it: an error of the store fails the test, and so does an answer
//! of another kind than the test asked for. Also the claims and answers that the tests share.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Filter, Newest, Page, Resolved, Stats, Swept};
use onlyonce_core::store::Receipt;
use onlyonce_core::{
    Claim, Claimed, Completed, Entropy, Fingerprint, Key, KeyRule, Lease, Meta, OnLapse, Operate,
    OsEntropy, Overtaken, Record, Release, Released, Renewed, Replay, Response, Slot, Store,
    StoreError, Token,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::TestBed;
use super::timing::{LONG, PAST_SHORT, SHORT, WAKE_MAX};

pub(super) struct Subject<'a> {
    bed: &'a dyn TestBed,
    store: Arc<dyn Store>,
    entropy: OsEntropy,
}

/// What a granted claim came with.
pub(super) struct Grant {
    pub(super) lease: Lease,
    pub(super) overtook: Option<Overtaken>,
}

impl Grant {
    /// Whose claim was taken over.
    pub(super) fn overtaken(&self) -> Option<Arc<Meta>> {
        Some(Arc::clone(&self.overtook.as_ref()?.meta))
    }
}

impl<'a> Subject<'a> {
    pub(super) fn of(bed: &'a dyn TestBed) -> Self {
        Self {
            bed,
            store: bed.store(),
            entropy: OsEntropy::new(),
        }
    }

    /// A claim for a slot never used before: it re-runs, and both its deadlines are long.
    pub(super) fn fresh(&self) -> Claim {
        let mut slot = [0; Slot::BYTES];
        self.entropy.fill(&mut slot);
        Claim {
            slot: Slot::from_bytes(slot),
            fingerprint: fingerprint(1),
            token: Token::generate(&self.entropy),
            on_lapse: OnLapse::Rerun,
            must_last: false,
            lease_for: LONG,
            keep_for: LONG,
            meta: meta("first"),
        }
    }

    /// The same claim by somebody else.
    pub(super) fn rival(&self, claim: &Claim) -> Claim {
        Claim {
            token: Token::generate(&self.entropy),
            meta: meta("rival"),
            ..claim.clone()
        }
    }

    /// A claim whose lease has lapsed, for this test to go on from.
    pub(super) async fn lapsed(&self, on_lapse: OnLapse) -> Claim {
        let claim = Claim {
            on_lapse,
            lease_for: SHORT,
            ..self.fresh()
        };
        self.lease(&claim).await;
        self.bed.advance(PAST_SHORT).await;
        claim
    }

    /// A claim that ended as "outcome unknown", for this test to go on from.
    pub(super) async fn unknown(&self) -> Claim {
        let claim = Claim {
            on_lapse: OnLapse::Hold,
            ..self.fresh()
        };
        let lease = self.lease(&claim).await;
        self.ended(&lease, Release::Unknown).await;
        claim
    }

    /// A claim with its answer stored, for this test to go on from.
    pub(super) async fn done(&self, body: &'static str) -> Claim {
        let claim = self.fresh();
        let lease = self.lease(&claim).await;
        self.stored(&lease, &answer(body), LONG).await;
        claim
    }

    /// A claim whose answer was stored and has expired, for this test to go on from.
    pub(super) async fn expired(&self) -> Claim {
        let claim = self.fresh();
        let lease = self.lease(&claim).await;
        self.stored(&lease, &answer("expired"), SHORT).await;
        self.bed.advance(PAST_SHORT).await;
        claim
    }

    /// What is at hand for this claim.
    pub(super) fn recalled(&self, claim: &Claim) -> Option<Replay> {
        self.store.recall(&claim.slot, &claim.fingerprint)
    }

    pub(super) async fn claim(&self, claim: &Claim) -> Claimed {
        self.answered("claim", self.store.claim(claim).await)
    }

    pub(super) async fn granted(&self, claim: &Claim) -> Grant {
        match self.claim(claim).await {
            Claimed::Granted { lease, overtook } => Grant { lease, overtook },
            other @ (Claimed::Taken(_) | Claimed::Dead) => self.unexpected("a grant", &other),
        }
    }

    pub(super) async fn lease(&self, claim: &Claim) -> Lease {
        self.granted(claim).await.lease
    }

    pub(super) async fn taken(&self, claim: &Claim) -> Record {
        match self.claim(claim).await {
            Claimed::Taken(record) => record,
            other @ (Claimed::Granted { .. } | Claimed::Dead) => {
                self.unexpected("what is there", &other)
            }
        }
    }

    pub(super) async fn is_kept(&self, lease: &Lease, lease_for: Duration) -> bool {
        match self.answered("renew", self.store.renew(lease, lease_for).await) {
            Renewed::Kept => true,
            Renewed::Lost => false,
            other @ Renewed::Busy => self.unexpected("kept or lost", &other),
        }
    }

    pub(super) async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Completed {
        self.answered(
            "complete",
            self.store.complete(lease, response, keep_for).await,
        )
    }

    pub(super) async fn stored(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Receipt {
        match self.complete(lease, response, keep_for).await {
            Completed::Stored(receipt) => receipt,
            other @ (Completed::Found(_) | Completed::Absent) => {
                self.unexpected("a receipt", &other)
            }
        }
    }

    /// Completes in vain: what the store found instead.
    pub(super) async fn fenced(&self, lease: &Lease, response: &Arc<Response>) -> Record {
        match self.complete(lease, response, LONG).await {
            Completed::Found(record) => record,
            other @ (Completed::Stored(_) | Completed::Absent) => {
                self.unexpected("what is there", &other)
            }
        }
    }

    pub(super) async fn is_absent_for(&self, lease: &Lease) -> bool {
        match self.complete(lease, &answer("too late"), LONG).await {
            Completed::Absent => true,
            Completed::Stored(_) | Completed::Found(_) => false,
        }
    }

    pub(super) async fn release(&self, lease: &Lease, why: Release) -> Released {
        self.answered("release", self.store.release(lease, why).await)
    }

    pub(super) async fn ended(&self, lease: &Lease, why: Release) {
        match self.release(lease, why).await {
            Released::Ended => {}
            other @ Released::Found(_) => self.unexpected("the end of the claim", &other),
        }
    }

    /// Releases in vain: what the store found instead.
    pub(super) async fn unreleased(&self, lease: &Lease, why: Release) -> Record {
        match self.release(lease, why).await {
            Released::Found(record) => record,
            other @ Released::Ended => self.unexpected("what is there", &other),
        }
    }

    /// Whether a wait for the end of `claim` returns by itself, long before its time is up.
    pub(super) async fn settles(&self, claim: &Claim) -> bool {
        settles(Arc::clone(&self.store), claim.slot, claim.token).await
    }

    /// The same in a task of its own, while the test goes on.
    pub(super) fn waiter(&self, claim: &Claim) -> JoinHandle<bool> {
        tokio::spawn(settles(Arc::clone(&self.store), claim.slot, claim.token))
    }

    pub(super) async fn wait(&self, claim: &Claim, at_most: Duration) {
        let waited = self.store.settled(&claim.slot, &claim.token, at_most);
        self.answered("settled", waited.await);
    }

    pub(super) async fn get(&self, claim: &Claim) -> Option<Record> {
        self.answered("get", self.operate().get(&claim.slot).await)
    }

    pub(super) async fn record(&self, claim: &Claim) -> Record {
        let found = self.get(claim).await;
        found.unwrap_or_else(|| panic!("{}: the record is gone", self.bed.name()))
    }

    pub(super) async fn list(&self, filter: &Filter, page: &Page) -> Vec<(Slot, Record)> {
        self.answered("list", self.operate().list(filter, page).await)
    }

    pub(super) async fn newest(&self, filter: &Filter, page: &Newest) -> Vec<(Slot, Record)> {
        self.answered("newest", self.operate().newest(filter, page).await)
    }

    pub(super) async fn forget(&self, claim: &Claim) -> bool {
        self.answered("forget", self.operate().forget(&claim.slot).await)
    }

    pub(super) async fn extend(&self, claim: &Claim, extra: Duration) -> bool {
        self.answered("extend", self.operate().extend(&claim.slot, extra).await)
    }

    pub(super) async fn resolve(&self, claim: &Claim, response: &Arc<Response>) -> Resolved {
        self.resolve_for(claim, response, LONG).await
    }

    pub(super) async fn resolve_for(
        &self,
        claim: &Claim,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Resolved {
        let resolved = self.operate().resolve(&claim.slot, response, keep_for);
        self.answered("resolve", resolved.await)
    }

    pub(super) async fn discard(&self, claim: &Claim) -> Resolved {
        self.answered("discard", self.operate().discard(&claim.slot).await)
    }

    pub(super) async fn sweep(&self, records_max: usize) -> usize {
        self.answered("sweep", self.operate().sweep(records_max).await)
    }

    pub(super) async fn sweep_ended(&self, records_max: usize) -> Swept {
        self.answered("sweep", self.operate().sweep_ended(records_max).await)
    }

    pub(super) fn hands_over_ended(&self) -> bool {
        self.operate().hands_over_ended()
    }

    pub(super) async fn stats(&self) -> Stats {
        self.answered("stats", self.operate().stats().await)
    }

    pub(super) async fn ping(&self) {
        self.answered("ping", self.operate().ping().await);
    }

    pub(super) async fn count_replays(&self, replays: &[(Slot, u64)]) {
        self.answered("count_replays", self.operate().count_replays(replays).await);
    }

    pub(super) async fn number_replays(&self, replays: &[(Slot, u64)]) -> Vec<(Slot, u64)> {
        let numbered = self.operate().number_replays(replays).await;
        self.answered("number_replays", numbered)
    }

    pub(super) async fn agree(&self, name: &str, offer: &[u8]) -> Vec<u8> {
        self.answered("agree", self.operate().agree(name, offer).await)
    }

    pub(super) async fn agreed(&self, name: &str) -> Option<Vec<u8>> {
        self.answered("agreed", self.operate().agreed(name).await)
    }

    fn operate(&self) -> &dyn Operate {
        self.store
            .operate()
            .unwrap_or_else(|| panic!("{}: no operators' side", self.bed.name()))
    }

    fn answered<T>(&self, verb: &str, answer: Result<T, StoreError>) -> T {
        answer.unwrap_or_else(|error| panic!("{}: {verb}: {error}", self.bed.name()))
    }

    fn unexpected(&self, wanted: &str, got: &dyn std::fmt::Debug) -> ! {
        panic!("{}: wanted {wanted}, got {got:?}", self.bed.name())
    }
}

async fn settles(store: Arc<dyn Store>, slot: Slot, seen: Token) -> bool {
    match timeout(WAKE_MAX, store.settled(&slot, &seen, LONG)).await {
        Ok(settled) => settled.is_ok(),
        Err(_) => false,
    }
}

/// The fingerprint of request number `n`.
pub(super) fn fingerprint(n: u8) -> Fingerprint {
    Fingerprint::new(Fingerprint::RECIPE, [n; 32])
}

/// Everything a record tells people, filled in.
pub(super) fn meta(holder: &str) -> Arc<Meta> {
    let key = Key::new("5f2b0c1e-7a64-4d1c-9d7e-3b8a2f6c4e10", &KeyRule::default());
    Arc::new(Meta {
        hint: key.expect("a UUID is a key").hint(),
        operation: "POST /payments".into(),
        actor: Some("alice".into()),
        holder: holder.into(),
        trace: Some("4bf92f3577b34da6a3ce929d0e0e4736".into()),
        credential: Some([7; 32]),
    })
}

/// A good answer with this body.
pub(super) fn answer(body: &'static str) -> Arc<Response> {
    Arc::new(Response::new(http::StatusCode::OK, body))
}

/// The body of a finished record.
pub(super) fn body(record: &Record) -> &[u8] {
    let response = record.response().expect("the record is finished");
    &response.body
}

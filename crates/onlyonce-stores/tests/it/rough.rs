//! A store that misbehaves on command, and what the tests of the wrappers ask of one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::Verb;
use onlyonce_core::key::Hint;
use onlyonce_core::operate::{Filter, Page, Resolved, Stats};
use onlyonce_core::{
    Claim, Claimed, Completed, Entropy, Fingerprint, Lease, Meta, OnLapse, Operate, OsEntropy,
    Record, Release, Released, Renewed, Response, Slot, Store, StoreError, StoreErrorKind, Token,
    async_trait,
};
use onlyonce_testkit::conformance::{MemoryBed, TestBed};
use tokio::sync::Semaphore;

pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// What a call does instead of its duty.
#[derive(Clone)]
pub(crate) enum Fault {
    /// Its duty.
    Nothing,
    /// Fails without acting.
    Fail(StoreErrorKind),
    /// Others were faster, time and again.
    LoseRace,
    /// Acts, then fails.
    LoseReply,
    /// Never ends, and does not act.
    Hang,
    /// Acts, but answers only after this long.
    Slow(Duration),
    /// Acts only once the gate is open.
    HoldCall(Arc<Semaphore>),
    /// Acts, but answers only once the gate is open.
    HoldReply(Arc<Semaphore>),
}

pub(crate) const DOWN: Fault = Fault::Fail(StoreErrorKind::Unavailable);

/// A store with faults in front of it.
pub(crate) struct Rough {
    inner: Arc<dyn Store>,
    /// For the next calls, in this order.
    next: Mutex<VecDeque<Fault>>,
    /// For all calls after that.
    always: Mutex<Fault>,
    asked: Mutex<Vec<Verb>>,
    hides_operators: AtomicBool,
    leases: Mutex<Vec<Lease>>,
}

impl Rough {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            next: Mutex::default(),
            always: Mutex::new(Fault::Nothing),
            asked: Mutex::default(),
            hides_operators: AtomicBool::new(false),
            leases: Mutex::default(),
        })
    }

    pub(crate) fn next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.next.lock().unwrap().extend(faults);
    }

    pub(crate) fn always(&self, fault: Fault) {
        *self.always.lock().unwrap() = fault;
    }

    /// From now on it is a store without an operators' side.
    pub(crate) fn hide_operators(&self) {
        self.hides_operators.store(true, Ordering::SeqCst);
    }

    /// The leases that it was shown.
    pub(crate) fn leases(&self) -> Vec<Lease> {
        self.leases.lock().unwrap().clone()
    }

    fn show(&self, lease: &Lease) {
        self.leases.lock().unwrap().push(lease.clone());
    }

    /// What it was asked since this was called last.
    pub(crate) fn asked(&self) -> Vec<Verb> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    async fn meet<T>(
        &self,
        verb: Verb,
        act: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.asked.lock().unwrap().push(verb);
        let fault = self.next.lock().unwrap().pop_front();
        let fault = fault.unwrap_or_else(|| self.always.lock().unwrap().clone());
        match fault {
            Fault::Nothing => act.await,
            Fault::Fail(kind) => Err(StoreError::new("rough", kind)),
            Fault::LoseRace => {
                Err(StoreError::new("rough", StoreErrorKind::Unavailable).contested())
            }
            Fault::LoseReply => {
                act.await?;
                Err(StoreError::new("rough", StoreErrorKind::Unavailable))
            }
            Fault::Hang => std::future::pending().await,
            Fault::Slow(delay) => {
                let answer = act.await;
                tokio::time::sleep(delay).await;
                answer
            }
            Fault::HoldCall(gate) => {
                let _open = gate.acquire().await.unwrap();
                act.await
            }
            Fault::HoldReply(gate) => {
                let answer = act.await;
                let _open = gate.acquire().await.unwrap();
                answer
            }
        }
    }

    fn inside(&self) -> &dyn Operate {
        self.inner.operate().unwrap()
    }
}

#[async_trait]
impl Store for Rough {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.meet(Verb::Claim, self.inner.claim(claim)).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        self.show(lease);
        let act = self.inner.renew(lease, lease_for);
        self.meet(Verb::Renew, act).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        self.show(lease);
        let act = self.inner.complete(lease, response, keep_for);
        self.meet(Verb::Complete, act).await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        self.show(lease);
        let act = self.inner.release(lease, why);
        self.meet(Verb::Release, act).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        let act = self.inner.settled(slot, seen, at_most);
        self.meet(Verb::Settled, act).await
    }

    fn operate(&self) -> Option<&dyn Operate> {
        let is_hidden = self.hides_operators.load(Ordering::SeqCst);
        (!is_hidden).then_some(self)
    }
}

#[async_trait]
impl Operate for Rough {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        self.meet(Verb::Get, self.inside().get(slot)).await
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        let act = self.inside().list(filter, page);
        self.meet(Verb::List, act).await
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        self.meet(Verb::Forget, self.inside().forget(slot)).await
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        let act = self.inside().extend(slot, extra);
        self.meet(Verb::Extend, act).await
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        let act = self.inside().resolve(slot, response, keep_for);
        self.meet(Verb::Resolve, act).await
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        self.meet(Verb::Sweep, self.inside().sweep(records_max))
            .await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.meet(Verb::Stats, self.inside().stats()).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.meet(Verb::Ping, self.inside().ping()).await
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        let act = self.inside().count_replays(replays);
        self.meet(Verb::CountReplays, act).await
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        let act = self.inside().agree(name, offer);
        self.meet(Verb::Agree, act).await
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let act = self.inside().agreed(name);
        self.meet(Verb::Agree, act).await
    }
}

/// The bed of the memory store, with its store wrapped.
pub(crate) struct WrappedBed {
    bed: MemoryBed,
    name: &'static str,
    store: Arc<dyn Store>,
}

impl WrappedBed {
    pub(crate) async fn new<F, S>(
        name: &'static str,
        wrap: impl FnOnce(Arc<dyn Store>) -> F,
    ) -> Self
    where
        F: Future<Output = S>,
        S: Store,
    {
        let bed = MemoryBed::new();
        let store = Arc::new(wrap(bed.store()).await);
        Self { bed, name, store }
    }
}

#[async_trait]
impl TestBed for WrappedBed {
    fn name(&self) -> &str {
        self.name
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    async fn advance(&self, by: Duration) {
        self.bed.advance(by).await;
    }
}

/// A claim for a slot never used before.
pub(crate) fn claim() -> Claim {
    let entropy = OsEntropy::new();
    let mut slot = [0; Slot::BYTES];
    entropy.fill(&mut slot);
    Claim {
        slot: Slot::from_bytes(slot),
        fingerprint: fingerprint(1),
        token: Token::generate(&entropy),
        on_lapse: OnLapse::Rerun,
        must_last: false,
        lease_for: LONG,
        keep_for: LONG,
        meta: Arc::new(Meta {
            hint: Hint::default(),
            operation: "POST /payments".into(),
            actor: Some("alice".into()),
            holder: "here".into(),
            trace: None,
            credential: None,
        }),
    }
}

/// The same claim by somebody else.
pub(crate) fn rival(claim: &Claim) -> Claim {
    Claim {
        token: Token::generate(&OsEntropy::new()),
        ..claim.clone()
    }
}

/// The fingerprint of request number `n`.
pub(crate) fn fingerprint(n: u8) -> Fingerprint {
    Fingerprint::new(Fingerprint::RECIPE, [n; 32])
}

pub(crate) fn answer(body: &'static str) -> Arc<Response> {
    Arc::new(Response::new(StatusCode::CREATED, body))
}

/// A claim with its answer stored for so long.
pub(crate) async fn done(store: &dyn Store, body: &'static str, keep_for: Duration) -> Claim {
    let claim = claim();
    let lease = lease(store, &claim).await;
    let completed = store.complete(&lease, &answer(body), keep_for).await;
    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );
    claim
}

pub(crate) async fn lease(store: &dyn Store, claim: &Claim) -> Lease {
    match store.claim(claim).await.unwrap() {
        Claimed::Granted { lease, .. } => lease,
        other @ (Claimed::Taken(_) | Claimed::Dead) => panic!("not granted: {other:?}"),
    }
}

/// What a rival's claim finds.
pub(crate) async fn taken(store: &dyn Store, claim: &Claim) -> Record {
    match store.claim(&rival(claim)).await.unwrap() {
        Claimed::Taken(record) => record,
        other @ (Claimed::Granted { .. } | Claimed::Dead) => panic!("not taken: {other:?}"),
    }
}

/// The body that a rival's claim finds.
pub(crate) async fn replayed(store: &dyn Store, claim: &Claim) -> Vec<u8> {
    let record = taken(store, claim).await;
    record.response().expect("it is finished").body.to_vec()
}

pub(crate) async fn is_granted(store: &dyn Store, claim: &Claim) -> bool {
    match store.claim(&rival(claim)).await.unwrap() {
        Claimed::Granted { .. } => true,
        Claimed::Taken(_) | Claimed::Dead => false,
    }
}

/// The kind of an error, and what it and its sources say.
#[track_caller]
pub(crate) fn failure<T: std::fmt::Debug>(
    answer: Result<T, StoreError>,
) -> (StoreErrorKind, String) {
    let error = answer.unwrap_err();
    let mut said = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        said = format!("{said}: {cause}");
        source = cause.source();
    }
    (error.kind, said)
}

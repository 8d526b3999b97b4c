//! What a caller of a store does, and many of them at the same time.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::{
    Claim, Claimed, Clock, Completed, Entropy, Fingerprint, Key, KeyRule, Lease, Meta, OnLapse,
    OsEntropy, Response, Slot, Store, SystemClock, Token,
};

use crate::rounds::Sample;

pub(crate) const BODY_BYTES: usize = 1024;
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
const LEASE: Duration = Duration::from_secs(60);

/// Below are the numbers of records that a store is filled with.
const FILLED_MAX: u64 = 1 << 40;

/// The next slot that has not been used.
static NEXT: AtomicU64 = AtomicU64::new(FILLED_MAX);

/// One caller, operation after operation.
pub(crate) struct Caller {
    pub(crate) answer: Arc<Response>,
    meta: Arc<Meta>,
    entropy: OsEntropy,
    clock: SystemClock,
    since: Duration,
    laps: Vec<u32>,
}

impl Caller {
    pub(crate) fn new() -> Self {
        let key = Key::new("5f2b0c1e-7a64-4d1c-9d7e-3b8a2f6c4e10", &KeyRule::default());
        Self {
            answer: Arc::new(Response::new(StatusCode::OK, vec![7; BODY_BYTES])),
            meta: Arc::new(Meta {
                hint: key.expect("a UUID is a key").hint(),
                operation: "POST /payments".into(),
                actor: Some("alice".into()),
                holder: "10.0.0.7:4711".into(),
                trace: Some("4bf92f3577b34da6a3ce929d0e0e4736".into()),
                credential: None,
            }),
            entropy: OsEntropy::new(),
            clock: SystemClock::new(),
            since: Duration::ZERO,
            laps: Vec::new(),
        }
    }

    /// The claim of a slot that has not been used.
    pub(crate) fn new_claim(&self) -> Claim {
        self.claim(numbered(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn claim(&self, slot: Slot) -> Claim {
        Claim {
            slot,
            fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
            token: Token::generate(&self.entropy),
            on_lapse: OnLapse::Rerun,
            must_last: false,
            lease_for: LEASE,
            keep_for: DAY,
            meta: Arc::clone(&self.meta),
        }
    }

    pub(crate) fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        self.entropy.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// The next operation begins now.
    pub(crate) fn begin(&mut self) {
        self.since = self.clock.now();
    }

    /// An operation has ended, and the next begins.
    pub(crate) fn lap(&mut self) {
        let now = self.clock.now();
        let took = now - std::mem::replace(&mut self.since, now);
        self.laps
            .push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }
}

/// Lets `callers` do `step` on `target` again and again for this long.
pub(crate) async fn drive<T, S, F>(
    target: &Arc<T>,
    callers: usize,
    time: Duration,
    step: S,
) -> Sample
where
    T: Send + Sync + 'static + ?Sized,
    S: Fn(Arc<T>, Caller) -> F + Clone + Send + 'static,
    F: Future<Output = Caller> + Send,
{
    let clock = Arc::new(SystemClock::new());
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (step, clock) = (step.clone(), Arc::clone(&clock));
            let target = Arc::clone(target);
            tokio::spawn(async move {
                let mut caller = Caller::new();
                while clock.now() < time {
                    caller.begin();
                    caller = step(Arc::clone(&target), caller).await;
                }
                caller.laps
            })
        })
        .collect();
    let mut micros = Vec::new();
    for task in tasks {
        micros.append(&mut task.await.expect("a caller ends"));
    }
    Sample::of(micros, clock.now())
}

/// Stores the records with these numbers, each kept for so long, and says how far it is.
pub(crate) async fn fill<T>(
    store: &Arc<T>,
    records: Range<u64>,
    keep: Duration,
    progress: impl Fn(u64) + Send + Sync + 'static,
) where
    T: Store + ?Sized,
{
    const FILLERS: usize = 256;
    const TOLD: u64 = 20;
    let next = Arc::new(AtomicU64::new(records.start));
    let told_every = ((records.end - records.start) / TOLD).max(1);
    let progress = Arc::new(progress);
    let tasks: Vec<_> = (0..FILLERS)
        .map(|_| {
            let (store, next) = (Arc::clone(store), Arc::clone(&next));
            let progress = Arc::clone(&progress);
            tokio::spawn(async move {
                let caller = Caller::new();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= records.end {
                        break;
                    }
                    if n > 0 && n.is_multiple_of(told_every) {
                        progress(n);
                    }
                    let claim = Claim {
                        keep_for: keep,
                        ..caller.claim(numbered(n))
                    };
                    let lease = granted(&*store, &claim).await;
                    complete(&*store, &lease, &caller.answer, keep).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a caller ends");
    }
}

pub(crate) async fn granted<T: Store + ?Sized>(store: &T, claim: &Claim) -> Lease {
    match store.claim(claim).await.expect("the store answers") {
        Claimed::Granted { lease, .. } => lease,
        other @ (Claimed::Taken(_) | Claimed::Dead) => panic!("not granted: {other:?}"),
    }
}

pub(crate) async fn complete<T: Store + ?Sized>(
    store: &T,
    lease: &Lease,
    answer: &Arc<Response>,
    keep: Duration,
) {
    let completed = store.complete(lease, answer, keep).await;
    assert!(matches!(completed, Ok(Completed::Stored(_))), "not stored");
}

/// One new request as a store sees it: a claim and its completion, as one operation.
pub(crate) async fn new_request<T: Store + ?Sized>(store: Arc<T>, mut caller: Caller) -> Caller {
    let lease = granted(&*store, &caller.new_claim()).await;
    complete(&*store, &lease, &caller.answer, DAY).await;
    caller.lap();
    caller
}

/// The slot of record number `n`: as uniform as a digest.
pub(crate) fn numbered(n: u64) -> Slot {
    let mut bytes = [0; Slot::BYTES];
    let mut word = n.wrapping_add(1);
    for chunk in bytes.chunks_mut(8) {
        // The finaliser of MurmurHash3.
        word = (word ^ (word >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        word = (word ^ (word >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        word ^= word >> 33;
        chunk.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(n).wrapping_add(1);
    }
    Slot::from_bytes(bytes)
}

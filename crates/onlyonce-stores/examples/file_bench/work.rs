//! What a producer does, and many of them at the same time.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::{
    Claim, Claimed, Clock, Completed, Entropy, Fingerprint, Key, KeyRule, Lease, Meta, OnLapse,
    OsEntropy, Response, Slot, Store, SystemClock, Token,
};
use onlyonce_stores::file::FileStore;

use crate::figures::Measured;

const BODY_BYTES: usize = 1024;
const FILLERS: u64 = 256;

/// One producer's work, operation after operation.
pub(crate) struct Work {
    pub(crate) claim: Claim,
    pub(crate) answer: Arc<Response>,
    clock: SystemClock,
    entropy: OsEntropy,
    since: Duration,
    laps: Vec<u32>,
}

impl Work {
    fn new() -> Self {
        let entropy = OsEntropy::new();
        Self {
            claim: claim(random_slot(&entropy), &entropy),
            answer: Arc::new(Response::new(StatusCode::OK, vec![7; BODY_BYTES])),
            clock: SystemClock::new(),
            entropy,
            since: Duration::ZERO,
            laps: Vec::new(),
        }
    }

    /// The next operation begins now.
    fn next(&mut self) {
        self.claim = claim(random_slot(&self.entropy), &self.entropy);
        self.since = self.clock.now();
    }

    /// One call has returned.
    pub(crate) fn lap(&mut self) {
        let now = self.clock.now();
        let took = now - std::mem::replace(&mut self.since, now);
        self.laps
            .push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    pub(crate) fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        self.entropy.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// Lets `producers` do `step` on `target` again and again for this long.
pub(crate) async fn drive<T, S, F>(
    target: &Arc<T>,
    producers: usize,
    time: Duration,
    step: S,
) -> Measured
where
    T: Send + Sync + 'static,
    S: Fn(Arc<T>, Work) -> F + Clone + Send + 'static,
    F: Future<Output = Work> + Send,
{
    let clock = Arc::new(SystemClock::new());
    let tasks: Vec<_> = (0..producers)
        .map(|_| {
            let (step, clock) = (step.clone(), Arc::clone(&clock));
            let target = Arc::clone(target);
            tokio::spawn(async move {
                let mut work = Work::new();
                while clock.now() < time {
                    work.next();
                    work = step(Arc::clone(&target), work).await;
                }
                work.laps
            })
        })
        .collect();
    let mut micros = Vec::new();
    for task in tasks {
        micros.append(&mut task.await.expect("a producer ends"));
    }
    Measured {
        micros,
        time: clock.now(),
    }
}

/// Stores this many records.
pub(crate) async fn fill(store: &Arc<FileStore>, records: u64, keep: Duration) {
    let next = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..FILLERS)
        .map(|_| {
            let (store, next) = (Arc::clone(store), Arc::clone(&next));
            tokio::spawn(async move {
                let work = Work::new();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= records {
                        break;
                    }
                    let claim = Claim {
                        keep_for: keep,
                        ..claim(numbered(n), &work.entropy)
                    };
                    let lease = granted(&store, &claim).await;
                    complete(&store, &lease, &work.answer, keep).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a producer ends");
    }
}

pub(crate) async fn granted(store: &FileStore, claim: &Claim) -> Lease {
    match store.claim(claim).await.expect("the store answers") {
        Claimed::Granted { lease, .. } => lease,
        other @ (Claimed::Taken(_) | Claimed::Dead) => panic!("not granted: {other:?}"),
    }
}

pub(crate) async fn complete(
    store: &FileStore,
    lease: &Lease,
    answer: &Arc<Response>,
    keep: Duration,
) {
    let completed = store.complete(lease, answer, keep).await;
    assert!(matches!(completed, Ok(Completed::Stored(_))), "not stored");
}

/// The slot of record number `n`: as uniform as a digest.
pub(crate) fn numbered(n: u64) -> Slot {
    let mut bytes = [0; Slot::BYTES];
    let mut word = n;
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

fn random_slot(entropy: &OsEntropy) -> Slot {
    let mut bytes = [0; Slot::BYTES];
    entropy.fill(&mut bytes);
    Slot::from_bytes(bytes)
}

fn claim(slot: Slot, entropy: &OsEntropy) -> Claim {
    let key = Key::new("5f2b0c1e-7a64-4d1c-9d7e-3b8a2f6c4e10", &KeyRule::default());
    Claim {
        slot,
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
        token: Token::generate(entropy),
        on_lapse: OnLapse::Rerun,
        lease_for: Duration::from_secs(60),
        keep_for: Duration::from_secs(86_400),
        meta: Arc::new(Meta {
            hint: key.expect("a UUID is a key").hint(),
            operation: "POST /payments".into(),
            actor: Some("alice".into()),
            holder: "10.0.0.7:4711".into(),
            trace: Some("4bf92f3577b34da6a3ce929d0e0e4736".into()),
            credential: None,
        }),
    }
}

//! A bed for the engine: calls by name, a handler that counts, a store that can be told to fail.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::engine::{Builder, Who};
use onlyonce_core::event::About;
use onlyonce_core::fingerprint::Part;
use onlyonce_core::{
    Answer, Call, Claim, Claimed, Completed, Engine, Event, Fingerprint, FingerprintBuilder, Key,
    KeyRule, Lease, MemoryStore, Operate, Outcome, Policy, Reason, Release, Released, Renewed,
    Response, Slot, Store, StoreError, StoreErrorKind, Subscriber, Token, async_trait,
};
use tokio::sync::Semaphore;

/// What a store call should do instead of its duty, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Fail without acting.
    LostBefore,
    /// Fail without asking the store, and say so.
    Unsent,
    /// Act, then fail.
    LostAfter,
    /// Fail without acting, but only after this long.
    SlowLost(Duration),
    /// Act only after this long.
    SlowBefore(Duration),
    /// Act, but answer only after this long.
    SlowAfter(Duration),
    /// Say that what is stored cannot be read.
    Corrupt,
    /// Say that the answer is too large to be stored.
    TooLarge,
    /// Panic without acting.
    Panic,
}

/// The memory store behind counters and faults.
#[derive(Default)]
pub(crate) struct Probe {
    pub(crate) inner: MemoryStore,
    pub(crate) down: AtomicBool,
    pub(crate) settled_hangs: AtomicBool,
    /// How many of the next renewals find the record in a transaction's hands.
    pub(crate) busy: AtomicUsize,
    /// The largest answer that it takes, as it says; 0 if it does not know.
    pub(crate) response_bytes_max: AtomicUsize,
    pub(crate) claims: Verb,
    pub(crate) renewals: Verb,
    pub(crate) completions: Verb,
    pub(crate) releases: Verb,
}

/// Calls of one verb: how many, and what happens to the next ones.
#[derive(Default)]
pub(crate) struct Verb {
    count: AtomicUsize,
    faults: Mutex<VecDeque<Fault>>,
}

impl Verb {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    pub(crate) fn fail_next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap().extend(faults);
    }

    async fn run<T, F>(&self, down: &AtomicBool, act: F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.count.fetch_add(1, Ordering::SeqCst);
        let fault = self.faults.lock().unwrap().pop_front();
        let unavailable = || StoreError::new("probe", StoreErrorKind::Unavailable);
        if down.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        match fault {
            None => act.await,
            Some(Fault::LostBefore) => Err(unavailable()),
            Some(Fault::Unsent) => Err(unavailable().unsent()),
            Some(Fault::Corrupt) => Err(StoreError::new("probe", StoreErrorKind::Corrupt)),
            Some(Fault::TooLarge) => Err(StoreError::new("probe", StoreErrorKind::TooLarge)),
            Some(Fault::Panic) => panic!("the store panics, as told"),
            Some(Fault::LostAfter) => {
                act.await?;
                Err(unavailable())
            }
            Some(Fault::SlowLost(delay)) => {
                tokio::time::sleep(delay).await;
                Err(unavailable())
            }
            Some(Fault::SlowBefore(delay)) => {
                tokio::time::sleep(delay).await;
                act.await
            }
            Some(Fault::SlowAfter(delay)) => {
                let done = act.await;
                tokio::time::sleep(delay).await;
                done
            }
        }
    }
}

#[async_trait]
impl Store for Probe {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.claims.run(&self.down, self.inner.claim(claim)).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        let act = async {
            let busy = self
                .busy
                .try_update(Ordering::SeqCst, Ordering::SeqCst, |it| it.checked_sub(1));
            match busy {
                Ok(_) => Ok(Renewed::Busy),
                Err(_) => self.inner.renew(lease, lease_for).await,
            }
        };
        self.renewals.run(&self.down, act).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let act = self.inner.complete(lease, response, keep_for);
        self.completions.run(&self.down, act).await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        let act = self.inner.release(lease, why);
        self.releases.run(&self.down, act).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        if self.settled_hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.inner.settled(slot, seen, at_most).await
    }

    fn response_bytes_max(&self) -> Option<usize> {
        match self.response_bytes_max.load(Ordering::SeqCst) {
            0 => None,
            known => Some(known),
        }
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(&self.inner)
    }
}

/// Everything an engine said.
#[derive(Default)]
pub(crate) struct Heard(Mutex<Vec<Event>>);

impl Heard {
    pub(crate) fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.0
            .lock()
            .unwrap()
            .iter()
            .filter(|it| wanted(it))
            .count()
    }
}

impl Subscriber for Heard {
    fn on_event(&self, _about: &About<'_>, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// An engine on a store that others may share.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) heard: Arc<Heard>,
}

pub(crate) async fn node(store: &Arc<Probe>) -> Node {
    node_of(Engine::builder(Arc::clone(store))).await
}

pub(crate) async fn node_of(builder: Builder) -> Node {
    let heard = Arc::new(Heard::default());
    let subscriber: Arc<dyn Subscriber> = heard.clone();
    let engine = builder.subscribe(subscriber).open().await.unwrap();
    Node { engine, heard }
}

/// A store and one engine on it.
pub(crate) async fn bed() -> (Arc<Probe>, Node) {
    let store = Arc::new(Probe::default());
    let node = node(&store).await;
    (store, node)
}

impl Node {
    /// A call with `key` that means `meaning`.
    pub(crate) fn call(&self, key: &str, meaning: &str, policy: &Policy) -> Call {
        let key = Key::new(key, &KeyRule::default()).unwrap();
        let scope = self.engine.scope().with("test", "engine");
        let policy = Arc::new(policy.clone());
        let call = |engine: &Engine| {
            let who = Who::doing("test");
            engine.call(&scope, &key, fingerprint(meaning), &policy, who)
        };
        match self.engine.former() {
            Some(former) => call(&self.engine).after(call(former)),
            None => call(&self.engine),
        }
    }

    /// Runs `work` under `key`.
    pub(crate) async fn once(&self, key: &str, policy: &Policy, work: &Work) -> Answer {
        self.once_meaning(key, "the same", policy, work).await
    }

    pub(crate) async fn once_meaning(
        &self,
        key: &str,
        meaning: &str,
        policy: &Policy,
        work: &Work,
    ) -> Answer {
        let call = self.call(key, meaning, policy);
        let work = work.clone();
        self.engine.once(call, move |_| work.run()).await
    }

    /// The same, in the background.
    pub(crate) fn start(
        &self,
        key: &str,
        policy: &Policy,
        work: &Work,
    ) -> tokio::task::JoinHandle<Answer> {
        let (node, key) = (self.clone(), key.to_owned());
        let (policy, work) = (policy.clone(), work.clone());
        tokio::spawn(async move { node.once(&key, &policy, &work).await })
    }
}

/// Work that counts its starts, waits for a gate where asked to, and answers with its number.
#[derive(Clone)]
pub(crate) struct Work {
    starts: Arc<AtomicUsize>,
    ends: Arc<AtomicUsize>,
    gate: Option<Arc<Semaphore>>,
    takes: Duration,
    outcome: Arc<dyn Fn(usize) -> Outcome + Send + Sync>,
}

impl Work {
    pub(crate) fn new() -> Self {
        Self::ending(|number| Response::new(StatusCode::CREATED, format!("run {number}")).into())
    }

    pub(crate) fn ending(outcome: impl Fn(usize) -> Outcome + Send + Sync + 'static) -> Self {
        Self {
            starts: Arc::default(),
            ends: Arc::default(),
            gate: None,
            takes: Duration::ZERO,
            outcome: Arc::new(outcome),
        }
    }

    /// Waits until the gate is opened.
    pub(crate) fn gated(mut self) -> Self {
        self.gate = Some(Arc::new(Semaphore::new(0)));
        self
    }

    pub(crate) fn taking(mut self, time: Duration) -> Self {
        self.takes = time;
        self
    }

    pub(crate) fn open(&self) {
        self.gate.as_ref().unwrap().add_permits(1000);
    }

    pub(crate) fn starts(&self) -> usize {
        self.starts.load(Ordering::SeqCst)
    }

    pub(crate) fn ends(&self) -> usize {
        self.ends.load(Ordering::SeqCst)
    }

    /// Returns once it runs.
    pub(crate) async fn started(&self) {
        eventually(|| self.starts() > 0).await;
    }

    pub(crate) async fn run(self) -> Outcome {
        let number = self.starts.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(gate) = &self.gate {
            let _pass = gate.acquire().await.unwrap();
        }
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
        let outcome = (self.outcome)(number);
        self.ends.fetch_add(1, Ordering::SeqCst);
        outcome
    }
}

/// Returns when `holds`. Under a paused clock this costs no time.
pub(crate) async fn eventually(holds: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it did not come to hold");
}

/// Lets everything that can run without time passing run.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// The body of an answer that ran here.
#[track_caller]
pub(crate) fn ran(answer: &Answer) -> String {
    match answer {
        Answer::Ran { response, .. } => body(response),
        other => panic!("expected a run, got {other:?}"),
    }
}

/// The body of a replayed answer.
#[track_caller]
pub(crate) fn replayed(answer: &Answer) -> String {
    match answer {
        Answer::Replayed(replay) => body(&replay.response),
        other => panic!("expected a replay, got {other:?}"),
    }
}

/// Why an answer was refused.
#[track_caller]
pub(crate) fn refused(answer: &Answer) -> Reason {
    match answer {
        Answer::Refused(refusal) => refusal.reason,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn body(response: &Response) -> String {
    String::from_utf8(response.body.to_vec()).unwrap()
}

/// Short leases and patience, so that tests are quick to read.
pub(crate) fn policy() -> Policy {
    Policy {
        lease_for: Duration::from_secs(3),
        execution_max: Duration::from_secs(60),
        ..Policy::default()
    }
}

/// What a call that means `meaning` is known by.
pub(crate) fn fingerprint(meaning: &str) -> Fingerprint {
    let mut fingerprint = FingerprintBuilder::new();
    fingerprint.part(Part::Input, meaning.as_bytes());
    fingerprint.finish()
}

/// Nobody's particulars.
pub(crate) fn meta() -> Arc<onlyonce_core::Meta> {
    Arc::new(onlyonce_core::Meta {
        hint: onlyonce_core::key::Hint::default(),
        operation: "test".into(),
        actor: None,
        holder: "somebody".into(),
        trace: None,
        credential: None,
    })
}

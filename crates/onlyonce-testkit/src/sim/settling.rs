//! Reconcile under faults: production engines on one store and an upstream whose effects can be
//! looked up, on virtual time. Gateways die, replies are lost, effects land late, looks hang, fail and
//! panic; no operation may have two effects, and when all is well again each has one answer. In some
//! seeds an operation has three effects, each a durable step; in others gateways settle in the background.

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::engine::Who;
use onlyonce_core::engine::settler::Settler;
use onlyonce_core::fingerprint::Part;
use onlyonce_core::{
    Answer, Call, Claim, Claimed, Completed, Engine, Execution, Finding, FingerprintBuilder, Key,
    KeyRule, Lease, MemoryStore, OnLapse, Operate, Outcome, Policy, Reconcile, Release, Released,
    Renewed, Response, Slot, Store, StoreError, StoreErrorKind, Token, async_trait,
};
use tokio::time::sleep;

use super::dice::{Dice, SeededEntropy};

mod stepped;

/// A planted bug in the look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookBug {
    /// A look that gets no answer counts as "did not".
    TimeoutIsDidNot,
    /// Nobody looks: what is in doubt runs again.
    NoLook,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Operations, each with all its effects once.
    pub operations: u64,
    /// Handlers that were started.
    pub runs: u64,
    /// Steps that were started.
    pub steps: u64,
    /// Looks that were made.
    pub looks: u64,
    /// Of these, without a retry.
    pub in_background: u64,
    /// Looks that got no clear answer.
    pub unclear: u64,
    /// Processes that died.
    pub crashes: u64,
}

impl Settled {
    /// Adds what another run came to.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.runs += other.runs;
        self.steps += other.steps;
        self.looks += other.looks;
        self.in_background += other.in_background;
        self.unclear += other.unclear;
        self.crashes += other.crashes;
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsettled {
    /// The seed that does it again.
    pub seed: u64,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.what)
    }
}

/// Effects land at most this late, and no lease is shorter: who waits for a lease, or this long after
/// a loss, sees all that will ever happen.
const LATE_MAX_MS: u64 = 40;
const LEASE_MS: u64 = 300;
const STRIFE_MS: u64 = 4_000;
/// What the operations are called.
const NAME: &str = "settling";

struct World {
    dice: Mutex<Dice>,
    /// Effects by the operation's id: their answers.
    effects: Mutex<BTreeMap<String, Vec<u64>>>,
    /// Successful answers heard, by key.
    heard: Mutex<BTreeMap<usize, Vec<String>>>,
    counts: Mutex<Settled>,
    is_calm: AtomicBool,
    /// Whether an operation is several steps.
    is_stepped: bool,
    /// Whether gateways also look without a retry.
    settles_alone: bool,
    bug: Option<LookBug>,
}

impl World {
    fn draw<T>(&self, draw: impl FnOnce(&mut Dice) -> T) -> T {
        draw(&mut self.dice.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    /// Whether something goes wrong now.
    fn fails(&self, permille: u64) -> bool {
        self.draw(|dice| dice.chance(permille)) && !self.is_calm()
    }

    fn count(&self, count: impl FnOnce(&mut Settled)) {
        count(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    async fn pause(&self, up_to_ms: u64) {
        let time = self.draw(|dice| dice.between(0..=up_to_ms));
        sleep(Duration::from_millis(time)).await;
    }

    /// The effect itself: once it is there, a look finds it.
    fn effect(&self, operation: &str) -> u64 {
        let mut effects = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        let number = effects.values().map(Vec::len).sum::<usize>() as u64;
        effects
            .entry(operation.to_owned())
            .or_default()
            .push(number);
        number
    }

    fn found(&self, operation: &str) -> Option<u64> {
        let effects = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        effects.get(operation).map(|effects| effects[0])
    }
}

fn answer(number: u64) -> Response {
    Response::new(StatusCode::CREATED, format!("effect {number}"))
}

/// A process: what it does after its death stays undone.
#[derive(Default)]
struct Process {
    is_dead: AtomicBool,
}

impl Process {
    /// Goes on only while it lives.
    async fn live(&self) {
        if self.is_dead.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    }
}

/// The store over a bad line of one process.
struct Line {
    store: Arc<MemoryStore>,
    process: Arc<Process>,
    world: Arc<World>,
}

impl Line {
    async fn over<T>(
        &self,
        act: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.process.live().await;
        self.world.pause(3).await;
        if self.world.fails(40) {
            return Err(StoreError::new("line", StoreErrorKind::Unavailable));
        }
        let done = act.await;
        self.world.pause(3).await;
        self.process.live().await;
        if self.world.fails(40) {
            return Err(StoreError::new("line", StoreErrorKind::Unavailable));
        }
        done
    }
}

#[async_trait]
impl Store for Line {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.over(self.store.claim(claim)).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        self.over(self.store.renew(lease, lease_for)).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        self.over(self.store.complete(lease, response, keep_for))
            .await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        self.over(self.store.release(lease, why)).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.over(self.store.settled(slot, seen, at_most)).await
    }

    fn operate(&self) -> Option<&dyn Operate> {
        self.store.operate()
    }
}

/// One gateway.
#[derive(Clone)]
struct Node {
    engine: Engine,
    process: Arc<Process>,
    world: Arc<World>,
}

impl Node {
    async fn start(world: &Arc<World>, store: &Arc<MemoryStore>) -> Self {
        let process = Arc::<Process>::default();
        let line = Line {
            store: Arc::clone(store),
            process: Arc::clone(&process),
            world: Arc::clone(world),
        };
        let entropy = Arc::new(SeededEntropy::new(world.draw(Dice::fork)));
        let never = Duration::from_secs(1_000_000);
        let builder = Engine::builder(line)
            .secret(onlyonce_core::SlotSecret::from_bytes([7; 32]))
            .entropy(entropy)
            .check_every(never)
            .sweep_every(never);
        let engine = builder.open().await.expect("the store agrees on a secret");
        Self {
            engine,
            process,
            world: Arc::clone(world),
        }
    }

    fn call(&self, key: usize, policy: &Arc<Policy>) -> Call {
        let key = Key::new(&format!("key-{key}"), &KeyRule::default()).expect("it is a key");
        let mut fingerprint = FingerprintBuilder::new();
        fingerprint.part(Part::Input, b"the same");
        let scope = self.engine.scope();
        let who = Who::doing(NAME);
        let call = self
            .engine
            .call(&scope, &key, fingerprint.finish(), policy, who);
        if self.world.bug == Some(LookBug::NoLook) || self.world.is_stepped {
            return call;
        }
        let node = self.clone();
        let reconcile = Reconcile::new(move |execution| {
            let node = node.clone();
            async move { node.find(&execution.operation().to_string()).await }
        })
        .within(Duration::from_millis(LATE_MAX_MS))
        .after(Duration::from_millis(LATE_MAX_MS));
        call.reconcile(reconcile)
    }

    /// The effect, and all that can happen around it.
    async fn work(self, execution: Execution) -> Outcome {
        let world = &self.world;
        world.count(|counts| counts.runs += 1);
        let operation = execution.operation().to_string();
        world.pause(20).await;
        self.process.live().await;
        if world.fails(150) {
            return Outcome::Unknown;
        }
        let is_late = world.fails(150);
        if is_late {
            let (world, late) = (Arc::clone(world), Arc::clone(world));
            tokio::spawn(async move {
                late.pause(LATE_MAX_MS / 2).await;
                world.effect(&operation);
            });
            return Outcome::Unknown;
        }
        let number = world.effect(&operation);
        world.pause(20).await;
        if world.fails(150) {
            self.process.is_dead.store(true, Ordering::Relaxed);
        }
        self.process.live().await;
        match world.draw(|dice| dice.below(10)) {
            _ if world.is_calm() => answer(number).into(),
            0 => Outcome::Unknown,
            1 => Response::new(StatusCode::INTERNAL_SERVER_ERROR, "lost").into(),
            _ => answer(number).into(),
        }
    }

    /// Looks for lapsed operations by itself, until its process dies or all is well.
    async fn settle_alone(self, policy: Arc<Policy>) {
        let node = self.clone();
        let every = Duration::from_millis(100);
        let mut settler = Settler::new(&self.engine, NAME, &policy, every, move |unsettled| {
            let node = node.clone();
            async move {
                node.world.count(|counts| counts.in_background += 1);
                node.find(&unsettled.operation().to_string()).await
            }
        })
        .within(Duration::from_millis(LATE_MAX_MS));
        while !self.world.is_calm() {
            self.process.live().await;
            self.world.pause(200).await;
            // A round that cannot read the store is followed by another one.
            drop(settler.round().await);
        }
    }

    async fn find(&self, operation: &str) -> Finding {
        match self.look(operation).await {
            Ok(Some(number)) => Finding::happened(answer(number)),
            Ok(None) => Finding::DidNot,
            Err(finding) => finding,
        }
    }

    /// What can be found out, and all that can go wrong with that.
    async fn look(&self, operation: &str) -> Result<Option<u64>, Finding> {
        let world = &self.world;
        world.count(|counts| counts.looks += 1);
        self.process.live().await;
        world.pause(10).await;
        if world.fails(400) {
            world.count(|counts| counts.unclear += 1);
            if world.bug == Some(LookBug::TimeoutIsDidNot) {
                return Err(Finding::DidNot);
            }
            match world.draw(|dice| dice.below(3)) {
                0 => pending::<()>().await,
                1 => std::panic::resume_unwind(Box::new("the look panicked, as planned")),
                _ => return Err(Finding::CannotTell),
            }
        }
        let found = world.found(operation);
        world.pause(10).await;
        self.process.live().await;
        Ok(found)
    }

    async fn ask(&self, key: usize, policy: &Arc<Policy>) -> Option<String> {
        let node = self.clone();
        let work = move |execution| async move {
            if node.world.is_stepped {
                node.work_in_steps(execution).await
            } else {
                node.work(execution).await
            }
        };
        let response = match self.engine.once(self.call(key, policy), work).await {
            Answer::Ran { response, .. } => response,
            Answer::Replayed(replay) => replay.response,
            Answer::Refused(_) => return None,
        };
        let text = String::from_utf8_lossy(&response.body).into_owned();
        (response.status == StatusCode::CREATED).then_some(text)
    }
}

/// Runs one seed.
///
/// # Panics
///
/// If it is called from within an asynchronous runtime: it brings its own.
pub fn settle(seed: u64, bug: Option<LookBug>) -> Result<Settled, Unsettled> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets or threads needs nothing from the system");
    let what = runtime.block_on(play(seed, bug));
    // Whatever still hangs (what dead processes left behind) is dropped here.
    drop(runtime);
    what.map_err(|what| Unsettled { seed, what })
}

async fn play(seed: u64, bug: Option<LookBug>) -> Result<Settled, String> {
    let mut dice = Dice::new(seed);
    let is_stepped = dice.chance(333);
    let settles_alone = !is_stepped && bug != Some(LookBug::NoLook) && dice.chance(500);
    let world = Arc::new(World {
        dice: Mutex::new(dice),
        effects: Mutex::default(),
        heard: Mutex::default(),
        counts: Mutex::default(),
        is_calm: AtomicBool::new(false),
        is_stepped,
        settles_alone,
        bug,
    });
    let store = Arc::new(MemoryStore::new());
    let policy = Arc::new(policy(&world));
    let keys = 1 + world.draw(|dice| dice.index(4));
    let nodes = 1 + world.draw(|dice| dice.index(3));
    let mut gateways = Vec::new();
    for _ in 0..nodes {
        gateways.push(tokio::spawn(serve(
            Arc::clone(&world),
            Arc::clone(&store),
            Arc::clone(&policy),
            keys,
        )));
    }
    sleep(Duration::from_millis(STRIFE_MS)).await;
    world.is_calm.store(true, Ordering::Relaxed);
    for gateway in gateways {
        gateway.await.map_err(|error| error.to_string())?;
    }
    judge(&world, &store, &policy, keys).await
}

fn policy(world: &World) -> Policy {
    Policy {
        lease_for: Duration::from_millis(LEASE_MS),
        execution_max: Duration::from_millis(400),
        keep_for: Duration::from_secs(100_000),
        on_lapse: match world.is_stepped {
            // What is finished of it is not done again.
            true => OnLapse::Rerun,
            false => world.draw(|dice| dice.pick(&[OnLapse::Rerun, OnLapse::Hold])),
        },
        stored: onlyonce_core::policy::StoredRule::success(),
        ..Policy::default()
    }
}

/// Callers at one gateway, which is started anew whenever it dies.
async fn serve(world: Arc<World>, store: Arc<MemoryStore>, policy: Arc<Policy>, keys: usize) {
    let start = async || {
        let node = Node::start(&world, &store).await;
        if world.settles_alone {
            tokio::spawn(node.clone().settle_alone(Arc::clone(&policy)));
        }
        node
    };
    let mut node = start().await;
    while !world.is_calm() {
        let key = world.draw(|dice| dice.index(keys));
        let asked = {
            let (node, policy) = (node.clone(), Arc::clone(&policy));
            let world = Arc::clone(&world);
            async move {
                if let Some(text) = node.ask(key, &policy).await {
                    let mut heard = world.heard.lock().unwrap_or_else(PoisonError::into_inner);
                    heard.entry(key).or_default().push(text);
                }
            }
        };
        tokio::spawn(asked);
        world.pause(60).await;
        if node.process.is_dead.load(Ordering::Relaxed) {
            world.count(|counts| counts.crashes += 1);
            world.pause(100).await;
            node = start().await;
        }
    }
}

/// When all is well, each operation comes to one answer, that of its one effect.
async fn judge(
    world: &Arc<World>,
    store: &Arc<MemoryStore>,
    policy: &Arc<Policy>,
    keys: usize,
) -> Result<Settled, String> {
    let node = Node::start(world, store).await;
    for key in 0..keys {
        let mut answered = None;
        for _ in 0..100 {
            answered = node.ask(key, policy).await;
            if answered.is_some() {
                break;
            }
            sleep(Duration::from_secs(2)).await;
        }
        let answered = answered.ok_or_else(|| format!("key {key} is never settled"))?;
        let heard = world.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = heard.get(&key).cloned().unwrap_or_default();
        if let Some(other) = heard.iter().find(|it| **it != answered) {
            return Err(format!(
                "key {key} was answered {other:?}, then {answered:?}"
            ));
        }
    }
    let effects = world.effects.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((operation, twice)) = effects.iter().find(|(_, it)| it.len() > 1) {
        return Err(format!("{operation} happened {} times", twice.len()));
    }
    let wanted = match world.is_stepped {
        true => keys * stepped::STEPS.len(),
        false => keys,
    };
    if effects.len() != wanted {
        return Err(format!("{} of {wanted} effects happened", effects.len()));
    }
    let mut counts = *world.counts.lock().unwrap_or_else(PoisonError::into_inner);
    counts.operations = keys as u64;
    Ok(counts)
}

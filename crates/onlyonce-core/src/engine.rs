//! The engine: one claim, one execution, one stored answer, whatever goes wrong in between.
//!
//! [`Engine::once`] is the whole life of a call; [`Engine::begin`] and [`Engine::finish`] are its
//! two halves for those who run the work themselves; [`Engine::job`] is for plain functions.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Notify, Semaphore};

use crate::clock::{Clock, SystemClock, Timestamp};
use crate::entropy::{Entropy, OsEntropy};
use crate::event::{About, Event, ServerAddress, Subscriber, TracingSubscriber};
use crate::fingerprint::Fingerprint;
use crate::key::{Hint, Key};
use crate::operate::Operate;
use crate::policy::Policy;
use crate::refusal::Refusal;
use crate::slot::{Scope, Slot, SlotSecret};
use crate::store::{Store, StoreError};

mod agreement;
mod begin;
mod call;
mod execution;
mod finish;
mod flight;
mod follow;
mod found;
pub mod job;
pub mod judge;
mod once;
mod reconcile;
mod renew;
mod retry;
mod rotate;
mod scopes;
mod secret;
pub mod settler;
mod status;
mod step;
mod sweep;
mod tally;

pub use self::call::{Answer, Call, Outcome, Verdict, Who};
pub use self::execution::Execution;
pub use self::finish::Held;
pub use self::reconcile::{Finding, Reconcile};
pub use self::secret::{FormerSecret, look_up_secret};
pub use self::status::{KeyState, KeyStatus};
pub use self::step::{Step, StepError, extend_with_steps, step_of, steps_of};

use self::agreement::Agreement;
use self::flight::Flights;
use self::reconcile::PutOff;
use self::renew::Renewals;
use self::sweep::Sweeping;
use self::tally::Tally;

/// Completions and releases that go on in the background when the store fails, at most.
const BACKGROUND_COUNT_MAX: usize = 1024;
/// The bytes they may hold together.
const BACKGROUND_BYTES_MAX: usize = 64 << 20;

/// Runs keyed operations once. Cheap to clone; all clones are one engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    subscribers: Vec<Arc<dyn Subscriber>>,
    secret: SlotSecret,
    /// Shared with `former`.
    agreement: Arc<Agreement>,
    /// The same store under the former secret, while the secret is rotated.
    former: Option<Engine>,
    server: Option<Arc<ServerAddress>>,
    holder: Arc<str>,
    namespace: Arc<str>,
    flights: Flights,
    renewals: Renewals,
    tally: Tally,
    put_off: PutOff,
    background_count: Arc<Semaphore>,
    background_bytes: Arc<Semaphore>,
    closing: AtomicBool,
    closed: Notify,
}

/// A store, shared: made from any store, or from an `Arc` of one.
pub struct SharedStore(Arc<dyn Store>);

impl<S: Store> From<S> for SharedStore {
    fn from(store: S) -> Self {
        Self(Arc::new(store))
    }
}

impl<S: Store> From<Arc<S>> for SharedStore {
    fn from(store: Arc<S>) -> Self {
        Self(store)
    }
}

impl From<Arc<dyn Store>> for SharedStore {
    fn from(store: Arc<dyn Store>) -> Self {
        Self(store)
    }
}

/// Why an engine did not open.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The store did not answer.
    #[error("the store could not be asked for the slot secret")]
    Store(#[from] StoreError),
    /// The configured secret is not the one this store's records were made with.
    #[error(
        "the configured slot secret is not the one this store was first used with: configure that one, or use a new store"
    )]
    SecretMismatch,
    /// What the store keeps as the secret cannot be read.
    #[error("the slot secret kept in the store cannot be read: configure the secret instead")]
    SecretUnreadable,
    /// The secret was rotated away: records are addressed by its successor now.
    #[error(
        "the slot secret was rotated, and this process has only the former one: configure the new one"
    )]
    SecretRotated,
    /// A store without an operators' side cannot agree on a secret.
    #[error("this store cannot keep the slot secret: configure one with `Builder::secret`")]
    SecretMissing,
}

/// What runs and waits in a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Calls that have their slot.
    pub running: usize,
    /// Duplicates that wait for a call of this process.
    pub waiting: usize,
    /// How long the oldest of those that run has had its slot.
    pub held_longest: Duration,
}

/// Settings of an engine before it opens.
pub struct Builder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    subscribers: Vec<Arc<dyn Subscriber>>,
    secret: Option<SlotSecret>,
    former: Option<FormerSecret>,
    server: Option<Arc<ServerAddress>>,
    holder: Option<Arc<str>>,
    namespace: Arc<str>,
    sweeping: Sweeping,
    running_max: usize,
    check_every: Duration,
}

impl Builder {
    /// Uses this slot secret instead of the one the store agrees on.
    #[must_use]
    pub fn secret(mut self, secret: SlotSecret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Rotates from `former` to the configured secret: calls are claimed and stored under both, so
    /// that processes with either one, or both, find each other's records. After one maximum
    /// retention with every process like this, start them with the new one alone.
    #[must_use]
    pub fn rotate_from(mut self, former: FormerSecret) -> Self {
        self.former = Some(former);
        self
    }

    /// Keeps this engine's records apart from those of other environments on the same store.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Whether [a name](Self::instance) was given.
    pub fn has_instance(&self) -> bool {
        self.holder.is_some()
    }

    /// Says where the store's server is, for those who are told that it failed.
    #[must_use]
    pub fn server(mut self, address: ServerAddress) -> Self {
        self.server = Some(Arc::new(address));
        self
    }

    /// What this instance is called in records; a random name otherwise.
    #[must_use]
    pub fn instance(mut self, name: &str) -> Self {
        self.holder = Some(name.into());
        self
    }

    /// Tells `subscriber` everything that happens, besides the log.
    #[must_use]
    pub fn subscribe(mut self, subscriber: Arc<dyn Subscriber>) -> Self {
        self.subscribers.push(subscriber);
        self
    }

    /// Sweeps expired records out of the store this often; every five minutes otherwise.
    #[must_use]
    pub fn sweep_every(mut self, every: Duration) -> Self {
        self.sweeping.every = every;
        self
    }

    /// Sweeps whenever `early` is notified too, for those who tell of records in the moment they end.
    #[must_use]
    pub fn sweep_early(mut self, early: Arc<Notify>) -> Self {
        self.sweeping.early = Some(early);
        self
    }

    /// Runs at most so many calls at a time in this process; any number otherwise. Calls count from
    /// their claim until their answer is stored, also when their callers have gone away. A new call
    /// beyond that is refused before it claims anything; duplicates of those that run, and retries
    /// of those that ended, are answered as usual.
    #[must_use]
    pub fn running_max(mut self, calls: NonZeroUsize) -> Self {
        self.running_max = calls.get();
        self
    }

    /// Checks this often that the slot secret which all processes have agreed on is still the one in
    /// the store, and what else the store depends on; every second otherwise.
    #[must_use]
    pub fn check_every(mut self, every: Duration) -> Self {
        self.check_every = every;
        self
    }

    /// Reads the time from `clock`.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Takes randomness from `entropy`.
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// Agrees with the store on the slot secret, and starts the engine.
    pub async fn open(self) -> Result<Engine, OpenError> {
        let store = &*self.store;
        let connected = store.operate().map_or(0, Operate::connected);
        let agreed = secret::agree(store, self.secret, self.former, &*self.entropy).await?;
        let clock = Arc::clone(&self.clock);
        let agreement = Agreement::new(store, &agreed, connected, clock).await?;
        let holder = self.holder.unwrap_or_else(|| random_name(&*self.entropy));
        let part = Part {
            store: self.store,
            clock: self.clock,
            entropy: self.entropy,
            agreement: Arc::new(agreement),
            server: self.server,
            holder,
            namespace: self.namespace,
            running_max: self.running_max,
        };
        let former = agreed.former.map(|secret| {
            let former = part.clone().engine(secret, Vec::new(), None);
            renew::start(&former.inner);
            former
        });
        let engine = part.engine(agreed.secret, self.subscribers, former);
        renew::start(&engine.inner);
        sweep::start(&engine.inner, self.sweeping);
        agreement::start(&engine.inner, self.check_every);
        Ok(engine)
    }
}

/// What an engine shares with the one under the former secret.
#[derive(Clone)]
struct Part {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    agreement: Arc<Agreement>,
    server: Option<Arc<ServerAddress>>,
    holder: Arc<str>,
    namespace: Arc<str>,
    running_max: usize,
}

impl Part {
    fn engine(
        self,
        secret: SlotSecret,
        subscribers: Vec<Arc<dyn Subscriber>>,
        former: Option<Engine>,
    ) -> Engine {
        let inner = Arc::new(Inner {
            store: self.store,
            clock: self.clock,
            entropy: self.entropy,
            subscribers,
            secret,
            agreement: self.agreement,
            former,
            server: self.server,
            holder: self.holder,
            namespace: self.namespace,
            flights: Flights::new(self.running_max),
            renewals: Renewals::default(),
            tally: Tally::default(),
            put_off: PutOff::default(),
            background_count: Arc::new(Semaphore::new(BACKGROUND_COUNT_MAX)),
            background_bytes: Arc::new(Semaphore::new(BACKGROUND_BYTES_MAX)),
            closing: AtomicBool::new(false),
            closed: Notify::new(),
        });
        Engine { inner }
    }
}

fn random_name(entropy: &dyn Entropy) -> Arc<str> {
    let mut bytes = [0; 8];
    entropy.fill(&mut bytes);
    format!("instance-{:016x}", u64::from_le_bytes(bytes)).into()
}

impl Engine {
    /// An engine on `store` with everything else as usual.
    pub async fn open(store: impl Into<SharedStore>) -> Result<Self, OpenError> {
        Self::builder(store).open().await
    }

    /// An engine on `store` with settings to follow.
    pub fn builder(store: impl Into<SharedStore>) -> Builder {
        Builder {
            store: store.into().0,
            clock: Arc::new(SystemClock::new()),
            entropy: Arc::new(OsEntropy::new()),
            subscribers: vec![Arc::new(TracingSubscriber)],
            secret: None,
            former: None,
            server: None,
            holder: None,
            namespace: "".into(),
            sweeping: Sweeping {
                every: sweep::SWEEP_EVERY,
                early: None,
            },
            running_max: usize::MAX,
            check_every: agreement::CHECK_EVERY,
        }
    }

    /// What this instance is called in records.
    pub fn instance(&self) -> &str {
        &self.inner.holder
    }

    /// The store behind this engine.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// An empty scope in this engine's namespace.
    pub fn scope(&self) -> Scope {
        Scope::new(&self.inner.namespace)
    }

    /// Where `key` within `scope` is kept.
    pub fn slot(&self, scope: &Scope, key: &Key) -> Slot {
        self.inner.secret.slot(scope, key)
    }

    /// What the records of `key` tell of it, in whatever scope: to
    /// [list](crate::operate::Filter::hint) them.
    pub fn hint(&self, key: &Key) -> Hint {
        self.inner.secret.hint(key)
    }

    /// A keyed digest of a credential that could not be verified.
    pub fn credential(&self, credential: &[u8]) -> [u8; 32] {
        self.inner.secret.credential(credential)
    }

    /// One call: `key` within `scope`, meaning `fingerprint`, under `policy`.
    pub fn call(
        &self,
        scope: &Scope,
        key: &Key,
        fingerprint: Fingerprint,
        policy: &Arc<Policy>,
        who: Who,
    ) -> Call {
        let call = Call::new(
            self.slot(scope, key),
            key,
            fingerprint,
            policy,
            (who.intake.clone(), who.route.clone()),
            who.meta(self.hint(key), &self.inner.holder),
            self.now(),
        );
        if policy.key.random && key.looks_weak() {
            self.emit(&call, &Event::WeakKey);
        }
        call
    }

    /// Whether the slot secret in the store was still the one of this engine when it last looked: if
    /// it is not, calls are refused.
    pub fn agrees(&self) -> bool {
        !self.inner.agreement.is_broken()
    }

    /// Whether this call's slot holds a live record: then its key is not a new one.
    pub async fn is_known(&self, call: &Call) -> Result<bool, StoreError> {
        match self.inner.store.operate() {
            Some(operate) => {
                let former = call.former.as_ref().map(|former| former.slot);
                for slot in former.into_iter().chain([call.slot]) {
                    if operate.get(&slot).await?.is_some() {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            None => Ok(false),
        }
    }

    /// Says that a call was refused before the engine heard of it.
    pub fn refused(&self, call: &Call, refusal: &Refusal) {
        let event = Event::Refused {
            reason: refusal.reason,
            original: refusal.original.clone(),
            took: self.now().saturating_sub(call.began),
        };
        self.emit(call, &event);
    }

    /// Stops taking calls, gives back what never started, waits for running handlers and pending
    /// completions at most `grace`; says how many were still running then.
    pub async fn shutdown(&self, grace: Duration) -> usize {
        let engines = [self.former(), Some(self)];
        for engine in engines.into_iter().flatten() {
            engine.inner.closing.store(true, Ordering::SeqCst);
            engine.inner.closed.notify_waiters();
        }
        let idle = async {
            for engine in engines.into_iter().flatten() {
                engine.inner.flights.idle().await;
            }
        };
        let _ = tokio::time::timeout(grace, idle).await;
        for engine in engines.into_iter().flatten() {
            engine.flush_replays().await;
        }
        self.in_flight()
    }

    /// How many calls run or wait in this process.
    pub fn in_flight(&self) -> usize {
        let own = self.inner.flights.len();
        // In a rotation these are inside of others.
        self.former()
            .map_or(own, |former| former.in_flight().max(own))
    }

    /// How much runs and waits in this process now.
    pub fn load(&self) -> Load {
        let now = self.now();
        let mut load = Load {
            // In a rotation a duplicate waits under the former secret already.
            waiting: self.former().map_or(0, |former| former.load().waiting),
            ..Load::default()
        };
        for flight in self.inner.flights.all() {
            load.waiting += flight.waiters();
            if let Some(since) = flight.held_since() {
                load.running += 1;
                load.held_longest = load.held_longest.max(now.saturating_sub(since));
            }
        }
        load
    }

    fn emit(&self, call: &Call, event: &Event) {
        let about = About {
            slot: &call.slot,
            meta: &call.meta,
            fingerprint: Some(&call.fingerprint),
            intake: call.intake.as_deref(),
            route: call.route.as_deref(),
        };
        self.emit_about(&about, event);
    }

    fn emit_about(&self, about: &About<'_>, event: &Event) {
        for subscriber in &self.inner.subscribers {
            subscriber.on_event(about, event);
        }
    }

    /// Returns when the engine shuts down.
    async fn closed(&self) {
        let closed = self.inner.closed.notified();
        tokio::pin!(closed);
        closed.as_mut().enable();
        if !self.is_closing() {
            closed.await;
        }
    }

    fn is_closing(&self) -> bool {
        self.inner.closing.load(Ordering::SeqCst)
    }

    fn now(&self) -> Duration {
        self.inner.clock.now()
    }

    /// The date and time on the engine's clock, to compare with what a client's key carries.
    pub fn wall(&self) -> Timestamp {
        self.inner.clock.wall()
    }
}

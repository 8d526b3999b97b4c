//! What a model is explored for: who calls what, and how much may happen.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::engine::Who;
use onlyonce_core::policy::{Duplicate, StoredRule};
use onlyonce_core::{Call, Engine, Fingerprint, Key, KeyRule, MemoryStore, OnLapse, Policy, Token};

use super::process::Ending;
use super::{Attempt, Tick};

/// How long a lease lasts: the unit of the model's time.
const LEASE: Duration = Duration::from_secs(30);
/// How long a record outlives its lease, and an answer is kept, in leases.
pub(super) const KEPT: Tick = 2;
/// The date at which it begins.
const EPOCH: Duration = Duration::from_secs(1_700_000_000);

/// Who calls what, and how much may happen.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The calls: one per process.
    pub asked: Vec<Asked>,
    /// How a handler may end.
    pub endings: Vec<Ending>,
    /// So many leases pass at most.
    pub leases_max: Tick,
    /// An operator forgets so often at most.
    pub forgets_max: u32,
    /// A process makes so many tokens at most.
    pub tokens_max: u8,
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The number of its key.
    pub key: usize,
    /// What it means: another number is another fingerprint.
    pub meaning: u8,
    /// What is to follow when its lease lapses.
    pub on_lapse: OnLapse,
}

impl Asked {
    /// A call that runs again.
    pub const RERUN: Self = Self {
        key: 0,
        meaning: 0,
        on_lapse: OnLapse::Rerun,
    };
    /// A call that does not.
    pub const HOLD: Self = Self {
        on_lapse: OnLapse::Hold,
        ..Self::RERUN
    };

    /// The same for another key.
    #[must_use]
    pub const fn of_key(self, key: usize) -> Self {
        Self { key, ..self }
    }

    /// The same with another meaning.
    #[must_use]
    pub const fn meaning(self, meaning: u8) -> Self {
        Self { meaning, ..self }
    }
}

impl Scenario {
    /// Handlers that answer; one lease passes, and nothing is forgotten.
    pub fn of(asked: &[Asked]) -> Self {
        Self {
            asked: asked.to_vec(),
            endings: vec![Ending::Answers],
            leases_max: 1,
            forgets_max: 0,
            tokens_max: 2,
        }
    }

    pub(super) fn keys(&self) -> usize {
        self.asked.iter().map(|it| it.key + 1).max().unwrap_or(0)
    }

    /// The calls as the engine makes them.
    pub(super) fn calls(&self) -> Vec<Call> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime without sockets or threads needs nothing from the system");
        runtime.block_on(async {
            let engine = Engine::open(MemoryStore::new()).await;
            let engine = engine.expect("a store in memory opens");
            self.asked.iter().map(|it| it.call(&engine)).collect()
        })
    }
}

impl Asked {
    fn call(&self, engine: &Engine) -> Call {
        let key = format!("7d9f1c1e-0b1a-4c55-9d5e-00000000000{}", self.key);
        let key = Key::new(&key, &KeyRule::default()).expect("a UUID is a key");
        let fingerprint = Fingerprint::new(Fingerprint::RECIPE, [self.meaning; 32]);
        let policy = Policy {
            lease_for: LEASE,
            keep_for: LEASE * KEPT,
            on_lapse: self.on_lapse,
            duplicate: Duplicate::Wait(LEASE),
            stored: StoredRule::success(),
            ..Policy::default()
        };
        let who = Who::doing("modelled");
        engine.call(&engine.scope(), &key, fingerprint, &Arc::new(policy), who)
    }
}

/// A moment on the store's clock.
pub(super) fn moment(now: Tick) -> Duration {
    EPOCH + LEASE * now
}

/// How many leases these are.
pub(super) fn ticks(time: Duration) -> Tick {
    Tick::try_from(time.as_secs() / LEASE.as_secs()).expect("a model's time is short")
}

/// How long so many leases are.
pub(super) fn leases(ticks: Tick) -> Duration {
    LEASE * ticks
}

impl Attempt {
    /// Its token.
    pub(super) fn token(self) -> Token {
        let mut bytes = [0; Token::BYTES];
        bytes[0] = u8::try_from(self.process).expect("processes are few");
        bytes[1] = self.token;
        Token::from_bytes(bytes)
    }

    /// Whose token it is.
    pub(super) fn of(token: &Token) -> Self {
        let [process, number, ..] = token.as_bytes();
        Self {
            process: usize::from(*process),
            token: *number,
        }
    }
}

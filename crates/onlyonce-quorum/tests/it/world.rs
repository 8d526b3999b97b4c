//! One run: some processes with a store each, some servers, and faults, all from one seed and on
//! virtual time.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::{
    Claim, Claimed, Clock, Completed, Fingerprint, Key, KeyRule, Meta, OnLapse, Release, Response,
    Slot, Store, SystemClock, Token, async_trait,
};
use onlyonce_quorum::{Acceptor, Model, QuorumStore, Upkeep};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::ledger::{Counts, Ledger};
use super::redlock::Redlock;
use super::server::{Seeded, Server, Weather, Wire};

const PROCESSES: usize = 3;
const CALLERS: usize = 3;
const KEYS: u8 = 6;
const CALLS: usize = 12;
const LEASE: Duration = Duration::from_secs(20);
/// Longer than a run.
const KEEP: Duration = Duration::from_secs(100_000);
/// How far one server's clock may be off: less than a register's tail.
const CLOCK_MS_MAX: i64 = 45_000;

/// What is wrong with the store of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    Nothing,
    /// A server votes on after it lost its data.
    VotesAfterLoss,
    /// A server is admitted without what others know being written back.
    AdmittedAtOnce,
    /// Plain Redlock: a lock on a majority, and no ballots.
    Redlock,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) servers: usize,
    pub(super) planted: Planted,
}

pub(super) struct Outcome {
    pub(super) violations: Vec<String>,
    pub(super) counts: Counts,
}

struct World {
    plan: Plan,
    servers: Vec<Arc<Server>>,
    wires: Vec<Vec<Arc<Wire>>>,
    stores: Vec<Arc<dyn Store>>,
    /// Of the process that admits servers.
    keeper: Arc<QuorumStore>,
    keeper_epoch: Arc<AtomicU64>,
    weather: Arc<Mutex<Weather>>,
    ledger: Ledger,
    clock: SystemClock,
}

pub(super) fn run(plan: Plan) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let outcome = runtime.block_on(async {
        let world = Arc::new(World::new(plan));
        world.play().await;
        Outcome {
            violations: world.ledger.violations(),
            counts: *world.ledger.counts.lock().unwrap(),
        }
    });
    drop(runtime);
    outcome
}

struct NoUpkeep;

#[async_trait]
impl Upkeep for NoUpkeep {
    async fn recheck(&self) -> Result<(), onlyonce_core::StoreError> {
        Ok(())
    }

    async fn tend(&self, _: &QuorumStore) -> Result<(), onlyonce_core::StoreError> {
        Ok(())
    }

    fn connected(&self) -> u64 {
        1
    }
}

/// A store over these wires.
pub(super) fn quorum(wires: &[Arc<Wire>], seed: u64) -> Arc<QuorumStore> {
    let acceptors = wires.iter().map(|it| Arc::clone(it) as Arc<dyn Acceptor>);
    Arc::new(QuorumStore::new(
        acceptors.collect(),
        Arc::new(SystemClock::new()),
        Arc::new(Seeded::new(seed)),
        Arc::new(NoUpkeep),
    ))
}

impl World {
    fn new(plan: Plan) -> Self {
        let mut seeds = ChaCha8Rng::seed_from_u64(plan.seed);
        let weather = Arc::new(Mutex::new(Weather {
            delay_ms_max: 3,
            ..Weather::default()
        }));
        let servers: Vec<_> = (0..plan.servers).map(|_| Server::new()).collect();
        let mut wire_all = || {
            let epoch = Arc::new(AtomicU64::new(1));
            let wires = servers.iter();
            let wires = wires.map(|it| Wire::new(it, &epoch, &weather, seeds.random()));
            let wires: Vec<_> = wires.collect();
            (wires, epoch, seeds.random::<u64>())
        };
        let (mut all, mut stores) = (Vec::new(), Vec::new());
        for _ in 0..PROCESSES {
            let (wires, _, seed) = wire_all();
            stores.push(match plan.planted {
                Planted::Redlock => Arc::new(Redlock::new(wires.clone())) as Arc<dyn Store>,
                Planted::Nothing | Planted::VotesAfterLoss | Planted::AdmittedAtOnce => {
                    quorum(&wires, seed) as Arc<dyn Store>
                }
            });
            all.push(wires);
        }
        let (wires, keeper_epoch, seed) = wire_all();
        let keeper = quorum(&wires, seed);
        all.push(wires);
        Self {
            plan,
            servers,
            wires: all,
            stores,
            keeper,
            keeper_epoch,
            weather,
            ledger: Ledger::default(),
            clock: SystemClock::new(),
        }
    }

    async fn play(self: &Arc<Self>) {
        let mut seeds = ChaCha8Rng::seed_from_u64(self.plan.seed ^ 0x5eed);
        let mut callers = Vec::new();
        for process in 0..PROCESSES {
            for _ in 0..CALLERS {
                let (world, seed) = (Arc::clone(self), seeds.random());
                callers.push(tokio::spawn(async move { world.call(process, seed).await }));
            }
        }
        let (world, seed) = (Arc::clone(self), seeds.random());
        let faults = tokio::spawn(async move { world.trouble(seed).await });
        for caller in callers {
            caller.await.unwrap();
        }
        faults.abort();
        self.heal();
        tokio::time::sleep(Duration::from_secs(60)).await;
        self.look_back().await;
    }

    /// A caller who asks some keys, and runs what it is granted.
    async fn call(&self, process: usize, seed: u64) {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let store = &*self.stores[process];
        for _ in 0..CALLS {
            let pause = dice.random_range(0..15_000);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let claim = claim(dice.random_range(0..KEYS), dice.random());
            self.ledger.counts.lock().unwrap().operations += 1;
            if dice.random_range(0..10) == 0 {
                self.agree(store, dice.random()).await;
            }
            self.claim(store, &claim, &mut dice).await;
        }
    }

    async fn agree(&self, store: &dyn Store, offer: u64) {
        let Some(operate) = store.operate() else {
            return;
        };
        if let Ok(secret) = operate.agree("secret", &offer.to_be_bytes()).await {
            self.ledger.agreed(&secret);
        }
    }

    async fn claim(&self, store: &dyn Store, claim: &Claim, dice: &mut ChaCha8Rng) {
        let (key, token) = (claim.slot.as_bytes()[0], claim.token.as_bytes());
        let asked = self.clock.now();
        match store.claim(claim).await {
            Ok(Claimed::Granted { lease, .. }) => {
                self.ledger.granted(key, token, asked);
                let work = dice.random_range(0..10_000);
                tokio::time::sleep(Duration::from_millis(work)).await;
                match dice.random_range(0..10) {
                    0 => {
                        self.ledger.gives_back(key, token);
                        drop(store.release(&lease, Release::NotRun).await);
                    }
                    1 => {}
                    2 => {
                        drop(store.renew(&lease, LEASE).await);
                        self.complete(store, key, &lease).await;
                    }
                    _ => self.complete(store, key, &lease).await,
                }
            }
            Ok(Claimed::Taken(record)) => match record.response() {
                Some(response) => {
                    self.ledger.counts.lock().unwrap().replays += 1;
                    self.ledger.told(key, &response.body, self.clock.now());
                }
                None => self.ledger.found_none(key, asked),
            },
            Ok(Claimed::Dead) => self.ledger.violate("a fresh token is dead".to_owned()),
            Err(_) => self.ledger.counts.lock().unwrap().errors += 1,
        }
    }

    async fn complete(&self, store: &dyn Store, key: u8, lease: &onlyonce_core::Lease) {
        let body = lease.token.as_bytes().to_vec();
        let response = Arc::new(Response::new(StatusCode::OK, body.clone()));
        let asked = self.clock.now();
        match store.complete(lease, &response, KEEP).await {
            Ok(Completed::Stored(_)) => self.ledger.told(key, &body, self.clock.now()),
            Ok(Completed::Found(record)) => match record.response() {
                Some(response) => self.ledger.told(key, &response.body, self.clock.now()),
                None => self.ledger.found_none(key, asked),
            },
            Ok(Completed::Absent) => self.ledger.found_none(key, asked),
            Err(_) => self.ledger.counts.lock().unwrap().errors += 1,
        }
    }

    /// After everything is well again, every process tells the same.
    async fn look_back(&self) {
        if self.plan.planted == Planted::Redlock {
            return;
        }
        let answers = self.ledger.answers();
        for store in &self.stores {
            let operate = store.operate().unwrap();
            for key in 0..KEYS {
                let asked = self.clock.now();
                let record = operate.get(&slot(key)).await;
                match record {
                    Ok(record) => {
                        let found = record.as_ref().and_then(|it| it.response());
                        match found {
                            Some(found) => self.ledger.told(key, &found.body, self.clock.now()),
                            None => self.ledger.found_none(key, asked),
                        }
                    }
                    Err(error) => self.ledger.violate(format!(
                        "nothing is wrong any longer, and still: {}",
                        error.cause()
                    )),
                }
            }
        }
        assert!(self.ledger.answers().len() >= answers.len());
    }

    fn heal(&self) {
        *self.weather.lock().unwrap() = Weather {
            delay_ms_max: 3,
            ..Weather::default()
        };
        for wire in self.wires.iter().flatten() {
            *wire.is_cut.lock().unwrap() = false;
        }
        let epoch = self.servers.iter().map(|it| it.shelf.lock().unwrap().epoch);
        let epoch = epoch.max().unwrap();
        for server in &self.servers {
            let mut shelf = server.shelf.lock().unwrap();
            shelf.is_up = true;
            shelf.epoch = epoch;
        }
    }

    /// One fault after the other.
    async fn trouble(&self, seed: u64) {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        loop {
            let pause = dice.random_range(1000..8000);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            self.ledger.counts.lock().unwrap().faults += 1;
            let at = dice.random_range(0..self.servers.len());
            match dice.random_range(0..7) {
                0 => self.storm(&mut dice),
                1 | 2 => self.bounce(at, dice.random_range(500..15_000)).await,
                3 => {
                    let process = dice.random_range(0..self.wires.len());
                    let wire = &self.wires[process][at];
                    let is_cut = !*wire.is_cut.lock().unwrap();
                    *wire.is_cut.lock().unwrap() = is_cut;
                }
                // Only one clock is wrong.
                4 => self.servers[0].set_clock(dice.random_range(-CLOCK_MS_MAX..CLOCK_MS_MAX)),
                _ => self.lose(at).await,
            }
        }
    }

    fn storm(&self, dice: &mut ChaCha8Rng) {
        let chance = dice.random_range(0..120);
        *self.weather.lock().unwrap() = Weather {
            lost: chance,
            late: chance / 2,
            twice: chance,
            delay_ms_max: dice.random_range(1..400),
        };
    }

    async fn bounce(&self, at: usize, down_ms: u64) {
        self.servers[at].shelf.lock().unwrap().is_up = false;
        tokio::time::sleep(Duration::from_millis(down_ms)).await;
        self.servers[at].shelf.lock().unwrap().is_up = true;
        self.follow();
    }

    /// One server loses its data, comes back, and is admitted.
    async fn lose(&self, at: usize) {
        let votes_on = matches!(
            self.plan.planted,
            Planted::VotesAfterLoss | Planted::Redlock
        );
        self.servers[at].lose_disk(votes_on);
        if votes_on {
            return;
        }
        loop {
            tokio::time::sleep(Duration::from_secs(3)).await;
            if self.admit(at).await {
                return;
            }
        }
    }

    async fn admit(&self, at: usize) -> bool {
        let epoch = self.keeper_epoch.load(std::sync::atomic::Ordering::Relaxed) + 1;
        let mut followers = 0;
        for server in self
            .servers
            .iter()
            .filter(|it| it.shelf.lock().unwrap().is_up)
        {
            let mut shelf = server.shelf.lock().unwrap();
            shelf.epoch = shelf.epoch.max(epoch);
            followers += usize::from(shelf.votes);
        }
        if followers <= self.servers.len() / 2 {
            return false;
        }
        let known = &self.keeper_epoch;
        known.fetch_max(epoch, std::sync::atomic::Ordering::Relaxed);
        let is_ready = self.plan.planted == Planted::AdmittedAtOnce
            || self.keeper.write_all_back().await.is_ok();
        if is_ready {
            let rounds = self.servers.iter();
            let rounds = rounds.map(|it| it.shelf.lock().unwrap().model.round_max());
            let round = rounds.max().unwrap_or(0);
            let mut shelf = self.servers[at].shelf.lock().unwrap();
            shelf.model = Model::admitted(round);
            shelf.votes = true;
        }
        is_ready
    }

    /// A server that was away hears of the epoch.
    fn follow(&self) {
        let epoch = self.servers.iter().map(|it| it.shelf.lock().unwrap().epoch);
        let epoch = epoch.max().unwrap();
        for server in &self.servers {
            let mut shelf = server.shelf.lock().unwrap();
            if shelf.is_up {
                shelf.epoch = epoch;
            }
        }
    }
}

pub(super) fn slot(key: u8) -> Slot {
    Slot::from_bytes([key; Slot::BYTES])
}

pub(super) fn claim(key: u8, token: u128) -> Claim {
    let hint = Key::new("5f2b0c1e-7a64-4d1c-9d7e-3b8a2f6c4e10", &KeyRule::default());
    Claim {
        slot: slot(key),
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
        token: Token::from_bytes(token.to_be_bytes()),
        on_lapse: OnLapse::Hold,
        must_last: false,
        lease_for: LEASE,
        keep_for: KEEP,
        meta: Arc::new(Meta {
            hint: hint.unwrap().hint(),
            operation: "POST /payments".into(),
            actor: None,
            holder: "simulated".into(),
            trace: None,
            credential: None,
        }),
    }
}

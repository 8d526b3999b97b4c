//! One run: some processes with a store each, some servers, and faults, all from one seed and on
//! virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use onlyonce_core::operate::Resolved;
use onlyonce_core::{
    Claim, Claimed, Clock, Completed, Fingerprint, Key, KeyRule, Meta, OnLapse, Release, Response,
    Slot, Store, SystemClock, Token, async_trait,
};
use onlyonce_quorum::{Acceptor, QuorumStore, SharedEpoch, Upkeep};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::keeper::Keeper;
use super::ledger::{Counts, Ledger};
use super::redlock::Redlock;
use super::server::{Flaw, Held, Seeded, Server, Weather, Wire};

const PROCESSES: usize = 3;
const CALLERS: usize = 3;
const KEYS: u8 = 20;
const CALLS: usize = 12;
/// How many callers an ambush draws in, each on a key of its own.
const CROWD: usize = 6;
const LEASE: Duration = Duration::from_secs(20);
/// Longer than a run.
const KEEP: Duration = Duration::from_secs(100_000);
/// Shorter than one.
const KEEP_BRIEF: Duration = Duration::from_secs(40);
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
    /// A server is admitted in the epoch in which it lost its data.
    EpochNotRaised,
    /// A process goes on in a new epoch with the promises of the old one.
    FollowsEpoch,
    /// Plain Redlock: a lock on a majority, and no ballots.
    Redlock,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) servers: usize,
    /// Whether records expire within a run, and operators change them.
    pub(super) brief: bool,
    pub(super) planted: Planted,
}

impl Plan {
    fn keep(&self) -> Duration {
        match self.brief {
            true => KEEP_BRIEF,
            false => KEEP,
        }
    }

    /// How far one server's clock may be off: it must not drop early what the others still have.
    fn clock_ms_max(&self) -> i64 {
        match self.brief {
            true => CLOCK_MS_MAX / 2,
            false => CLOCK_MS_MAX,
        }
    }
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
    keeper: Keeper,
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
pub(super) fn quorum(wires: &[Arc<Wire>], epoch: &Arc<SharedEpoch>, seed: u64) -> Arc<QuorumStore> {
    let acceptors = wires.iter().map(|it| Arc::clone(it) as Arc<dyn Acceptor>);
    Arc::new(QuorumStore::new(
        acceptors.collect(),
        Arc::new(SystemClock::new()),
        Arc::new(Seeded::new(seed)),
        Arc::clone(epoch),
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
        let servers: Vec<_> = (0..plan.servers).map(Server::new).collect();
        let flaw = match plan.planted {
            Planted::FollowsEpoch => Flaw::FollowsEpoch,
            Planted::Nothing
            | Planted::VotesAfterLoss
            | Planted::AdmittedAtOnce
            | Planted::EpochNotRaised
            | Planted::Redlock => Flaw::None,
        };
        let mut wire_all = || {
            let epoch = Arc::new(SharedEpoch::default());
            let wires = servers.iter();
            let wires = wires.map(|it| Wire::new(it, &epoch, &weather, flaw, seeds.random()));
            let wires: Vec<_> = wires.collect();
            (wires, epoch, seeds.random::<u64>())
        };
        let (mut all, mut stores) = (Vec::new(), Vec::new());
        for _ in 0..PROCESSES {
            let (wires, epoch, seed) = wire_all();
            stores.push(match plan.planted {
                Planted::Redlock => Arc::new(Redlock::new(wires.clone())) as Arc<dyn Store>,
                Planted::Nothing
                | Planted::VotesAfterLoss
                | Planted::AdmittedAtOnce
                | Planted::EpochNotRaised
                | Planted::FollowsEpoch => quorum(&wires, &epoch, seed) as Arc<dyn Store>,
            });
            all.push(wires);
        }
        let (wires, epoch, seed) = wire_all();
        all.push(wires.clone());
        let keeper = Keeper::new(wires, epoch, seed);
        Self {
            plan,
            servers,
            wires: all,
            stores,
            keeper,
            weather,
            ledger: Ledger::new(LEASE, plan.keep()),
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
        self.keeper.follow().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        self.keeper.follow().await;
        self.look_back().await;
    }

    /// A caller who asks some keys, and runs what it is granted.
    async fn call(&self, process: usize, seed: u64) {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let store = &*self.stores[process];
        for _ in 0..CALLS {
            let pause = dice.random_range(0..15_000);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let claim = self.claim_of(dice.random_range(0..KEYS), dice.random());
            self.ledger.counts.lock().unwrap().operations += 1;
            if dice.random_range(0..10) == 0 {
                self.agree(store, dice.random()).await;
            }
            if self.plan.brief && dice.random_range(0..8) == 0 {
                self.operate(store, dice.random_range(0..KEYS), &mut dice)
                    .await;
            }
            self.claim(store, &claim, &mut dice).await;
        }
    }

    fn claim_of(&self, key: u8, token: u128) -> Claim {
        let keep_for = self.plan.keep();
        Claim {
            keep_for,
            ..claim(key, token)
        }
    }

    /// An operator changes what is in a slot.
    async fn operate(&self, store: &dyn Store, key: u8, dice: &mut ChaCha8Rng) {
        let Some(operate) = store.operate() else {
            return;
        };
        let asked = self.clock.now();
        match dice.random_range(0..8) {
            0 => {
                self.ledger.forgets(key);
                drop(operate.forget(&slot(key)).await);
            }
            1..4 => {
                let extra = Duration::from_secs(dice.random_range(1..30));
                self.ledger.extends(key, extra);
                drop(operate.extend(&slot(key), extra).await);
            }
            _ => {
                let body = b"resolved".to_vec();
                let response = Arc::new(Response::new(StatusCode::OK, body.clone()));
                let resolved = operate.resolve(&slot(key), &response, KEEP_BRIEF).await;
                if let Ok(Resolved::Stored) = resolved {
                    self.ledger.told(key, &body, asked, self.clock.now());
                }
            }
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
                self.ledger.granted(key, token, asked, self.clock.now());
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
                    self.ledger
                        .told(key, &response.body, asked, self.clock.now());
                }
                None => self.ledger.found_none(key, asked, self.clock.now()),
            },
            Ok(Claimed::Dead) => self.ledger.violate("a fresh token is dead".to_owned()),
            Err(_) => self.ledger.counts.lock().unwrap().errors += 1,
        }
    }

    async fn complete(&self, store: &dyn Store, key: u8, lease: &onlyonce_core::Lease) {
        let body = lease.token.as_bytes().to_vec();
        let response = Arc::new(Response::new(StatusCode::OK, body.clone()));
        let asked = self.clock.now();
        self.ledger.completes(key, &body, asked);
        let completed = store.complete(lease, &response, self.plan.keep()).await;
        let heard = self.clock.now();
        match completed {
            Ok(Completed::Stored(_)) => self.ledger.told(key, &body, asked, heard),
            Ok(Completed::Found(record)) => match record.response() {
                Some(response) => self.ledger.told(key, &response.body, asked, heard),
                None => self.ledger.found_none(key, asked, heard),
            },
            Ok(Completed::Absent) => self.ledger.found_none(key, asked, heard),
            Err(_) => self.ledger.counts.lock().unwrap().errors += 1,
        }
    }

    /// After everything is well again, every process tells the same.
    async fn look_back(&self) {
        if self.plan.planted == Planted::Redlock {
            return;
        }
        for store in &self.stores {
            let operate = store.operate().unwrap();
            for key in 0..KEYS {
                let asked = self.clock.now();
                let record = operate.get(&slot(key)).await;
                match record {
                    Ok(record) => {
                        let heard = self.clock.now();
                        let found = record.as_ref().and_then(|it| it.response());
                        match found {
                            Some(found) => self.ledger.told(key, &found.body, asked, heard),
                            None => self.ledger.found_none(key, asked, heard),
                        }
                    }
                    Err(error) => self.ledger.violate(format!(
                        "nothing is wrong any longer, and still: {}",
                        error.cause()
                    )),
                }
            }
        }
    }

    fn calm(&self) {
        *self.weather.lock().unwrap() = Weather {
            delay_ms_max: 3,
            ..Weather::default()
        };
    }

    fn heal(&self) {
        self.calm();
        for wire in self.wires.iter().flatten() {
            wire.held.send_replace(Held::Nothing);
            *wire.is_cut.lock().unwrap() = false;
        }
        for server in &self.servers {
            server.shelf.lock().unwrap().is_up = true;
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
            match dice.random_range(0..8) {
                0 => self.storm(&mut dice),
                1 | 2 => self.bounce(at, dice.random_range(500..15_000)).await,
                3 => {
                    let process = dice.random_range(0..self.wires.len());
                    let wire = &self.wires[process][at];
                    let is_cut = !*wire.is_cut.lock().unwrap();
                    *wire.is_cut.lock().unwrap() = is_cut;
                }
                // Only one clock is wrong, any of them.
                4 => {
                    let most = self.plan.clock_ms_max();
                    let wrong = self.plan.seed as usize % self.servers.len();
                    self.servers[wrong].set_clock(dice.random_range(-most..most));
                }
                5 => self.ambush(at, &mut dice).await,
                _ => self.lose(at, 2_000, &mut dice).await,
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
        self.keeper.follow().await;
    }

    /// What processes ask to accept reaches one server, which then loses its data and is admitted; it
    /// reaches another one after that, which then goes away.
    async fn ambush(&self, at: usize, dice: &mut ChaCha8Rng) {
        let next = (at + dice.random_range(1..self.servers.len())) % self.servers.len();
        let hold = |at: usize, held: Held| {
            for wires in &self.wires[..PROCESSES] {
                wires[at].held.send_replace(held);
            }
        };
        self.calm();
        let others = (0..self.servers.len()).filter(|it| *it != at);
        others.clone().for_each(|it| hold(it, Held::Accepts));
        let keys: Vec<u8> = (0..CROWD)
            .map(|_| dice.random_range(KEYS..=u8::MAX))
            .collect();
        let first = self.crowd(&keys, 0, dice.random());
        let second = self.crowd(&keys, 1, dice.random());
        let attack = async {
            tokio::time::sleep(Duration::from_millis(dice.random_range(100..900))).await;
            self.lose(at, 200, dice).await;
            hold(next, Held::Nothing);
            tokio::time::sleep(Duration::from_millis(dice.random_range(10..900))).await;
            self.servers[next].shelf.lock().unwrap().is_up = false;
            for held in [Held::Lost, Held::Nothing] {
                others.clone().for_each(|it| hold(it, held));
            }
            second.await;
            self.bounce(next, dice.random_range(1_000..9_000)).await;
        };
        tokio::join!(first, attack);
    }

    /// Many callers at once, one for each of these keys.
    async fn crowd(&self, keys: &[u8], process: usize, seed: u64) {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let callers = keys.iter().map(|key| {
            let (claim, seed) = (self.claim_of(*key, dice.random()), dice.random());
            let store = &*self.stores[(usize::from(*key) + process) % PROCESSES];
            async move {
                let mut dice = ChaCha8Rng::seed_from_u64(seed);
                self.claim(store, &claim, &mut dice).await;
            }
        });
        let callers: Vec<_> = callers.collect();
        join_all(callers).await;
    }

    /// One server loses its data, comes back, and is admitted.
    async fn lose(&self, at: usize, pause_ms_max: u64, dice: &mut ChaCha8Rng) {
        let votes_on = matches!(
            self.plan.planted,
            Planted::VotesAfterLoss | Planted::Redlock
        );
        self.servers[at].lose_disk(votes_on);
        if votes_on {
            return;
        }
        loop {
            let pause = dice.random_range(0..=pause_ms_max);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if self.keeper.admit(at, self.plan.planted).await {
                return;
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

//! One round: a store of one kind, gateways with one rule for lapses, clients, and one fault after
//! the other. Then every key is asked for once more, and the history is judged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::sim::dice::Dice;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::check::{check, millis};
use crate::client::Clients;
use crate::failure::Failure;
use crate::fault::Kind as Fault;
use crate::gateway::Program;
use crate::history::{Answer, History, Micros, OnLapse, Trouble};
use crate::inject::Scene;
use crate::quorum::Losing;
use crate::report::Row;
use crate::stage::{Place, Stage};
use crate::store::{Kind, Store};
use crate::upstream::Ledger;
use crate::watch::Watch;

/// Short, so that much happens; long enough for a machine that is busy.
const LEASE_MS: u64 = 3000;
/// By when every gateway must run new keys again: its circuit breaker stays open for 60 s.
const BACK_MAX: Duration = Duration::from_secs(120);
const PROBE_MAX: Duration = Duration::from_secs(3);
const PROBE_PAUSE: Duration = Duration::from_millis(250);
/// Without trouble for this long before each fault, in milliseconds.
const QUIET_MS: std::ops::RangeInclusive<u64> = 300..=2000;
/// By when an operation must have its final answer once all faults are over.
const ANSWER_MAX: Duration = Duration::from_secs(120);
const ASKED_AT_A_TIME: usize = 16;
const DISK_BYTES_MIN: u64 = 64 << 20;
/// What a record may take, generously, in all the forms a store keeps it.
const DISK_BYTES_A_RECORD: u64 = 8 << 10;
/// What is stored until a full disk is noticed.
const DISK_BYTES_A_FAULT: u64 = 32 << 20;

/// What a round is to do.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) store: Kind,
    pub(crate) on_lapse: OnLapse,
    pub(crate) seed: u64,
    pub(crate) faults: u64,
    pub(crate) operations: u64,
    pub(crate) clients: usize,
    pub(crate) lasts_max: Option<Duration>,
    /// The kinds of faults to choose from.
    pub(crate) kinds: Vec<Fault>,
    pub(crate) losing: Losing,
    pub(crate) program: Program,
    pub(crate) watch: Watch,
}

impl Plan {
    fn name(&self) -> String {
        format!("{} {}", self.store.name(), self.on_lapse.name())
    }

    /// Plays it to its end.
    pub(crate) async fn play(self) -> Result<Row, Failure> {
        let name = self.name();
        crate::say(&format!("{name}: starting"));
        match self.run().await {
            Ok(row) => {
                crate::say(&format!("{name}: done in {row}"));
                Ok(row)
            }
            Err(failure) => {
                crate::say(&format!("{name}: broke off"));
                Err(Failure::new(format!("{name}: {failure}")))
            }
        }
    }

    async fn run(&self) -> Result<Row, Failure> {
        let folder = tempfile::tempdir().map_err(Failure::doing("make a temporary folder"))?;
        let (kind, disk_bytes) = (self.store, self.disk_bytes());
        let starting = tokio::task::spawn_blocking(move || Store::start(kind, disk_bytes));
        let store = starting.await.map_err(Failure::doing("start a store"))??;
        let ledger = Ledger::new(self.watch.clone());
        let stage = Stage {
            kind,
            on_lapse: self.on_lapse,
            lease_ms: LEASE_MS,
            store: &store,
            ledger: &ledger,
            program: &self.program,
            folder: folder.path(),
            faults: &self.kinds,
        };
        let (mut places, doors) = stage.set().await?;
        let fronts = places.iter().map(|place| place.front.address()).collect();
        let key = format!("chaos-{}-{}", self.seed, self.name().replace(' ', "-"));
        let watch = self.watch.clone();
        let clients = Clients::new(fronts, self.on_lapse, key, self.seed, watch);

        let began = self.watch.now();
        let (troubles, crashes) = self.trouble(&store, &mut places, &doors, &clients).await?;
        let keys = clients.keys().count();
        crate::say(&format!(
            "{}: asking for all {keys} keys again",
            self.name()
        ));
        self.ask_again(&clients).await;
        let lasted = self.watch.now() - began;
        // No gateway writes any more.
        drop((places, doors));
        let history = History {
            on_lapse: self.on_lapse,
            lease: millis(LEASE_MS),
            has_one_owner: self.store == Kind::File,
            attempts: clients.attempts(),
            executions: ledger.take(),
            troubles,
            stalls: self.watch.stalls(),
            crashes,
        };
        Ok(self.judged(&history, clients.operations(), lasted))
    }

    /// A small disk, if it is to be full at times.
    fn disk_bytes(&self) -> Option<u64> {
        let records = self.operations * DISK_BYTES_A_RECORD;
        let fillings = self.faults / self.kinds.len() as u64 + 1;
        let can_be_full = self.kinds.contains(&Fault::DiskFull);
        can_be_full.then_some(DISK_BYTES_MIN + records + fillings * DISK_BYTES_A_FAULT)
    }

    /// Clients at work, and faults, until there were enough of both; and the clients' end.
    async fn trouble(
        &self,
        store: &Store,
        places: &mut [Place],
        doors: &[Proxy],
        clients: &Arc<Clients>,
    ) -> Result<(Vec<Trouble>, Vec<String>), Failure> {
        let mut dice = Dice::new(self.seed);
        let over = Arc::new(AtomicBool::new(false));
        let mut working = JoinSet::new();
        for _ in 0..self.clients {
            let (clients, over, dice) = (Arc::clone(clients), Arc::clone(&over), dice.fork());
            working.spawn(async move {
                clients.work(dice, || !over.load(Ordering::SeqCst)).await;
            });
        }

        let until = self
            .lasts_max
            .map(|most| self.watch.now() + most.as_micros() as Micros);
        let in_time = || until.is_none_or(|until| self.watch.now() < until);
        let (mut troubles, mut crashes) = (Vec::new(), Vec::new());
        let mut deck = Vec::new();
        while (troubles.len() as u64) < self.faults && in_time() {
            sleep(Duration::from_millis(dice.between(QUIET_MS))).await;
            let kind = self.draw(&mut deck, &mut dice);
            let mut scene = Scene {
                store,
                places,
                doors,
                losing: self.losing,
                clients,
                watch: &self.watch,
                lease_ms: LEASE_MS,
            };
            let mut trouble = scene.inject(kind, &mut dice).await?;
            trouble.back_after = self.back(clients, places.len(), trouble.to).await;
            self.say(&trouble, troubles.len() + 1, clients.operations());
            let is_back = trouble.back_after.is_some();
            troubles.push(trouble);
            for place in &mut *places {
                if let Some(how) = place.gateway.ended() {
                    crashes.push(place.gateway.failure(&how).to_string());
                }
            }
            if !is_back || !crashes.is_empty() {
                break;
            }
        }
        while clients.operations() < self.operations && in_time() && crashes.is_empty() {
            sleep(PROBE_PAUSE).await;
        }
        over.store(true, Ordering::SeqCst);
        let ending = async { while working.join_next().await.is_some() {} };
        // A request without an answer by then is asked for with all others.
        drop(timeout(ANSWER_MAX, ending).await);
        working.shutdown().await;
        Ok((troubles, crashes))
    }

    /// Every kind comes once before any comes again.
    fn draw(&self, deck: &mut Vec<Fault>, dice: &mut Dice) -> Fault {
        if deck.is_empty() {
            deck.clone_from(&self.kinds);
        }
        deck.swap_remove(dice.index(deck.len()))
    }

    /// How long it took until every gateway ran a new key again.
    async fn back(&self, clients: &Clients, gateways: usize, since: Micros) -> Option<Micros> {
        let back = async {
            for gateway in 0..gateways {
                let mut in_a_row = 0;
                while in_a_row < self.store.probes() {
                    match clients.probe(gateway, PROBE_MAX).await {
                        Answer::Done(_) => in_a_row += 1,
                        Answer::Garbled
                        | Answer::Unknown
                        | Answer::Refused(_)
                        | Answer::Nothing => {
                            in_a_row = 0;
                            sleep(PROBE_PAUSE).await;
                        }
                    }
                }
            }
        };
        timeout(BACK_MAX, back).await.ok()?;
        Some(self.watch.now() - since)
    }

    /// Once all faults are over, every key has a final answer.
    async fn ask_again(&self, clients: &Clients) {
        stream::iter(clients.keys())
            .for_each_concurrent(ASKED_AT_A_TIME, async |key| {
                let mut dice = Dice::new(self.seed.rotate_left(32) ^ key);
                drop(timeout(ANSWER_MAX, clients.ask(key, &mut dice)).await);
            })
            .await;
    }

    fn judged(&self, history: &History, operations: u64, lasted: Micros) -> Row {
        let verdict = check(history);
        let mut faults = BTreeMap::new();
        for trouble in &history.troubles {
            *faults.entry(trouble.kind).or_insert(0) += 1;
        }
        let stories = verdict.violations.iter().filter_map(|it| it.key);
        let stories = stories.map(|key| (key, history.story(key))).collect();
        let slowest = history.troubles.iter().filter_map(|it| it.back_after).max();
        Row {
            store: self.store,
            on_lapse: self.on_lapse,
            seed: self.seed,
            operations,
            attempts: history.attempts.len(),
            executions: history.executions.len(),
            reruns: verdict.reruns,
            stalled: verdict.stalled,
            unknown: verdict.unknown,
            faults,
            slowest_return_s: slowest.unwrap_or(0) as f64 / 1e6,
            lasted_s: lasted as f64 / 1e6,
            violations: verdict.violations,
            stories,
        }
    }

    fn say(&self, trouble: &Trouble, number: usize, operations: u64) {
        let lasted = (trouble.to - trouble.from) as f64 / 1e6;
        let back = trouble.back_after.map_or_else(
            || "NOT BACK".to_owned(),
            |after| format!("back after {:.1} s", after as f64 / 1e6),
        );
        crate::say(&format!(
            "{}: {number}/{} {} of {} for {lasted:.1} s, {back}; {operations} operations",
            self.name(),
            self.faults,
            trouble.kind,
            trouble.whom
        ));
    }
}

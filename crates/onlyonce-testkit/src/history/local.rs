//! Several engines in one process on one store: what a store without a server can have. An engine
//! dies by never being heard of again, and is cut off by a gate before the store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Store;
use tokio::task::JoinHandle;

use super::clock::{Micros, in_micros, micros, now, sleep_until};
use super::gate::Gate;
use super::load::Load;
use super::log::{Fault, LogWriter, What};
use super::plan::Plan;
use super::record::{EXTENSION, LogFolder};
use super::report::Report;
use super::worker::work_behind;
use crate::sim::dice::Dice;

/// How long engines have to open before the first call comes.
const START: Duration = Duration::from_millis(50);

/// A run of several engines in this process.
pub struct Local {
    /// What they share.
    pub store: Arc<dyn Store>,
    /// How many there are at a time.
    pub engines: u16,
    /// Every choice is drawn from it.
    pub seed: u64,
    /// How much happens.
    pub load: Load,
    /// Where to keep the logs; otherwise they are kept only if a rule was broken.
    pub logs: Option<PathBuf>,
}

impl Local {
    /// Three engines on `store` under a brief load.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            engines: 3,
            seed: 0,
            load: Load::brief(),
            logs: None,
        }
    }

    /// Makes the run, and checks its history.
    pub async fn execute(&self) -> io::Result<Report> {
        let logs = LogFolder::new(self.logs.as_deref())?;
        self.play(logs.path()).await?;
        logs.check()
    }

    async fn play(&self, logs: &Path) -> io::Result<()> {
        let began = now() + in_micros(START);
        let until = began + in_micros(self.load.lasts);
        let log = LogWriter::create(&path(logs, "driver"))?;
        let mut seats = Vec::new();
        for node in 0..self.engines {
            let plan = self
                .load
                .plan("local", self.seed, node, self.engines, began);
            seats.push(Seat::take(&self.store, plan, logs)?);
        }
        let mut dice = Dice::new(self.seed);
        let gap = in_micros(self.load.lasts) / u64::from(self.load.faults + 1);
        let mut at = began;
        for _ in 0..self.load.faults {
            at += dice.below(2 * gap.max(1));
            if at >= until {
                break;
            }
            self.sleep(&mut seats, &log, at).await;
            let seat = dice.index(seats.len());
            let lease = self.load.lease_max();
            let cut_for = micros(dice.between(lease * 11 / 10..=lease * 2));
            if seats[seat].cut_until.is_some() {
                continue;
            }
            if dice.chance(500) {
                seats[seat].die(&log);
                let mut plan = seats[seat].plan.clone();
                plan.life += 1;
                seats[seat] = Seat::take(&self.store, plan, logs)?;
            } else {
                seats[seat].cut_off(&log, at + cut_for);
            }
        }
        self.sleep(&mut seats, &log, until).await;
        for seat in &mut seats {
            seat.reconnect(&log, Micros::MAX);
        }
        log.note(What::Fault(Fault::Healed));
        let last = Plan {
            node: self.engines,
            life: 0,
            sweep: true,
            ..seats[0].plan.clone()
        };
        for seat in seats {
            seat.end().await?;
        }
        Seat::take(&self.store, last, logs)?.end().await?;
        log.end()
    }

    /// Waits until `until`, and reconnects whom it is time for.
    async fn sleep(&self, seats: &mut [Seat], log: &LogWriter, until: Micros) {
        loop {
            let at = now();
            for seat in seats.iter_mut() {
                seat.reconnect(log, at);
            }
            let next = seats.iter().filter_map(|seat| seat.cut_until).min();
            if at >= until {
                return;
            }
            sleep_until(next.map_or(until, |next| next.min(until))).await;
        }
    }
}

/// An engine's place.
struct Seat {
    plan: Plan,
    log: Arc<LogWriter>,
    gate: Arc<Gate>,
    working: JoinHandle<io::Result<()>>,
    cut_until: Option<Micros>,
}

impl Seat {
    fn take(store: &Arc<dyn Store>, plan: Plan, logs: &Path) -> io::Result<Self> {
        let name = format!("worker-{}-{}", plan.node, plan.life);
        let log = Arc::new(LogWriter::create(&path(logs, &name))?);
        let gate = Arc::new(Gate::new());
        let working = tokio::spawn(work_behind(
            Arc::clone(store),
            plan.clone(),
            Arc::clone(&log),
            Arc::clone(&gate),
        ));
        Ok(Self {
            plan,
            log,
            gate,
            working,
            cut_until: None,
        })
    }

    fn die(&self, log: &LogWriter) {
        let (node, life) = (self.plan.node, self.plan.life);
        log.note(What::Fault(Fault::Kill { node, life }));
        // First the gate: what passes no more need not be written down any more.
        self.gate.destroy();
        self.log.close();
        self.working.abort();
        log.note(What::Fault(Fault::Killed { node, life }));
    }

    fn cut_off(&mut self, log: &LogWriter, until: Micros) {
        let (node, life) = (self.plan.node, self.plan.life);
        log.note(What::Fault(Fault::Stop { node, life }));
        self.gate.shut();
        self.cut_until = Some(until);
    }

    fn reconnect(&mut self, log: &LogWriter, at: Micros) {
        if self.cut_until.take_if(|until| *until <= at).is_some() {
            self.gate.open();
            let (node, life) = (self.plan.node, self.plan.life);
            log.note(What::Fault(Fault::Continued { node, life }));
        }
    }

    async fn end(self) -> io::Result<()> {
        self.working.await.map_err(io::Error::other)?
    }
}

fn path(logs: &Path, name: &str) -> PathBuf {
    logs.join(name).with_extension(EXTENSION)
}

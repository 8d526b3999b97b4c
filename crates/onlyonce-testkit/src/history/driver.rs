//! The driver: starts workers, injects faults, lets everything heal, has every key asked for once
//! more, and checks what was written down.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use onlyonce_core::{Entropy, OsEntropy};
use thiserror::Error;
use tokio::task::JoinHandle;

use super::clock::{Micros, in_micros, micros, now};
use super::load::Load;
use super::log::{Fault, LogWriter, What};
use super::program::{Program, ShiftedClock};
use super::record::{EXTENSION, LogFolder};
use super::report::Report;
use crate::sim::dice::Dice;

mod crew;

use self::crew::{Crew, Node};

/// How long workers may take to be there before the first call comes.
const START: Duration = Duration::from_millis(400);
/// How long workers may take to end once the last call was made.
const END: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Disturbs the store in one of several ways, chosen by the number, and returns when the store is
/// as before; says what it did. The store must be one that survives it.
pub type StoreFault = Arc<dyn Fn(u64) -> BoxFuture<'static, String> + Send + Sync>;

/// Whoever wants to hear of every fault as it is injected.
pub type Progress = Arc<dyn Fn(&Fault) + Send + Sync>;

/// A run of several worker processes on one store.
pub struct Run {
    /// The store's URL, as the workers open it.
    pub url: String,
    /// Workers at a time.
    pub processes: u16,
    /// Every choice is drawn from it.
    pub seed: u64,
    /// How much happens.
    pub load: Load,
    /// What a worker is.
    pub worker: Program,
    /// Wall clocks of the workers, in turn, as in `["", "+10m", "-10m"]`. Only for stores with a
    /// clock of their own.
    pub offsets: Vec<String>,
    /// Kills workers, besides stopping them.
    pub kills: bool,
    /// Disturbs the store.
    pub store_fault: Option<StoreFault>,
    /// Where to keep the logs; otherwise they are kept only if a rule was broken.
    pub logs: Option<PathBuf>,
    /// Hears of every fault.
    pub progress: Option<Progress>,
}

/// Why a run could not be made or finished.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// A file or process could not be handled.
    #[error("the run could not be made")]
    Io(#[from] io::Error),
    /// A worker failed by itself.
    #[error("worker {worker} ended with {status} before its time: {said}")]
    Worker {
        /// Which.
        worker: String,
        /// How.
        status: String,
        /// What it wrote to stderr.
        said: String,
    },
    /// A worker did not end.
    #[error("worker {worker} did not end within {END:?} of its last call")]
    Stuck {
        /// Which.
        worker: String,
    },
    /// Clocks cannot be shifted here.
    #[error("libfaketime is not installed: leave `offsets` empty or install it")]
    NoFaketime,
}

impl Run {
    /// Four workers on the store at `url` under the usual load.
    pub fn new(url: impl Into<String>, worker: Program) -> Self {
        Self {
            url: url.into(),
            processes: 4,
            seed: 0,
            load: Load::usual(),
            worker,
            offsets: Vec::new(),
            kills: true,
            store_fault: None,
            logs: None,
            progress: None,
        }
    }

    /// Makes the run, and checks its history.
    pub async fn execute(&self) -> Result<Report, RunError> {
        let logs = LogFolder::new(self.logs.as_deref())?;
        self.play(logs.path()).await?;
        Ok(logs.check()?)
    }

    async fn play(&self, logs: &Path) -> Result<(), RunError> {
        let began = now() + in_micros(START);
        let log = LogWriter::create(&logs.join("driver").with_extension(EXTENSION))?;
        let mut stage = Stage {
            run: self,
            log,
            dice: Dice::new(self.seed),
            crew: self.crew(logs, began)?,
            disturbing: None,
            faults_left: self.load.faults,
            next_fault: began,
            deck: Vec::new(),
        };
        stage.crew.start_all()?;
        let until = began + in_micros(self.load.lasts);
        while now() < until {
            stage.look().await?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        stage.heal().await?;
        stage.crew.join(now() + in_micros(END)).await?;
        stage.crew.sweep(self.processes)?;
        stage.crew.join(now() + in_micros(END)).await?;
        stage.log.end()?;
        Ok(())
    }

    fn crew(&self, logs: &Path, began: Micros) -> Result<Crew, RunError> {
        let mut name = [0; 8];
        OsEntropy::new().fill(&mut name);
        let name = format!("{:016x}", u64::from_be_bytes(name));
        let mut nodes = Vec::new();
        for node in 0..self.processes {
            let plan = self
                .load
                .plan(&name, self.seed, node, self.processes, began);
            let offset = match self.offsets.len() {
                0 => "",
                many => &self.offsets[usize::from(node) % many],
            };
            let clock = match offset {
                "" => None,
                offset => Some(ShiftedClock::new(offset).ok_or(RunError::NoFaketime)?),
            };
            nodes.push(Node::new(plan, clock));
        }
        Ok(Crew {
            url: self.url.clone(),
            program: self.worker.clone(),
            logs: logs.to_owned(),
            nodes,
        })
    }
}

/// A run under way.
struct Stage<'r> {
    run: &'r Run,
    log: LogWriter,
    dice: Dice,
    crew: Crew,
    /// The store, while it is disturbed.
    disturbing: Option<JoinHandle<String>>,
    faults_left: u32,
    next_fault: Micros,
    deck: Vec<Kind>,
}

#[derive(Clone, Copy)]
enum Kind {
    Kill,
    Stop,
    Disturb,
}

impl Stage<'_> {
    /// Does what is due.
    async fn look(&mut self) -> Result<(), RunError> {
        let at = now();
        self.calm_down(false).await;
        for node in 0..self.crew.nodes.len() {
            if self.crew.nodes[node].is_stopped_until(at) {
                self.go_on(node)?;
            }
            self.crew.revive(node, at)?;
        }
        self.crew.all_well()?;
        if self.faults_left > 0 && at >= self.next_fault {
            self.faults_left -= 1;
            let gap = in_micros(self.run.load.lasts) / u64::from(self.run.load.faults + 1);
            self.next_fault = at + self.dice.below(2 * gap.max(1));
            self.go_wrong(at)?;
        }
        Ok(())
    }

    /// One fault.
    fn go_wrong(&mut self, at: Micros) -> Result<(), RunError> {
        let lease = self.run.load.lease_max();
        let stops_for = micros(self.dice.between(lease * 11 / 10..=lease * 2));
        let down_for = micros(self.dice.between(10..=300));
        let index = self.dice.index(self.crew.nodes.len());
        match (self.deal(), self.crew.nodes[index].healthy()) {
            (Kind::Disturb, _) => {
                if let (Some(disturb), None) = (&self.run.store_fault, &self.disturbing) {
                    self.tell(Fault::Store);
                    self.disturbing = Some(tokio::spawn(disturb(self.dice.below(u64::MAX))));
                }
            }
            (Kind::Kill, Some((node, life))) => {
                self.tell(Fault::Kill { node, life });
                self.crew.nodes[index].kill(at + down_for)?;
                self.tell(Fault::Killed { node, life });
            }
            (Kind::Stop, Some((node, life))) => {
                self.tell(Fault::Stop { node, life });
                self.crew.nodes[index].stop(at + stops_for)?;
            }
            (Kind::Kill | Kind::Stop, None) => {}
        }
        Ok(())
    }

    /// The kind of the next fault: drawn from a deck, so that all of them come up.
    fn deal(&mut self) -> Kind {
        if self.deck.is_empty() {
            self.deck.push(Kind::Stop);
            if self.run.kills {
                self.deck.extend([Kind::Kill, Kind::Kill]);
            }
            if self.run.store_fault.is_some() {
                self.deck.push(Kind::Disturb);
            }
        }
        self.deck.swap_remove(self.dice.index(self.deck.len()))
    }

    fn go_on(&mut self, index: usize) -> Result<(), RunError> {
        let (node, life) = self.crew.nodes[index].go_on()?;
        self.tell(Fault::Continued { node, life });
        Ok(())
    }

    /// Ends the store's trouble if it is over, or once it is.
    async fn calm_down(&mut self, wait: bool) {
        let over = |it: &mut JoinHandle<String>| wait || it.is_finished();
        if let Some(disturbing) = self.disturbing.take_if(over) {
            let done = disturbing.await.unwrap_or_else(|error| error.to_string());
            self.tell(Fault::StoreOver(done));
        }
    }

    async fn heal(&mut self) -> Result<(), RunError> {
        for node in 0..self.crew.nodes.len() {
            if self.crew.nodes[node].is_stopped_until(Micros::MAX) {
                self.go_on(node)?;
            }
        }
        self.calm_down(true).await;
        self.tell(Fault::Healed);
        Ok(())
    }

    fn tell(&self, fault: Fault) {
        if let Some(progress) = &self.run.progress {
            progress(&fault);
        }
        self.log.note(What::Fault(fault));
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("processes", &self.processes)
            .field("seed", &self.seed)
            .field("load", &self.load)
            .finish_non_exhaustive()
    }
}

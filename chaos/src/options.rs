//! The command line, and the rounds it asks for.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::fault::Kind as Fault;
use crate::gateway::Program;
use crate::history::OnLapse;
use crate::planted::Planted;
use crate::quorum::Losing;
use crate::round::Plan;
use crate::store::Kind;
use crate::watch::Watch;

/// A round of each store and each rule for lapses; faults and operations are shared out.
#[derive(Args)]
pub(crate) struct Options {
    /// The stores [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    stores: Vec<Kind>,
    /// What follows a lapse [default: both]
    #[arg(long, value_enum, value_delimiter = ',')]
    on_lapse: Vec<OnLapse>,
    /// The kinds of faults, where they fit the store [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Fault>,
    /// How many faults to inject at least, over all rounds
    #[arg(long, default_value_t = 60)]
    faults: u64,
    /// How many operations to make at least, over all rounds
    #[arg(long, default_value_t = 10_000)]
    operations: u64,
    /// End each round after this many minutes, whatever was done by then
    #[arg(long)]
    minutes: Option<u64>,
    /// Where all random choices come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rounds at the same time
    #[arg(long, default_value_t = 6)]
    pub(crate) jobs: usize,
    /// Clients a round
    #[arg(long, default_value_t = 12)]
    clients: usize,
    /// Also write the results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The gateway [default: `onlyonce` beside this program]
    #[arg(long, value_name = "PROGRAM")]
    gateway: Option<PathBuf>,
    /// Run with a planted bug: good is what finds a violation
    #[arg(
        long,
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "unfenced"
    )]
    pub(crate) planted_bug: Option<Planted>,
}

impl Options {
    pub(crate) fn plans(&self) -> Result<Vec<Plan>, Failure> {
        let program = self.program()?;
        let watch = Watch::start();
        let pairs = or_all(&self.stores).iter().flat_map(|store| {
            let rules = or_all(&self.on_lapse).iter();
            rules.map(|on_lapse| (*store, *on_lapse))
        });
        let pairs: Vec<_> = pairs.collect();
        let rounds = pairs.len().max(1) as u64;
        let plans = pairs
            .into_iter()
            .zip(0..)
            .map(|((store, on_lapse), number)| {
                let kinds: Vec<_> = or_all(&self.only)
                    .iter()
                    .copied()
                    .filter(|it| it.fits(store))
                    .collect();
                if let Some(planted) = self.planted_bug
                    && !planted.fits(store)
                {
                    let store = store.name();
                    return Err(Failure::new(format!("{store} cannot have that bug")));
                }
                if kinds.is_empty() {
                    let store = store.name();
                    return Err(Failure::new(format!("no fault of --only fits {store}")));
                }
                Ok(Plan {
                    store,
                    on_lapse,
                    seed: self.seed.wrapping_mul(1000) + number,
                    faults: self.faults.div_ceil(rounds),
                    operations: self.operations.div_ceil(rounds),
                    clients: self.clients,
                    lasts_max: self
                        .minutes
                        .map(|minutes| Duration::from_secs(60 * minutes)),
                    kinds,
                    losing: match self.planted_bug {
                        Some(Planted::Forgetful) => Losing::WithIdentity,
                        Some(Planted::Unfenced | Planted::Redlock) | None => Losing::All,
                    },
                    program: program.clone(),
                    watch: watch.clone(),
                })
            });
        plans.collect()
    }

    fn program(&self) -> Result<Program, Failure> {
        let ourselves = env::current_exe().map_err(Failure::doing("find this program"))?;
        if let Some(command) = self.planted_bug.and_then(Planted::command) {
            return Ok(Program {
                path: ourselves,
                command,
            });
        }
        let beside = ourselves.with_file_name("onlyonce");
        let path = self.gateway.clone().unwrap_or(beside);
        if !path.is_file() {
            let path = path.display();
            return Err(Failure::new(format!(
                "there is no gateway at {path}: cargo build -p onlyonce-cli"
            )));
        }
        let path = path.canonicalize();
        Ok(Program {
            path: path.map_err(Failure::doing("find the gateway"))?,
            command: "gateway",
        })
    }
}

/// Those that were named, or all there are.
fn or_all<T: ValueEnum>(named: &[T]) -> &[T] {
    if named.is_empty() {
        T::value_variants()
    } else {
        named
    }
}

//! The gateway from outside, as clients see it: against nginx as a plain proxy, and its keyed
//! requests against its own pass-through. Requests have 300 bytes, responses 200.

mod memory;
mod nginx;
mod onlyonce;
mod process;
mod upstream;
mod wrk;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use self::nginx::Nginx;
use self::onlyonce::Onlyonce;
use self::upstream::Upstream;
use self::wrk::Keys;
use crate::failure::Failure;
use crate::report::{Goal, Report, Row};
use crate::rounds::Rounds;
use crate::{runtime, say};

#[derive(Args)]
pub(crate) struct Options {
    /// The onlyonce program, by default the one beside this
    #[arg(long, value_name = "FILE")]
    onlyonce: Option<PathBuf>,
    /// Only these parts
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// How often all cases take turns
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each turn is
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How many keys are live when memory is measured
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Requests a second and a CPU second
    Rates,
    /// Memory with many live keys
    Memory,
}

impl Options {
    /// What is built together lies together.
    fn program(&self) -> Result<PathBuf, Failure> {
        if let Some(program) = &self.onlyonce {
            return Ok(program.clone());
        }
        let own = std::env::current_exe().map_err(Failure::doing("find this program"))?;
        Ok(own.with_file_name("onlyonce"))
    }

    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let runtime = runtime()?;
    let upstream = runtime.block_on(Upstream::start())?;
    let mut report = Report::default();
    if options.wants(Part::Rates) {
        report.rows.extend(rates(options, &upstream)?);
    }
    if options.wants(Part::Memory) {
        report.rows.extend(memory::run(options, &upstream)?);
    }
    Ok(report)
}

/// One comparison: its name, its rounds, and what is hoped for.
struct Duel {
    case: &'static str,
    goal: f64,
    rounds: Rounds,
}

impl Duel {
    fn new(case: &'static str, goal: f64) -> Self {
        Self {
            case,
            goal,
            rounds: Rounds::default(),
        }
    }

    fn rows(&self) -> [Row; 3] {
        let (case, goal) = (self.case, Some(Goal::AtLeast(self.goal)));
        [
            self.rounds.rate("gateway", case, goal),
            self.rounds.per_cpu("gateway", case, goal),
            self.rounds.p99("gateway", case, None),
        ]
    }
}

fn rates(options: &Options, upstream: &Upstream) -> Result<Vec<Row>, Failure> {
    let mut proxied = Duel::new("pass-through / nginx", 0.8);
    let mut in_memory = Duel::new("new keys, memory / pass-through", 0.85);
    let mut on_disk = Duel::new("new keys, file / pass-through", 0.6);
    let mut replayed = Duel::new("replays / pass-through", 1.8);
    let program = options.program()?;
    let nginx = Nginx::start(upstream.port())?;
    for round in 1..=options.rounds {
        say(&format!("gateway: round {round} of {}", options.rounds));
        let turn = |port, pids: &[u32], keys| wrk::run(port, pids, keys, options.seconds);
        let base = turn(nginx.port(), &nginx.pids(), Keys::None)?;

        let gateway = Onlyonce::start(&program, upstream.port(), "memory:")?;
        let (port, pids) = (gateway.port(), [gateway.pid()]);
        let passed = turn(port, &pids, Keys::None)?;
        proxied.rounds.add(passed, base);
        in_memory.rounds.add(turn(port, &pids, Keys::New)?, passed);
        replayed.rounds.add(turn(port, &pids, Keys::Same)?, passed);
        drop(gateway);

        let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
        let store = format!("file:{}/data", folder.path().display());
        let gateway = Onlyonce::start(&program, upstream.port(), &store)?;
        let (port, pids) = (gateway.port(), [gateway.pid()]);
        on_disk.rounds.add(turn(port, &pids, Keys::New)?, passed);
    }
    let duels = [proxied, in_memory, on_disk, replayed];
    Ok(duels.iter().flat_map(Duel::rows).collect())
}

//! The gateway from outside, as clients see it: against nginx as a plain proxy, and its keyed
//! requests against its own pass-through. Requests have 300 bytes, responses 200.

mod lone;
mod memory;
mod upstream;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub(crate) use self::memory::stats;
pub(crate) use self::upstream::Upstream;
use crate::budget::Budget;
use crate::failure::Failure;
use crate::proxy::{Haproxy, Nginx, Onlyonce, Program};
use crate::report::{Goal, Report, Row};
use crate::rounds::Rounds;
use crate::wrk::{self, Keys, Load};
use crate::{runtime, say};

/// Replays are of so many keys.
const SAME_KEYS: u64 = 1000;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    program: Program,
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
    /// How long one request takes while there is no other
    Lone,
    /// Memory with many live keys
    Memory,
}

impl Options {
    /// A short run without what takes long, for when there is more to measure.
    pub(crate) fn short(program: Program, rounds: u32, seconds: u64) -> Self {
        Self {
            program,
            only: vec![Part::Rates, Part::Lone],
            rounds,
            seconds,
            keys: 0,
        }
    }

    fn program(&self) -> Result<PathBuf, Failure> {
        self.program.path()
    }

    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

pub(crate) fn run(options: &Options, budget: Budget) -> Result<Report, Failure> {
    let runtime = runtime()?;
    let upstream = runtime.block_on(Upstream::start())?;
    let mut report = Report::default();
    if options.wants(Part::Rates) {
        report.rows.extend(rates(options, &upstream, budget)?);
    }
    if options.wants(Part::Lone) {
        report.rows.extend(lone::run(options, &upstream, budget)?);
    }
    if options.wants(Part::Memory) {
        report.rows.extend(memory::run(options, &upstream)?);
    }
    Ok(report)
}

/// One comparison: its name, its rounds, and what is hoped for.
struct Duel {
    case: &'static str,
    goal: Option<Goal>,
    rounds: Rounds,
}

impl Duel {
    fn new(case: &'static str, goal: Option<f64>) -> Self {
        Self {
            case,
            goal: goal.map(Goal::AtLeast),
            rounds: Rounds::default(),
        }
    }

    fn rows(&self) -> [Row; 5] {
        let Self { case, goal, rounds } = self;
        [
            rounds.rate("gateway", case, *goal),
            rounds.per_cpu("gateway", case, *goal),
            rounds.p50("gateway", case),
            rounds.p99("gateway", case, None),
            rounds.p999("gateway", case),
        ]
    }
}

fn rates(options: &Options, upstream: &Upstream, budget: Budget) -> Result<Vec<Row>, Failure> {
    let mut bare = Duel::new("pass-through / bare handler", None);
    let mut by_nginx = Duel::new("pass-through / nginx", Some(0.9));
    let mut by_haproxy = Duel::new("pass-through / HAProxy", None);
    let mut in_memory = Duel::new("new keys, memory / pass-through", Some(0.8));
    let mut on_disk = Duel::new("new keys, file / pass-through", Some(0.6));
    let mut disk_or_memory = Duel::new("new keys, file / memory", Some(0.8));
    let mut replayed = Duel::new("replays, memory / pass-through", Some(1.8));
    let mut replayed_from_disk = Duel::new("replays, file / memory", Some(0.9));
    let program = options.program()?;
    let nginx = Nginx::start(upstream.port())?;
    let haproxy = Haproxy::start(upstream.port())?;
    for round in budget.rounds(options.rounds) {
        say(&format!("gateway: round {round} of {}", options.rounds));
        let turn =
            |port, pids: &[u32], keys| wrk::run(Load::new(port, keys, options.seconds), pids);
        let direct = turn(upstream.port(), &[], Keys::None)?;
        let nginx = turn(nginx.port(), &nginx.pids(), Keys::None)?;
        let haproxy = turn(haproxy.port(), &[haproxy.pid()], Keys::None)?;

        let gateway = Onlyonce::start(&program, upstream.port(), "memory:")?;
        let (port, pids) = (gateway.port(), [gateway.pid()]);
        let passed = turn(port, &pids, Keys::None)?;
        bare.rounds.add(passed, direct);
        by_nginx.rounds.add(passed, nginx);
        by_haproxy.rounds.add(passed, haproxy);
        let kept_in_memory = turn(port, &pids, Keys::New)?;
        in_memory.rounds.add(kept_in_memory, passed);
        let replays = turn(port, &pids, Keys::Same(SAME_KEYS))?;
        replayed.rounds.add(replays, passed);
        drop(gateway);

        let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
        let store = format!("file:{}/data", folder.path().display());
        let gateway = Onlyonce::start(&program, upstream.port(), &store)?;
        let (port, pids) = (gateway.port(), [gateway.pid()]);
        let kept_on_disk = turn(port, &pids, Keys::New)?;
        on_disk.rounds.add(kept_on_disk, passed);
        disk_or_memory.rounds.add(kept_on_disk, kept_in_memory);
        let from_disk = turn(port, &pids, Keys::Same(SAME_KEYS))?;
        replayed_from_disk.rounds.add(from_disk, replays);
    }
    let duels = [
        bare,
        by_nginx,
        by_haproxy,
        in_memory,
        on_disk,
        disk_or_memory,
        replayed,
        replayed_from_disk,
    ];
    Ok(duels.iter().flat_map(Duel::rows).collect())
}

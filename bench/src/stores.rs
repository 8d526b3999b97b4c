//! Every durable store against what it is built on: the file store against a bare log, Redis and
//! PostgreSQL against their own benchmark programs running the same commands and statements, a quorum
//! against the store on one of its servers.

mod bare_log;
mod file;
mod postgres;
mod quorum;
mod redis;
mod sizes;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::budget::Budget;
use crate::failure::Failure;
use crate::report::{Note, Report};
use crate::{runtime, say};

pub(crate) use self::sizes::{opened, reopen};

#[derive(Args)]
pub(crate) struct Options {
    /// Only these parts
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Also 5 million live records in the file store: minutes, and 8 GB of disk
    #[arg(long)]
    long: bool,
    /// How often the two sides take turns
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each side's turn is
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How many records are live in the long part
    #[arg(long, default_value_t = 5_000_000)]
    live_records: u64,
    /// How many records are written and expire
    #[arg(long, default_value_t = 1_000_000)]
    churn_records: u64,
    /// How many records of mixed lifetimes are written
    #[arg(long, default_value_t = 200_000)]
    mixed_records: u64,
    /// Where the file store is; everything made there is removed
    #[arg(long, default_value = "target/bench")]
    folder: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The file store against a bare log
    File,
    /// Disk after records have expired
    Churn,
    /// What is written again where some records live much shorter than others
    Mixed,
    /// The Redis store against redis-benchmark
    Redis,
    /// Quorums of Redis servers against one, and against one with a replica that confirms
    Quorum,
    /// The PostgreSQL store against pgbench
    Postgres,
    /// Memory and time to open with millions of records
    Live,
}

/// How the two sides take turns.
#[derive(Clone, Copy)]
struct Turns {
    rounds: u32,
    time: Duration,
    budget: Budget,
}

impl Turns {
    /// Tells each round of this case as it begins.
    fn rounds(self, case: String) -> impl Iterator<Item = u32> {
        let told = move |round: &u32| say(&format!("{case}: round {round} of {}", self.rounds));
        self.budget.rounds(self.rounds).inspect(told)
    }
}

impl Options {
    /// A short run without what takes long, for when there is more to measure.
    pub(crate) fn short(rounds: u32) -> Self {
        Self {
            only: vec![Part::File, Part::Redis, Part::Postgres],
            long: false,
            rounds,
            seconds: 1,
            live_records: 0,
            churn_records: 0,
            mixed_records: 0,
            folder: "target/bench".into(),
        }
    }

    fn wants(&self, part: Part) -> bool {
        if self.only.is_empty() {
            return part != Part::Live || self.long;
        }
        self.only.contains(&part)
    }
}

pub(crate) fn run(options: &Options, budget: Budget) -> Result<Report, Failure> {
    let runtime = runtime()?;
    let turns = Turns {
        rounds: options.rounds,
        time: Duration::from_secs(options.seconds),
        budget,
    };
    let mut report = Report::default();
    for part in Part::value_variants()
        .iter()
        .filter(|it| options.wants(**it))
    {
        if !budget.has_time() {
            let name = part.to_possible_value();
            let name = name.map_or_else(String::new, |it| it.get_name().to_owned());
            report.notes.push(Note::new("stores", "left out", name));
            continue;
        }
        let folder = &options.folder;
        report.rows.extend(match part {
            Part::File => runtime.block_on(file::run(folder, turns))?,
            Part::Churn => runtime.block_on(sizes::churn(folder, options.churn_records))?,
            Part::Mixed => runtime.block_on(sizes::mixed(folder, options.mixed_records))?,
            Part::Redis => redis::run(&runtime, turns)?,
            Part::Quorum => quorum::run(&runtime, turns)?,
            Part::Postgres => postgres::run(&runtime, turns)?,
            Part::Live => runtime.block_on(sizes::live(folder, options.live_records))?,
        });
    }
    Ok(report)
}

/// An empty folder for a store, under one that is ours: another one each time, as the store before may not
/// have let go of its own yet.
pub(crate) fn fresh(folder: &Path) -> Result<PathBuf, Failure> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    clear(folder);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let path = folder.join("data").join(number.to_string());
    std::fs::create_dir_all(&path).map_err(Failure::doing(format!(
        "make the folder {}",
        path.display()
    )))?;
    Ok(path)
}

pub(crate) fn clear(folder: &Path) {
    // What is not there needs no removing.
    drop(std::fs::remove_dir_all(folder.join("data")));
}

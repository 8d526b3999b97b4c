//! Records and checks histories of a real store, for as long as you like:
//! `cargo build -p onlyonce-stores --features redis --example history_worker && cargo run -p
//! onlyonce-testkit --features servers --example history -- --url redis://127.0.0.1:6379 --runs 100`.
//! The exit code is 1 if a rule was broken.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command"
)]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use onlyonce_core::MemoryStore;
use onlyonce_testkit::history::{Load, Local, Program, Report, Run, faults};
use onlyonce_testkit::proxy::Proxy;

/// Many processes on one store, killed and stopped at random, and everything they do checked.
#[derive(Parser)]
struct Arguments {
    /// The store, as the workers open it; one that is for nothing else. With `memory:`, the workers
    /// are engines in this process.
    #[arg(long)]
    url: String,
    /// The worker's program; `history_worker` beside this one otherwise.
    #[arg(long)]
    worker: Option<PathBuf>,
    /// How many runs to make, each with the next seed.
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Worker processes at a time. The file store can have one.
    #[arg(long, default_value_t = 4)]
    processes: u16,
    /// Calls of all workers in a run.
    #[arg(long, default_value_t = Load::usual().calls)]
    calls: u32,
    /// Keys that come up in a run.
    #[arg(long, default_value_t = Load::usual().keys)]
    keys: u32,
    /// Calls that one worker has under way, at most.
    #[arg(long, default_value_t = Load::usual().tasks)]
    tasks: u32,
    /// How long calls are made in a run.
    #[arg(long, default_value_t = Load::usual().lasts.as_secs())]
    seconds: u64,
    /// Faults in a run, at most.
    #[arg(long, default_value_t = Load::usual().faults)]
    faults: u32,
    /// Leases, in milliseconds.
    #[arg(long, value_delimiter = ',')]
    leases: Vec<u64>,
    /// Wall clocks of the workers in turn, as in `--offsets=,+10m,-10m`.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    offsets: Vec<String>,
    /// Only stops workers.
    #[arg(long)]
    no_kills: bool,
    /// Puts a proxy between the workers and the server: a network that fails.
    #[arg(long)]
    through_proxy: bool,
    /// Keeps the logs of every run in this folder.
    #[arg(long)]
    logs: Option<PathBuf>,
    /// Tells every fault.
    #[arg(long)]
    verbose: bool,
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let proxy = match arguments.through_proxy {
        true => Some(Arc::new(Proxy::start(&arguments.url).await?)),
        false => None,
    };
    let mut all = Report::default();
    for number in 0..arguments.runs {
        let seed = arguments.seed + number;
        let report = if arguments.url == "memory:" {
            local(&arguments, seed).execute().await?
        } else {
            run(&arguments, seed, proxy.as_ref())?.execute().await?
        };
        eprintln!(
            "seed {seed}: {} calls, {} runs, {} faults, {} take-overs, {} broken rules in {:.1} s",
            report.calls,
            report.runs,
            report.faults.values().sum::<u64>(),
            report.take_overs,
            report.broken,
            report.lasted.as_secs_f64(),
        );
        all.add(&report);
        if !report.is_clean() {
            break;
        }
    }
    println!("{all}");
    Ok(match all.is_clean() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn run(
    arguments: &Arguments,
    seed: u64,
    proxy: Option<&Arc<Proxy>>,
) -> Result<Run, Box<dyn Error>> {
    let worker = match &arguments.worker {
        Some(path) => Program::new(path),
        None => Program::beside("history_worker")?,
    };
    let mut run = Run::new(&arguments.url, worker);
    run.seed = seed;
    run.processes = arguments.processes;
    run.load = load(arguments);
    run.offsets.clone_from(&arguments.offsets);
    run.kills = !arguments.no_kills;
    if let Some(proxy) = proxy {
        proxy.url().clone_into(&mut run.url);
        let lasts = 10..=run.load.lease_max() * 3 / 2;
        run.store_fault = Some(faults::network(Arc::clone(proxy), lasts));
    }
    run.logs = logs(arguments, seed);
    if arguments.verbose {
        run.progress = Some(Arc::new(|fault| eprintln!("  {fault}")));
    }
    Ok(run)
}

fn local(arguments: &Arguments, seed: u64) -> Local {
    let mut run = Local::new(Arc::new(MemoryStore::new()));
    run.seed = seed;
    run.engines = arguments.processes;
    run.load = load(arguments);
    run.logs = logs(arguments, seed);
    run
}

fn load(arguments: &Arguments) -> Load {
    Load {
        lasts: Duration::from_secs(arguments.seconds),
        calls: arguments.calls,
        tasks: arguments.tasks,
        keys: arguments.keys,
        leases: match arguments.leases.is_empty() {
            true => Load::usual().leases,
            false => arguments.leases.clone(),
        },
        faults: arguments.faults,
    }
}

fn logs(arguments: &Arguments, seed: u64) -> Option<PathBuf> {
    let logs = arguments.logs.as_ref()?;
    Some(logs.join(format!("seed-{seed}")))
}

//! Runs the simulator over many seeds: `cargo run --release -p onlyonce-testkit --example sim --
//! --seeds 100000`. A seed that breaks a rule is printed with its history; the exit code is 1.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command"
)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use clap::Parser;
use onlyonce_core::{Clock, SystemClock};
use onlyonce_testkit::sim::{Bug, Plan, Report, Settled, Violation, run, settle};

/// Production engines on virtual time, under faults, with a checker that knows the protocol.
#[derive(Parser)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many threads run them.
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// Plant a bug: then the run succeeds once the checker has caught it.
    #[arg(long)]
    bug: Option<Bug>,
    /// Rotate the slot secret: processes with one and with both run side by side.
    #[arg(long)]
    rotate: bool,
    /// Look up what is in doubt before it runs again, instead: gateways and an upstream under faults.
    #[arg(long, conflicts_with_all = ["bug", "rotate", "history"])]
    reconcile: bool,
    /// Print the history of every seed, also of those in which all is well.
    #[arg(long)]
    history: bool,
}

/// What the threads share.
struct Progress {
    next: AtomicU64,
    done: AtomicU64,
    stop: AtomicBool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let clock = SystemClock::new();
    if arguments.reconcile {
        return settle_all(&arguments, &clock);
    }
    let (report, violation) = run_all(&arguments, &clock);
    let seconds = clock.now().as_secs_f64();
    println!("{report}");
    println!(
        "{:.0} seeds/s in {seconds:.1} s",
        report.seeds as f64 / seconds
    );
    if let Some(violation) = &violation {
        println!(
            "\n{violation}\n\nreplay it with:\n  {}",
            replay(&arguments, violation.seed)
        );
    }
    match (arguments.bug, violation) {
        (None, None) => ExitCode::SUCCESS,
        (None, Some(_)) => ExitCode::FAILURE,
        (Some(bug), Some(violation)) => {
            let tried = violation.seed - arguments.first + 1;
            println!("\n{bug} was caught at seed {tried} of those tried");
            ExitCode::SUCCESS
        }
        (Some(bug), None) => {
            println!("\n{bug} was not caught");
            ExitCode::FAILURE
        }
    }
}

/// Runs all seeds of reconcile, or until one has two effects or none.
fn settle_all(arguments: &Arguments, clock: &SystemClock) -> ExitCode {
    let mut all = Settled::default();
    for seed in arguments.first..arguments.first.saturating_add(arguments.seeds) {
        match settle(seed, None) {
            Ok(settled) => all.add(&settled),
            Err(unsettled) => {
                println!("{unsettled}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{all:?}");
    let (seeds, seconds) = (arguments.seeds, clock.now().as_secs_f64());
    println!("{seeds} seeds in {seconds:.1} s");
    ExitCode::SUCCESS
}

/// Runs all seeds, or until one breaks a rule: of several, the first is told.
fn run_all(arguments: &Arguments, clock: &SystemClock) -> (Report, Option<Violation>) {
    let progress = Progress {
        next: AtomicU64::new(0),
        done: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let (ended, ends) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.threads.max(1))
            .map(|_| {
                let (progress, ended) = (&progress, ended.clone());
                scope.spawn(move || {
                    let result = work(arguments, progress);
                    drop(ended);
                    result
                })
            })
            .collect();
        drop(ended);
        // Wakes at once when the last worker is done, and once a second to tell how far it is.
        while ends.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
            let done = progress.done.load(Ordering::Relaxed);
            let rate = done as f64 / clock.now().as_secs_f64();
            eprintln!("{done} of {} seeds, {rate:.0}/s", arguments.seeds);
        }
        gather(
            workers
                .into_iter()
                .map(|it| it.join().expect("a worker does not panic")),
        )
    })
}

fn gather(
    results: impl Iterator<Item = (Report, Option<Violation>)>,
) -> (Report, Option<Violation>) {
    let mut all = Report::default();
    let mut first: Option<Violation> = None;
    for (report, violation) in results {
        all.add(&report);
        first = [first, violation]
            .into_iter()
            .flatten()
            .min_by_key(|it| it.seed);
    }
    (all, first)
}

/// One thread: takes seeds until there are none left.
fn work(arguments: &Arguments, progress: &Progress) -> (Report, Option<Violation>) {
    let mut plan = arguments.bug.map(Plan::with_bug).unwrap_or_default();
    plan.rotation |= arguments.rotate;
    let mut all = Report::default();
    while !progress.stop.load(Ordering::Relaxed) {
        let number = progress.next.fetch_add(1, Ordering::Relaxed);
        if number >= arguments.seeds {
            break;
        }
        match run(arguments.first + number, &plan) {
            Ok(report) => {
                if arguments.history {
                    println!("seed {}\n{}", arguments.first + number, report.history);
                }
                all.add(&report);
            }
            Err(violation) => {
                progress.stop.store(true, Ordering::Relaxed);
                return (all, Some(violation));
            }
        }
        progress.done.fetch_add(1, Ordering::Relaxed);
    }
    (all, None)
}

fn replay(arguments: &Arguments, seed: u64) -> String {
    let bug = arguments.bug.map(|bug| format!(" --bug {bug}"));
    let bug = bug.unwrap_or_default();
    let rotate = if arguments.rotate { " --rotate" } else { "" };
    format!(
        "cargo run --release -p onlyonce-testkit --example sim -- --seeds 1 --first {seed}{bug}{rotate}"
    )
}

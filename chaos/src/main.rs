//! Real gateways in front of a real upstream, on every kind of store, under random faults; what
//! clients heard and what ran is written down and judged. Run by `cargo xtask chaos`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to the person at the terminal is what this program is for"
)]

mod check;
mod client;
mod disk;
mod failure;
mod fault;
mod gateway;
mod history;
mod inject;
mod manner;
mod net;
mod options;
mod planted;
mod quorum;
mod report;
mod round;
mod stage;
mod store;
mod system;
mod upstream;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use futures_util::{StreamExt as _, stream};
use onlyonce_testkit::servers;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use crate::options::Options;
use crate::report::Report;
use crate::round::Plan;

/// Real gateways under random faults
#[derive(Parser)]
#[command(name = "onlyonce-chaos", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Inject faults, and judge what happened
    Run(Options),
    /// Write the Debian packages that are not installed, one per line
    Missing,
    /// A gateway whose store does not fence
    #[command(hide = true)]
    Unfenced {
        #[arg(long)]
        config: PathBuf,
    },
    /// A gateway on plain Redlock
    #[command(hide = true)]
    Redlock {
        #[arg(long)]
        config: PathBuf,
    },
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::doing("start a runtime"));
    let done = runtime.and_then(|runtime| match Cli::parse().what {
        What::Run(options) => runtime.block_on(run(&options)),
        What::Missing => {
            let missing = servers::missing_packages();
            missing.iter().for_each(|package| println!("{package}"));
            Ok(ExitCode::SUCCESS)
        }
        What::Unfenced { config } => {
            let served = runtime.block_on(planted::unfenced(&config));
            served.map(|()| ExitCode::SUCCESS)
        }
        What::Redlock { config } => {
            let served = runtime.block_on(planted::redlock(&config));
            served.map(|()| ExitCode::SUCCESS)
        }
    });
    done.unwrap_or_else(|failure| {
        eprintln!("chaos: {failure}");
        ExitCode::from(2)
    })
}

/// Plays all rounds. Violations are a failure; with a planted bug it is one to find none.
async fn run(options: &Options) -> Result<ExitCode, Failure> {
    net::sweep();
    disk::sweep();
    let plans = options.plans()?;
    let (rounds, jobs) = (plans.len(), options.jobs);
    say(&format!("{rounds} rounds, {jobs} at a time"));
    let playing = stream::iter(plans).map(Plan::play).buffered(options.jobs);
    let mut playing = playing.take_until(Box::pin(told_to_stop()?));
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    while let Some(round) = playing.next().await {
        match round {
            Ok(row) => rows.push(row),
            Err(failure) => failures.push(failure),
        }
    }
    if playing.take_result().is_some() {
        failures.push(Failure::new("told to stop before the end"));
    }
    // What was being played goes, with its servers and networks.
    drop(playing);
    let report = Report { rows };
    println!("{report}");
    for failure in &failures {
        eprintln!("chaos: {failure}");
    }
    if let Some(path) = &options.json {
        report.write(path)?;
    }
    Ok(match (options.planted_bug.is_some(), report.violations()) {
        (_, 0) if !failures.is_empty() => ExitCode::from(2),
        (false, 0) => ExitCode::SUCCESS,
        (true, 0) => {
            println!("the planted bug was NOT found");
            ExitCode::FAILURE
        }
        (true, _) => {
            println!("the planted bug was found");
            ExitCode::SUCCESS
        }
        (false, _) => ExitCode::FAILURE,
    })
}

/// Returns when a person or a script has had enough.
fn told_to_stop() -> Result<impl Future<Output = ()>, Failure> {
    let heard = |kind| signal(kind).map_err(Failure::doing("listen for signals"));
    let (mut interrupt, mut terminate) = (
        heard(SignalKind::interrupt())?,
        heard(SignalKind::terminate())?,
    );
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Tells how far it is.
fn say(what: &str) {
    eprintln!("chaos: {what}");
}

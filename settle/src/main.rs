//! Real processes, killed at every system call of a keyed request in turn, and started again; then the
//! client retries. What happened twice or stays in doubt is counted. Run by `cargo xtask settle`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to the person at the terminal is what this program is for"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "other processes are waited for, and no clock of ours moves them"
)]

mod client;
mod failure;
mod judge;
mod ledger;
mod options;
mod plan;
mod process;
mod report;
mod round;
mod stage;
mod trace;
mod web;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use futures_util::{StreamExt as _, stream};
use onlyonce_testkit::servers;
use tokio::task::LocalSet;

use crate::failure::Failure;
use crate::options::Options;
use crate::report::Report;
use crate::stage::Servers;

/// Processes killed at every system call of a keyed request
#[derive(Parser)]
#[command(name = "onlyonce-settle", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Kill, start again, retry, and judge what was left
    Run(Options),
    /// Write the Debian packages that are not installed, one per line
    Missing,
    /// A service with effects
    #[command(hide = true)]
    Ledger(ledger::Settings),
    /// A service on the library
    #[command(hide = true)]
    Worker(worker::Settings),
}

/// One thread: what a process does is then one sequence of system calls.
fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::doing("start a runtime"));
    let local = LocalSet::new();
    let done = runtime.and_then(|runtime| match Cli::parse().what {
        What::Run(options) => local.block_on(&runtime, run(&options)),
        What::Missing => {
            let missing = servers::missing_packages();
            missing.iter().for_each(|package| println!("{package}"));
            Ok(ExitCode::SUCCESS)
        }
        What::Ledger(settings) => {
            let served = local.block_on(&runtime, ledger::run(&settings));
            served.map(|()| ExitCode::SUCCESS)
        }
        What::Worker(settings) => {
            let served = local.block_on(&runtime, worker::run(&settings));
            served.map(|()| ExitCode::SUCCESS)
        }
    });
    done.unwrap_or_else(|failure| {
        eprintln!("settle: {failure}");
        ExitCode::from(2)
    })
}

/// Plays all plans. Violations are a failure; with a planted bug it is one to find none.
async fn run(options: &Options) -> Result<ExitCode, Failure> {
    let (plans, gateway) = (options.plans()?, options.gateway()?);
    let servers = Arc::new(Servers::start(&plans)?);
    eprintln!("settle: {} plans, {} at a time", plans.len(), options.jobs);
    let playing = plans.iter().zip(0..).map(|(plan, number)| {
        let (servers, gateway, extent) = (&servers, &gateway, options.extent(number));
        async move {
            let played = round::play(plan, servers, gateway, extent).await;
            eprintln!("settle: {} is done", plan.name());
            played
        }
    });
    let played: Vec<_> = stream::iter(playing).buffered(options.jobs).collect().await;
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for played in played {
        match played {
            Ok(row) => rows.push(row),
            Err(failure) => failures.push(failure),
        }
    }
    let report = Report(rows);
    println!("{report}");
    for failure in &failures {
        eprintln!("settle: {failure}");
    }
    Ok(match (options.planted_bug, report.violations()) {
        (_, 0) if !failures.is_empty() => ExitCode::from(2),
        (None, 0) => ExitCode::SUCCESS,
        (Some(_), 0) => {
            println!("the planted bug was NOT found");
            ExitCode::FAILURE
        }
        (Some(_), _) => {
            println!("the planted bug was found");
            ExitCode::SUCCESS
        }
        (None, _) => ExitCode::FAILURE,
    })
}

//! Measures the layer, the stores and the gateway against what they are built on and against peers.
//! Run by `cargo xtask bench`, which builds it optimised.
//!
//! Whatever is compared takes turns in short rounds, and the median of the rounds counts: a noisy
//! machine is noisy for both sides.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to the person at the terminal is what this program is for"
)]

mod all;
mod budget;
mod client;
mod console;
mod crash;
mod failure;
mod gateway;
mod layer;
mod markdown;
mod noise;
mod peers;
mod plot;
mod process;
mod proxy;
mod readme;
mod report;
mod rounds;
mod scaling;
mod serve;
mod stores;
mod system;
mod tool;
mod work;
mod wrk;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tokio::runtime::Runtime;

use crate::budget::Budget;
use crate::failure::Failure;
use crate::report::Report;

/// Measures the layer, the stores and the gateway
#[derive(Parser)]
#[command(name = "onlyonce-bench", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// All of it in a bounded time, with tables and plots
    All(all::Options),
    /// Every durable store against what it is built on
    Stores {
        #[command(flatten)]
        options: stores::Options,
        #[command(flatten)]
        output: Output,
    },
    /// The gateway against nginx, and its keyed requests against its pass-through
    Gateway {
        #[command(flatten)]
        options: gateway::Options,
        #[command(flatten)]
        output: Output,
    },
    /// Idempotency libraries and servers of others in front of the same handler
    Peers {
        #[command(flatten)]
        options: peers::Options,
        #[command(flatten)]
        output: Output,
    },
    /// The console of a gateway with many records
    Console {
        #[command(flatten)]
        options: console::Options,
        #[command(flatten)]
        output: Output,
    },
    /// What it costs that a crash in the middle can be settled
    Crash {
        #[command(flatten)]
        options: crash::Options,
        #[command(flatten)]
        output: Output,
    },
    /// Throughput and p99 against concurrency, live keys, body size and number of gateways
    Scaling(scaling::Options),
    /// Write the Debian packages that are not installed, one per line
    Missing,
    /// Open a file store, say how long it took and what it holds
    #[command(hide = true)]
    Reopen { folder: PathBuf },
    /// Serve the trivial handler, bare or behind the layer
    #[command(hide = true)]
    Serve(serve::Options),
}

#[derive(Args)]
struct Output {
    /// Also write the results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().what {
        What::All(options) => all::run(&options),
        What::Stores { options, output } => {
            stores::run(&options, Budget::unlimited()).and_then(|it| show(it, &output))
        }
        What::Gateway { options, output } => {
            gateway::run(&options, Budget::unlimited()).and_then(|it| show(it, &output))
        }
        What::Peers { options, output } => {
            peers::run(&options, Budget::unlimited()).and_then(|it| show(it, &output))
        }
        What::Console { options, output } => {
            console::run(&options).and_then(|it| show(it, &output))
        }
        What::Crash { options, output } => crash::run(&options).and_then(|it| show(it, &output)),
        What::Scaling(options) => scaling::run(&options),
        What::Missing => {
            tool::missing_packages()
                .iter()
                .for_each(|it| println!("{it}"));
            Ok(())
        }
        What::Reopen { folder } => stores::reopen(&folder),
        What::Serve(options) => serve::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::from(2)
        }
    }
}

/// A goal that is missed is shown as missed; it does not fail the run.
fn show(report: Report, output: &Output) -> Result<(), Failure> {
    let report = report.with_noise();
    println!("{report}");
    match &output.json {
        Some(path) => report.write(path),
        None => Ok(()),
    }
}

fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::doing("start a runtime"))
}

/// Tells how far it is.
fn say(what: &str) {
    eprintln!("bench: {what}");
}

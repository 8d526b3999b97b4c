//! Explores the models within the large bounds: `cargo xtask model`. Prints the states of each, and
//! every broken rule with the shortest way there; the exit code is 1 if there is one.

#![allow(clippy::print_stdout, reason = "this is a command")]

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use onlyonce_core::{Clock, SystemClock};
use onlyonce_model::{Explored, Plan, engines, planted_in_engines, planted_in_quorum, quorum};

/// Every order of events within bounds, on the code that decides.
#[derive(Parser)]
struct Arguments {
    /// Explore the small bounds, as the tests do.
    #[arg(long)]
    small: bool,
    /// Plant each bug in turn: exits with 0 once all are found.
    #[arg(long)]
    planted: bool,
    /// Only the plans whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// How many threads explore.
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = arguments.threads.unwrap_or(cores);
    if arguments.planted {
        return planted();
    }
    let plans = match arguments.small {
        true => Plan::small(),
        false => Plan::large(),
    };
    let clock = SystemClock::new();
    let mut is_sound = true;
    for plan in plans {
        if !plan.name.contains(&arguments.only) {
            continue;
        }
        let began = clock.now();
        let explored = plan.explore(threads);
        let took = clock.now().saturating_sub(began).as_secs_f64();
        println!("{} ({took:.1} s): {explored}", plan.name);
        is_sound &= explored.is_sound();
    }
    match is_sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn planted() -> ExitCode {
    let mut are_found = true;
    let mut tell = |bug: String, explored: Explored| {
        println!("{bug}: {explored}");
        are_found &= !explored.is_sound();
    };
    for bug in engines::Bug::ALL {
        tell(format!("{bug:?}"), planted_in_engines(bug));
    }
    for bug in quorum::Bug::ALL {
        tell(format!("{bug:?}"), planted_in_quorum(bug));
    }
    match are_found {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

//! `cargo xtask bench`: the tower layer by itself, or a subject of the package onlyonce-bench, which
//! is built optimised and given the programs it measures with.

use std::process::{Command, ExitCode};

use clap::ValueEnum;

use crate::cargo::{self, cargo, exit_code};
use crate::package::Language;
use crate::{Failure, servers};

mod overhead;

/// What measures, and what it measures from outside.
const PACKAGES: [&str; 2] = ["onlyonce-bench", "onlyonce-cli"];
const PROGRAM: &str = "onlyonce-bench";

/// What is measured.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Subject {
    /// All but the curves, in 15 minutes, with tables and plots in docs/benchmarks
    All,
    /// What the tower layer costs a request
    Layer,
    /// The file, Redis and PostgreSQL stores against a bare log, redis-benchmark and pgbench
    Stores,
    /// The gateway against nginx and HAProxy, and its keyed requests against its pass-through
    Gateway,
    /// Libraries and servers of others in front of the same handler, installed where they are not yet
    Peers,
    /// The console of a gateway with many records: first paint, and what an open page costs
    Console,
    /// How many operations a second the offline queue takes in and gets done
    Queue,
    /// What steps, `reconcile` and an answer in the caller's own transaction cost, when nothing crashes
    Crash,
    /// What a key costs in Python: functions and ASGI, beside nothing and packages of others
    Python,
    /// What a key costs in Node: functions and Express, beside nothing and a package of others
    Node,
    /// Throughput and p99 against concurrency, live keys, body size and number of gateways
    Scaling,
}

/// Exits as the benchmark does.
pub(crate) fn run(subject: Subject, args: &[String]) -> Result<ExitCode, Failure> {
    match subject {
        Subject::Layer => {
            let mut command = cargo(&["bench", "-p", "onlyonce-tower", "--all-features"]);
            if !args.is_empty() {
                command.arg("--").args(args);
            }
            exit_code(command)
        }
        Subject::Stores => exit_code(program("stores", args)?),
        Subject::Gateway => exit_code(program("gateway", args)?),
        Subject::All => exit_code(program("all", args)?),
        Subject::Peers => exit_code(program("peers", args)?),
        Subject::Console => exit_code(program("console", args)?),
        Subject::Queue => {
            let package = ["run", "--release", "-p", "onlyonce-client"];
            let mut command = cargo(&[&package[..], &["--example", "queue_rate"]].concat());
            command.arg("--").args(args);
            exit_code(command)
        }
        Subject::Crash => exit_code(program("crash", args)?),
        Subject::Python => overhead::run(Language::Python, args),
        Subject::Node => overhead::run(Language::Node, args),
        Subject::Scaling => exit_code(program("scaling", args)?),
    }
}

fn program(subject: &str, args: &[String]) -> Result<Command, Failure> {
    let program = cargo::optimised(&PACKAGES, PROGRAM)?
        .ok_or_else(|| Failure::new("the benchmarks do not build"))?;
    servers::install_missing(Command::new(&program).arg("missing"))?;
    let mut command = Command::new(program);
    command.arg(subject).args(args).current_dir(cargo::root());
    Ok(command)
}

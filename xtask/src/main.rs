//! The repository's own commands, run as `cargo xtask COMMAND`.
//!
//! Each command is one module that drives cargo the way a person would, so that a laptop and a
//! build server run the same checks and read the same output.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to the person at the terminal is what this program is for"
)]

mod bench;
mod cargo;
mod ci;
mod dist;
mod documents;
mod follow;
mod fuzz;
mod guarantees;
mod guides;
mod links;
mod mutants;
mod package;
mod publish;
mod requirements;
mod rules;
mod servers;
mod suite;
mod test;
mod tool;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::suite::Suite;

/// The checks and measurements of this repository
#[derive(Parser)]
#[command(bin_name = "cargo xtask", after_help = AFTER_HELP, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every test, then check that docs/audit/requirements.md tells the truth
    ///
    /// The databases that the tests talk to are installed if they are missing (Debian packages, as
    /// root or by sudo), started before the tests and stopped after them.
    ///
    /// An ignored test counts as failed. The last line reads `N passed, M failed`, where M counts
    /// failed tests, ignored tests and broken rows of docs/audit/requirements.md.
    Test {
        /// Handed to `cargo test`; a narrowed run skips the check of docs/audit/requirements.md
        #[arg(last = true, value_name = "CARGO TEST ARGS")]
        extra: Vec<String>,
    },
    /// Run all checks in order and stop at the first that fails; `test` comes last
    Ci,
    /// Run the simulator, optimised
    ///
    /// --seeds N     how many seeds to run
    /// --first S     the first of them; `--first S --seeds 1` replays one
    /// --threads T   how many run at a time
    /// --bug NAME    plant a known bug, which the simulator must then find
    /// --rotate      rotate the slot secret, among everything else
    /// --reconcile   look up what is in doubt, of whole operations and of durable steps
    #[command(verbatim_doc_comment)]
    Sim {
        /// Handed to the simulator as they are
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGS"
        )]
        args: Vec<String>,
    },
    /// Explore every order of events of the protocol within bounds, optimised
    ///
    /// Prints the states of each model, and every broken rule with the shortest way there; docs/model.md
    /// says what is explored. The tests explore the small bounds.
    ///
    /// --small       the bounds of the tests
    /// --planted     plant known bugs, which must then be found
    /// --only NAME   only the plans whose name contains this
    /// --threads T   how many explore at a time
    #[command(verbatim_doc_comment)]
    Model {
        /// Handed to the model as they are
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGS"
        )]
        args: Vec<String>,
    },
    /// Look for bytes that break something: each target under libFuzzer, guided by coverage
    ///
    /// The same targets run over fuzz/corpus in the ordinary tests. Exit code 1 says that something
    /// was found; it comes with the file, and how to replay it.
    Fuzz(fuzz::Asked),
    /// Change the code that decides, a little at a time, and see that a test fails
    ///
    /// What survives has no test, and is printed. Builds cargo-mutants into target/tools if it is not
    /// there. .cargo/mutants.toml lists changes that change nothing, with the reason. Exit code 1 says
    /// that something survived.
    Mutants(mutants::Asked),
    /// Measure the layer, the stores, the gateway and their peers, each against a reference
    ///
    /// Programs that measure, and servers, are installed if they are missing. Without a subject all
    /// of it is measured in 15 minutes, and the results are written to docs/benchmarks. The results
    /// of one subject are a table, and JSON in a file on request: `cargo xtask bench stores --json
    /// FILE`.
    Bench {
        /// What to measure
        #[arg(value_enum, default_value_t = bench::Subject::All)]
        subject: bench::Subject,
        /// Handed to the benchmark as they are; try `--help`
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGS"
        )]
        args: Vec<String>,
    },
    /// Break real gateways and their stores at random, and check what they did
    ///
    /// Servers and programs are installed if they are missing. Prints the faults injected, the
    /// operations and the violations; docs/chaos.md says what is checked. Partitions and full disks
    /// need root.
    ///
    /// --faults N --operations N   how much, over all rounds
    /// --stores A,B --only F,G     which stores, which faults
    /// --seed S                    where random choices come from
    /// --planted-bug[=KIND]        a store or servers with a bug, which must then be found
    #[command(verbatim_doc_comment)]
    Chaos {
        /// Use the programs that the tests built, not optimised
        #[arg(long)]
        dev: bool,
        /// Handed to the run as they are; try `--help`
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGS"
        )]
        args: Vec<String>,
    },
    /// Kill gateways, upstreams and handlers at every system call of a keyed request in turn
    ///
    /// Servers and programs are installed if they are missing. Each kill is followed by the process's
    /// restart and the client's retries. Prints the boundaries tried, the effects, the doubts and the
    /// violations; docs/settle.md says what is checked. Needs the right to trace processes.
    ///
    /// --kinds A,B --stores C,D   which kinds of upstreams and handlers, on which stores
    /// --sample N                 so many boundaries of each, drawn at random, instead of all
    /// --random N                 so many further rounds of each, with two kills at random moments
    /// --seed S                   where random choices come from
    /// --planted-bug NAME         a known bug, which must then be found
    #[command(verbatim_doc_comment)]
    Settle {
        /// Use the programs that the tests built, not optimised
        #[arg(long)]
        dev: bool,
        /// Handed to the run as they are; try `--help`
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGS"
        )]
        args: Vec<String>,
    },
    /// Build a package for another registry than crates.io, with the native part in it
    ///
    /// Written to target/packages. What builds it is installed into target/tools first.
    Package {
        /// Which package
        package: package::Language,
        /// Quickly instead of optimised
        #[arg(long)]
        dev: bool,
    },
    /// Check licences, banned crates and sources of all dependencies, by deny.toml
    ///
    /// Builds cargo-deny into target/tools if it is not there, which takes minutes.
    Deny,
    /// Make what users install: Debian package, tarball, OCI image, checksums
    ///
    /// All of it is in target/artifacts. What makes it is installed if it is missing (Debian packages). `dist python`
    /// and `dist node` make the package for that language instead, as `package` does.
    Dist(dist::Asked),
    /// Build the book of docs/book into target/book
    ///
    /// Builds mdBook into target/tools if it is not there, which takes minutes. `ci` checks the book's
    /// table of contents and every link without it.
    Book,
}

const AFTER_HELP: &str = "\
Examples:
  cargo xtask test                                every test, and docs/audit/requirements.md
  cargo xtask test -- -p onlyonce-core key::      the tests of one crate whose names contain key::
  cargo xtask test -- -- --nocapture              what follows a second `--` goes to the tests
  cargo xtask ci                                  what must pass before a change is merged
  cargo xtask sim --seeds 1000                    a quick look for trouble
  cargo xtask sim --first 4711 --seeds 1          replay one seed
  cargo xtask model                               every order of events within the large bounds
  cargo xtask fuzz                                every fuzz target for a minute
  cargo xtask fuzz key --replay FILE              one input again, without a fuzzer
  cargo xtask mutants entry --minutes 30          changes to one slot's atomic steps, for half an hour
  cargo xtask bench                               everything side by side, in 15 minutes
  cargo xtask bench layer                         what the tower layer costs
  cargo xtask bench stores --only file,redis      two stores against what they are built on
  cargo xtask bench python                        what a key costs in Python, beside others
  cargo xtask package python                      a wheel
  cargo xtask package node                        a tarball for npm
  cargo xtask chaos --faults 500 --operations 200000   half an hour of trouble
  cargo xtask settle --dev --sample 5             a few kills of each kind, in a minute
  cargo xtask dist                                packages, image and checksums in target/artifacts
  cargo xtask dist --profile dev --only deb --check   try the package under systemd, in two minutes

Exit code: 0 all good, 1 a check said no, 2 wrong usage or a check could not run.
`sim`, `model`, `bench`, `chaos` and `settle` exit with the code of what they ran.";

/// Why a command could not do its work; a check that ran and said no is not one of these.
struct Failure(String);

impl Failure {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Test { extra } => test::run(&extra).map(|tally| {
            println!("\n{tally}");
            verdict(tally.all_passed())
        }),
        Task::Ci => ci::run().map(verdict),
        Task::Sim { args } => cargo::sim(&args),
        Task::Model { args } => cargo::model(&args),
        Task::Fuzz(asked) => fuzz::run(&asked),
        Task::Mutants(asked) => mutants::run(&asked),
        Task::Bench { subject, args } => bench::run(subject, &args),
        Task::Chaos { dev, args } => Suite::Chaos.run(dev, &args),
        Task::Settle { dev, args } => Suite::Settle.run(dev, &args),
        Task::Dist(asked) => dist::run(&asked),
        Task::Package { package, dev: true } => package::run(package, package::Speed::Quick),
        Task::Package {
            package,
            dev: false,
        } => package::run(package, package::Speed::Shipped),
        Task::Deny => tool::deny(),
        Task::Book => tool::book(),
    };

    done.unwrap_or_else(|failure| {
        eprintln!("xtask: {}", failure.0);
        ExitCode::from(2)
    })
}

fn verdict(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

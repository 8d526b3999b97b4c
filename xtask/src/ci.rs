//! `cargo xtask ci`: all checks in order, the quick ones first, up to the first that fails.

use std::time::{Duration, Instant};

use crate::cargo::{cargo, packages, sim_command, status};
use crate::{Failure, guides, links, publish, rules, test};

/// A check, and the name under which it is reported. It returns false when the check said no.
type Stage = (&'static str, fn() -> Result<bool, Failure>);

const STAGES: [Stage; 10] = [
    ("format", format),
    ("profiles are data", rules::profiles_are_data),
    ("architecture is short", rules::architecture_is_short),
    ("guides", guides::show_what_is_tested),
    ("links", links::lead_somewhere),
    ("packages", publish::packages_are_complete),
    ("clippy", clippy),
    ("features", features),
    ("docs", docs),
    ("simulator", simulator),
];

/// Each of their features has to build alone.
const FEATURED: [&str; 5] = [
    "onlyonce",
    "onlyonce-core",
    "onlyonce-sql",
    "onlyonce-stores",
    "onlyonce-tower",
];
const SIM_SEEDS: &str = "20000";

/// Runs all stages and then the tests, whose closing line ends the output; true if all is well.
pub(crate) fn run() -> Result<bool, Failure> {
    for (name, stage) in STAGES {
        if !timed(name, stage)? {
            eprintln!("ci stopped at the stage: {name}");
            return Ok(false);
        }
    }

    let tally = timed("tests", || test::run(&[]))?;
    if !tally.all_passed() {
        eprintln!("ci stopped at the stage: tests");
    }
    println!("\n{tally}");
    Ok(tally.all_passed())
}

/// Runs one stage between its heading and its duration.
fn timed<T>(name: &str, stage: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    println!("\n=== {name} ===");
    let started = now();
    let result = stage().map_err(|failure| Failure(format!("stage {name}: {}", failure.0)));
    println!("--- {name}: {}", readable(now() - started));
    result
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a stage took is only shown, nothing depends on it"
)]
fn now() -> Instant {
    Instant::now()
}

fn readable(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds / 60 {
        0 => format!("{:.1} s", duration.as_secs_f64()),
        minutes => format!("{minutes} min {} s", seconds % 60),
    }
}

fn format() -> Result<bool, Failure> {
    succeeds(&["fmt", "--all", "--check"])
}

fn clippy() -> Result<bool, Failure> {
    let command = "clippy --workspace --all-targets --all-features -- -D warnings";
    succeeds(&command.split(' ').collect::<Vec<_>>())
}

fn features() -> Result<bool, Failure> {
    let packages = packages()?;
    for name in FEATURED {
        let package = packages.iter().find(|package| package.name == name);
        let package = package.ok_or_else(|| Failure::new(format!("no package {name}")))?;
        let bare = ["check", "-p", name, "--no-default-features"];
        println!("{name}, no features");
        if !succeeds(&bare)? {
            return Ok(false);
        }
        for feature in &package.features {
            println!("{name}, only {feature}");
            if !succeeds(&[&bare[..], &["--features", feature]].concat())? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn docs() -> Result<bool, Failure> {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--all-features"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    Ok(status(&mut command)?.success())
}

fn simulator() -> Result<bool, Failure> {
    Ok(status(&mut sim_command(&["--seeds", SIM_SEEDS]))?.success())
}

fn succeeds(args: &[&str]) -> Result<bool, Failure> {
    Ok(status(&mut cargo(args))?.success())
}

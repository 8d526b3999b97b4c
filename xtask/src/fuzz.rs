//! `cargo xtask fuzz`: each target under libFuzzer for a while, guided by coverage, on the stable
//! compiler; what it does with `--cfg fuzzing` is what `cargo fuzz run TARGET` does too.

#[cfg(test)]
mod tests;

mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;

use crate::Failure;
use crate::cargo::{self, cargo, exit_code, root, status, stdout};

use self::watch::Watched;

const PACKAGE: &str = "onlyonce-fuzz";
const TARGETS: &str = "fuzz/fuzz_targets";
const CORPUS: &str = "fuzz/corpus";
/// Where everything else goes: builds, what is learnt on the way, what is found.
const SCRATCH: &str = "target/fuzz";
/// What makes libFuzzer see where an input goes; without a sanitizer, which needs a nightly.
const RUSTFLAGS: [&str; 6] = [
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
/// Inputs no longer than this: what is long is slow, and finds no more.
const INPUT_BYTES_MAX: u32 = 4096;
/// An input that takes longer than this is reported like one that panics.
const INPUT_SECONDS_MAX: u32 = 10;
const MEMORY_MEGABYTES_MAX: u32 = 2048;

/// Which targets, for how long
#[derive(Args)]
pub(crate) struct Asked {
    /// Which targets to run; all unless named
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// How long each runs
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Run one target on this file alone, without a fuzzer
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
}

pub(crate) fn run(asked: &Asked) -> Result<ExitCode, Failure> {
    let targets = chosen(&asked.targets, &all()?)?;
    match (&asked.replay, &targets[..]) {
        (Some(file), [target]) => replay(target, file),
        (Some(_), _) => Err(Failure::new(
            "a file is replayed by one target: cargo xtask fuzz TARGET --replay FILE",
        )),
        (None, targets) => fuzz(targets, asked.seconds),
    }
}

/// The targets there are.
fn all() -> Result<Vec<String>, Failure> {
    let cannot = |error| Failure::new(format!("cannot read {TARGETS}: {error}"));
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join(TARGETS)).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        names.extend(
            name.to_str()
                .and_then(|name| name.strip_suffix(".rs"))
                .map(str::to_owned),
        );
    }
    names.sort();
    Ok(names)
}

fn chosen(wanted: &[String], all: &[String]) -> Result<Vec<String>, Failure> {
    if wanted.is_empty() {
        return Ok(all.to_vec());
    }
    match wanted.iter().find(|name| !all.contains(name)) {
        Some(name) => {
            let all = all.join(", ");
            Err(Failure::new(format!(
                "there is no target {name}; there are {all}"
            )))
        }
        None => Ok(wanted.to_vec()),
    }
}

/// An ordinary build does, and is there once the tests were built: what it says of a panic is easier
/// to read.
fn replay(target: &str, file: &Path) -> Result<ExitCode, Failure> {
    let file = fs::canonicalize(file)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", file.display())))?;
    let program = cargo::as_tested(&[target], target)?;
    let program = program.ok_or_else(|| Failure::new("the target does not build"))?;
    let mut command = Command::new(program);
    command.arg(file);
    exit_code(command)
}

/// Runs one target after the other, and says what came of each.
fn fuzz(targets: &[String], seconds: u32) -> Result<ExitCode, Failure> {
    let programs = build(targets)?;
    let mut found = Vec::new();
    for target in targets {
        found.push((target, one(&programs.join(target), target, seconds)?));
    }

    println!(
        "\n{:<8} {:>12} {:>9} {:>7}  found",
        "target", "executions", "a second", "edges"
    );
    for (target, watched) in &found {
        println!("{target:<8} {watched}");
    }
    for (target, watched) in &found {
        if let Some(file) = &watched.found {
            let file = file.strip_prefix(root()).unwrap_or(file).display();
            println!("\n{target}: {}", watched.why());
            println!("replay it: cargo xtask fuzz {target} --replay {file}");
            println!("once it holds, keep it in {CORPUS}/{target}");
        }
    }
    let is_clean = found.iter().all(|(_, watched)| watched.is_clean());
    Ok(crate::verdict(is_clean))
}

/// Builds the targets for libFuzzer; gives the folder of their programs.
fn build(targets: &[String]) -> Result<PathBuf, Failure> {
    let host = host()?;
    let mut build = cargo(&["build", "--profile", "fuzz", "-p", PACKAGE]);
    // With a target named, build scripts and macros are left alone.
    build.args(["--target", &host, "--target-dir", SCRATCH]);
    for target in targets {
        build.args(["--bin", target]);
    }
    build.env("RUSTFLAGS", RUSTFLAGS.join(" "));
    if status(&mut build)?.success() {
        Ok(root().join(SCRATCH).join(host).join("fuzz"))
    } else {
        Err(Failure::new(
            "the targets do not build; libFuzzer needs a C++ compiler",
        ))
    }
}

fn host() -> Result<String, Failure> {
    let said = stdout(Command::new("rustc").arg("-vV").current_dir(root()))?;
    let said = said.ok_or_else(|| Failure::new("rustc -vV failed"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| Failure::new("rustc -vV does not name a host"))
}

/// Runs one target. What it learns is kept from run to run, beside the corpus in the repository.
fn one(program: &Path, target: &str, seconds: u32) -> Result<Watched, Failure> {
    let scratch = root().join(SCRATCH);
    let (learnt, found) = (
        scratch.join("learnt").join(target),
        scratch.join("found").join(target),
    );
    for folder in [&learnt, &found] {
        fs::create_dir_all(folder)
            .map_err(|error| Failure::new(format!("cannot make {}: {error}", folder.display())))?;
    }
    let mut command = Command::new(program);
    command
        .args([learnt, root().join(CORPUS).join(target)])
        .arg(format!("-artifact_prefix={}/", found.display()))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MEGABYTES_MAX}"))
        .arg("-print_final_stats=1")
        .env("RUST_BACKTRACE", "0")
        .current_dir(root());
    println!("\n=== {target}: {seconds} s ===");
    watch::watch(command)
}

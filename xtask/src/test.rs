//! `cargo xtask test`: every test of the workspace, and the promises of docs/audit/requirements.md,
//! docs/audit/documents.md, docs/guarantees.md and docs/security.md.
//!
//! Cargo runs the tests as usual and its output is passed on as it comes; we only read along.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::cargo::{self, Executables};
use crate::follow::{Findings, Follower, Outcomes};
use crate::requirements::Problem;
use crate::servers::Servers;
use crate::{Failure, documents, guarantees, package, requirements};

const REQUIREMENTS: &str = "docs/audit/requirements.md";
const DOCUMENTS: &str = "docs/audit/documents.md";
const GUARANTEES: &str = "docs/guarantees.md";
const SECURITY: &str = "docs/security.md";
const CHUNK_BYTES: usize = 8 * 1024;

/// How a run ended. Its text is the run's closing line.
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    pub(crate) fn all_passed(&self) -> bool {
        self.failed == 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// Runs the tests that `extra` selects, or all, and prints what failed.
pub(crate) fn run(extra: &[String]) -> Result<Tally, Failure> {
    let is_whole = extra.is_empty();
    // First: what cargo builds for the tests then has its own features again.
    let packages = package::for_tests(extra)?;
    let executables = if is_whole {
        let Some(executables) = cargo::test_executables()? else {
            eprintln!("failed: the tests do not build");
            return Ok(Tally {
                passed: 0,
                failed: 1,
            });
        };
        executables
    } else {
        // A part of the tests cites nothing, so that their packages need not be known.
        Executables::new()
    };

    let servers = Servers::start_for(extra)?;
    let (findings, status) = follow(&test_args(extra), &executables, &servers, &packages)?;
    drop(servers);
    let mut failures = failures(&findings, status);
    if is_whole {
        let outcomes = &findings.outcomes;
        failures.extend(broken_promises(REQUIREMENTS, requirements::check, outcomes));
        failures.extend(broken_promises(DOCUMENTS, documents::check, outcomes));
        failures.extend(broken_promises(GUARANTEES, guarantees::check, outcomes));
        failures.extend(broken_promises(SECURITY, guarantees::check, outcomes));
    }

    println!();
    for failure in &failures {
        println!("{failure}");
    }
    if !is_whole {
        println!(
            "{REQUIREMENTS}, {DOCUMENTS}, {GUARANTEES} and {SECURITY} were not checked: not every \
             test ran"
        );
    }
    Ok(Tally {
        passed: findings.passed,
        failed: failures.len(),
    })
}

fn test_args(extra: &[String]) -> Vec<&str> {
    let mut args = vec!["test", "--all-features", "--no-fail-fast"];
    if !names_a_package(extra) {
        args.push("--workspace");
    }
    args.extend(extra.iter().map(String::as_str));
    args
}

/// Cargo ignores `-p` beside `--workspace`.
fn names_a_package(extra: &[String]) -> bool {
    extra
        .iter()
        .take_while(|arg| *arg != "--")
        .any(|arg| arg.starts_with("-p") || arg.starts_with("--package"))
}

/// Runs cargo, passes its output on at once and reads along.
fn follow(
    args: &[&str],
    executables: &Executables,
    servers: &Servers,
    packages: &[(&str, PathBuf)],
) -> Result<(Findings, ExitStatus), Failure> {
    let lost = |error: io::Error| Failure::new(format!("lost the output of cargo test: {error}"));
    let mut command = cargo::cargo(args);
    // Colours would stand between the words we read.
    command.env("CARGO_TERM_COLOR", "never");
    command.envs(servers.variables());
    command.envs(packages.iter().map(|(name, path)| (name, path)));
    let (mut child, mut output) = cargo::merged(command)?;

    let mut follower = Follower::new(executables);
    let mut line = Vec::new();
    let mut chunk = [0; CHUNK_BYTES];
    let mut terminal = io::stdout().lock();
    loop {
        let length = output.read(&mut chunk).map_err(lost)?;
        if length == 0 {
            break;
        }
        let chunk = &chunk[..length];
        terminal.write_all(chunk).map_err(lost)?;
        terminal.flush().map_err(lost)?;

        let mut parts = chunk.split(|byte| *byte == b'\n');
        line.extend(parts.next().unwrap_or_default());
        for part in parts {
            follower.line(String::from_utf8_lossy(&line).trim_end_matches('\r'));
            line.clear();
            line.extend(part);
        }
    }
    follower.line(&String::from_utf8_lossy(&line));

    let status = child.wait().map_err(lost)?;
    Ok((follower.finish(), status))
}

fn failures(findings: &Findings, status: ExitStatus) -> Vec<String> {
    let mut failures = findings.failures.clone();
    if failures.is_empty() && !status.success() {
        failures.push(format!("failed: cargo test itself, {status}"));
    }
    if failures.is_empty() && findings.passed == 0 {
        failures.push("failed: no test ran".to_owned());
    }
    failures
}

/// What a file promises that this run did not keep.
fn broken_promises(
    file: &str,
    check: fn(&str, &Outcomes) -> Vec<Problem>,
    outcomes: &Outcomes,
) -> Vec<String> {
    match fs::read_to_string(cargo::root().join(file)) {
        Ok(text) => check(&text, outcomes)
            .into_iter()
            .map(|problem| format!("{file}:{problem}"))
            .collect(),
        Err(error) => vec![format!("{file}: cannot be read: {error}")],
    }
}

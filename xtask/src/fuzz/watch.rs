//! Reads along what libFuzzer writes: how far it is, and what it found.

use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Command;

use crate::Failure;
use crate::cargo::merged;

/// What came of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Watched {
    executions: u64,
    a_second: u64,
    /// Places in the code that were reached.
    edges: u64,
    /// The input for which something does not hold.
    pub(crate) found: Option<PathBuf>,
    /// What was said about it.
    said: Vec<String>,
    /// Whether that was all.
    is_said: bool,
    is_ended_well: bool,
}

/// Lines kept of what a panic says.
const SAID_LINES_MAX: usize = 8;

/// Runs a fuzzer to its end, and shows how far it is.
pub(crate) fn watch(command: Command) -> Result<Watched, Failure> {
    let lost = |error| Failure::new(format!("lost the output of the fuzzer: {error}"));
    let (mut child, output) = merged(command)?;
    let mut watched = Watched::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.map_err(lost)?;
        let line = String::from_utf8_lossy(&line);
        watched.line(&line);
        // Of all it writes, what comes ever less often.
        if line.starts_with('#') && (line.contains("INITED") || line.contains("pulse")) {
            println!("{} executions, {} edges", watched.executions, watched.edges);
        }
    }
    watched.is_ended_well = child.wait().map_err(lost)?.success();
    Ok(watched)
}

impl Watched {
    pub(super) fn line(&mut self, line: &str) {
        let line = line.trim_end();
        let stat = |name: &str| line.strip_prefix(name)?.trim().parse().ok();
        if let Some(executions) = stat("stat::number_of_executed_units:") {
            self.executions = executions;
        } else if let Some(a_second) = stat("stat::average_exec_per_sec:") {
            self.a_second = a_second;
        } else if let Some((_, file)) = line.split_once("Test unit written to ") {
            self.found = Some(file.into());
        } else if line.starts_with('#') {
            self.progress(line);
        } else if is_about_a_find(line) && self.said.is_empty() {
            self.said.push(line.to_owned());
        } else if self.is_said || line.starts_with("==") || line.starts_with("note: run with") {
            // What libFuzzer adds to a panic tells nothing more.
            self.is_said = !self.said.is_empty();
        } else if !self.said.is_empty() && self.said.len() < SAID_LINES_MAX {
            self.said.push(line.to_owned());
        }
    }

    /// `#1234  NEW    cov: 56 ft: 78 corp: 9/10b lim: 4 exec/s: 617 rss: 40Mb L: 2/4 MS: 1 CopyPart-`
    fn progress(&mut self, line: &str) {
        let mut words = line[1..].split_whitespace();
        if let Some(executions) = words.next().and_then(|word| word.parse().ok()) {
            self.executions = executions;
        }
        let words: Vec<_> = words.collect();
        for pair in words.windows(2) {
            match (pair[0], pair[1].parse()) {
                ("cov:", Ok(edges)) => self.edges = edges,
                ("exec/s:", Ok(a_second)) => self.a_second = a_second,
                _ => {}
            }
        }
    }

    /// Whether it ran to its end and found nothing.
    pub(crate) fn is_clean(&self) -> bool {
        self.is_ended_well && self.found.is_none()
    }

    /// What was said about the find.
    pub(crate) fn why(&self) -> String {
        self.said.join("\n")
    }
}

/// A panic, or libFuzzer's own words for memory and time.
fn is_about_a_find(line: &str) -> bool {
    (line.starts_with("thread '") && line.contains(" panicked at "))
        || line.contains("ERROR: libFuzzer")
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (executions, a_second, edges) = (self.executions, self.a_second, self.edges);
        write!(f, "{executions:>12} {a_second:>9} {edges:>7}  ")?;
        match &self.found {
            Some(file) => write!(f, "{}", file.display()),
            None if self.is_ended_well => f.write_str("nothing"),
            None => f.write_str("it broke off"),
        }
    }
}

//! Follows the output of `cargo test` line by line and learns what became of each test.
//!
//! The names come from the `test NAME ... ok` lines, the numbers from the `test result:` lines:
//! a test that writes past the harness can tear the former, never the latter.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::cargo::Executables;

/// What became of one test; the worse is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Passed,
    Ignored,
    Failed,
}

/// Outcomes by full name, `package::path::name` or `package::target::path::name`.
pub(crate) type Outcomes = BTreeMap<String, Outcome>;

/// What a whole run of `cargo test` showed.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The tests that a row of docs/audit/requirements.md may cite: all but doc tests.
    pub(crate) outcomes: Outcomes,
    pub(crate) passed: usize,
    /// One line for each test that failed or was ignored and each suite that broke off.
    pub(crate) failures: Vec<String>,
}

/// Reads the output of one `cargo test`.
pub(crate) struct Follower<'a> {
    executables: &'a Executables,
    suite: Suite,
    findings: Findings,
}

/// The executable, or the doc tests of a crate, whose output is being read.
#[derive(Default)]
struct Suite {
    prefix: String,
    is_doc: bool,
    /// Set by `running N tests`, cleared by `test result:`; left set, the suite broke off.
    is_running: bool,
    /// False below `failures:`, where the harness repeats what tests wrote.
    is_listing: bool,
    seen: Vec<(String, Outcome)>,
    /// Names whose outcome was torn off by other output.
    torn: Vec<String>,
}

/// The numbers of a `test result:` line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl<'a> Follower<'a> {
    pub(crate) fn new(executables: &'a Executables) -> Self {
        Self {
            executables,
            suite: Suite::default(),
            findings: Findings::default(),
        }
    }

    pub(crate) fn line(&mut self, line: &str) {
        if let Some(suite) = self.header(line) {
            self.leave_suite();
            self.suite = suite;
        } else if is_start(line) {
            self.suite.is_running = true;
            self.suite.is_listing = true;
        } else if let Some(totals) = totals(line) {
            self.result(&totals);
        } else if line == "failures:" || line == "successes:" {
            self.suite.is_listing = false;
        } else if self.suite.is_listing {
            self.suite.test(line);
        }
    }

    pub(crate) fn finish(mut self) -> Findings {
        self.leave_suite();
        self.findings
    }

    fn header(&self, line: &str) -> Option<Suite> {
        let line = line.trim_start();
        if let Some(name) = line.strip_prefix("Doc-tests ") {
            return Some(Suite {
                prefix: format!("{name} (doc test)"),
                is_doc: true,
                ..Suite::default()
            });
        }

        let path = line.strip_prefix("Running ")?.strip_suffix(')')?;
        let (_, path) = path.rsplit_once('(')?;
        let file = path.rsplit(['/', '\\']).next()?;
        let without_hash = || file.rsplit_once('-').map_or(file, |(name, _)| name);
        Some(Suite {
            prefix: match self.executables.get(file) {
                Some(prefix) => prefix.clone(),
                None => without_hash().to_owned(),
            },
            ..Suite::default()
        })
    }

    /// Takes over what the suite showed. Doc tests may come in several such parts.
    fn result(&mut self, totals: &Totals) {
        let suite = &mut self.suite;
        suite.is_running = false;
        suite.is_listing = false;

        let lost = suite.lost(totals);
        let torn = suite.torn.drain(..);
        if lost == 0 {
            // All that failed or was ignored is accounted for, so these passed.
            suite.seen.extend(torn.map(|name| (name, Outcome::Passed)));
        }

        self.findings.passed += totals.passed;
        for _ in 0..lost {
            let what = format!("failed or ignored: a test of {}, name lost", suite.prefix);
            self.findings.failures.push(what);
        }
        for (name, outcome) in suite.seen.drain(..) {
            let name = format!("{}::{name}", suite.prefix);
            match outcome {
                Outcome::Passed => {}
                Outcome::Ignored => self.findings.failures.push(format!("ignored: {name}")),
                Outcome::Failed => self.findings.failures.push(format!("failed: {name}")),
            }
            if !suite.is_doc {
                // A library and a program of one package can each have a test of this name.
                let entry = self.findings.outcomes.entry(name).or_insert(outcome);
                *entry = outcome.max(*entry);
            }
        }
    }

    fn leave_suite(&mut self) {
        if self.suite.is_running {
            let what = format!("broke off before its result: {}", self.suite.prefix);
            self.findings.failures.push(what);
        }
    }
}

impl Suite {
    fn test(&mut self, line: &str) {
        let Some((before, status)) = line.rsplit_once(" ... ") else {
            return;
        };
        let outcome = outcome(status);
        let name = match (before.strip_prefix("test "), outcome) {
            (Some(name), _) => name,
            // Output without a line end came first; only a clear outcome makes this a test.
            (None, Some(_)) => before.rsplit_once("test ").map_or("", |(_, name)| name),
            (None, None) => return,
        };
        let name = name.strip_suffix(" - should panic").unwrap_or(name);
        if name.is_empty() || (!self.is_doc && name.contains(' ')) {
            return;
        }
        match outcome {
            Some(outcome) => self.seen.push((name.to_owned(), outcome)),
            None => self.torn.push(name.to_owned()),
        }
    }

    /// How many tests failed or were ignored by the numbers, but not by any line seen.
    fn lost(&self, totals: &Totals) -> usize {
        let bad = |(_, outcome): &&(String, Outcome)| *outcome != Outcome::Passed;
        let seen = self.seen.iter().filter(bad).count();
        (totals.failed + totals.ignored).saturating_sub(seen)
    }
}

fn is_start(line: &str) -> bool {
    let Some(count) = line.strip_prefix("running ") else {
        return false;
    };
    matches!(count.split_once(' '), Some((count, "test" | "tests")) if count.parse::<usize>().is_ok())
}

fn outcome(status: &str) -> Option<Outcome> {
    // `ignored, REASON`, `ok <0.01s>`, `FAILED (time limit exceeded)`.
    match status.split([' ', ',']).next() {
        Some("ok") => Some(Outcome::Passed),
        Some("ignored") => Some(Outcome::Ignored),
        Some("FAILED") => Some(Outcome::Failed),
        _ => None,
    }
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out`.
fn totals(line: &str) -> Option<Totals> {
    let (_, result) = line.split_once("test result: ")?;
    let (_, counts) = result.split_once(". ")?;
    let mut totals = Totals::default();
    for count in counts.split("; ") {
        match count.split_once(' ')? {
            (number, "passed") => totals.passed = number.parse().ok()?,
            (number, "failed") => totals.failed = number.parse().ok()?,
            (number, "ignored") => totals.ignored = number.parse().ok()?,
            _ => {}
        }
    }
    Some(totals)
}

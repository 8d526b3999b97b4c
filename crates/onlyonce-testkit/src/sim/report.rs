//! What comes out of a run: counts and a history, or the rule that was broken.

use std::fmt;

use super::clock::Ms;
use super::history::History;
use super::kinds::{Fault, Heard, Seen};

/// What happened in one run, or in several added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Runs added up.
    pub seeds: u64,
    /// Calls that clients made.
    pub calls: u64,
    /// Verbs that stores carried out.
    pub verbs: u64,
    faults: [u64; Fault::ALL.len()],
    heard: [u64; Heard::ALL.len()],
    seen: [u64; Seen::ALL.len()],
    /// What happened, of a single run.
    pub history: History,
}

impl Report {
    /// How often `fault` happened.
    pub fn faults(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    /// How many callers heard `heard`.
    pub fn heard(&self, heard: Heard) -> u64 {
        self.heard[heard as usize]
    }

    /// How often `seen` was seen.
    pub fn seen(&self, seen: Seen) -> u64 {
        self.seen[seen as usize]
    }

    /// Adds the counts of another run; its history is dropped.
    pub fn add(&mut self, other: &Self) {
        fn sum(into: &mut [u64], from: &[u64]) {
            into.iter_mut().zip(from).for_each(|(a, b)| *a += b);
        }
        self.seeds += other.seeds;
        self.calls += other.calls;
        self.verbs += other.verbs;
        sum(&mut self.faults, &other.faults);
        sum(&mut self.heard, &other.heard);
        sum(&mut self.seen, &other.seen);
    }

    pub(super) fn count_fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    pub(super) fn count_heard(&mut self, heard: Heard) {
        self.heard[heard as usize] += 1;
    }

    pub(super) fn count_seen(&mut self, seen: Seen) {
        self.seen[seen as usize] += 1;
    }
}

/// The counts, one kind a line.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} seeds, {} calls, {} verbs",
            self.seeds, self.calls, self.verbs
        )?;
        writeln!(f, "faults:")?;
        for &it in Fault::ALL {
            writeln!(f, "  {:<22} {:>10}", it.name(), self.faults(it))?;
        }
        writeln!(f, "answers:")?;
        for &it in Heard::ALL {
            writeln!(f, "  {:<22} {:>10}", it.name(), self.heard(it))?;
        }
        writeln!(f, "seen:")?;
        for &it in Seen::ALL {
            writeln!(f, "  {:<22} {:>10}", it.name(), self.seen(it))?;
        }
        Ok(())
    }
}

/// A run in which something happened that must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed that shows it.
    pub seed: u64,
    /// The rule that was broken, in words.
    pub rule: &'static str,
    /// How.
    pub detail: String,
    /// Everything up to that moment.
    pub history: History,
    pub(super) at: Ms,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.history)?;
        writeln!(
            f,
            "seed {} at {} ms broke the rule: {}",
            self.seed, self.at, self.rule
        )?;
        write!(f, "{}", self.detail)
    }
}

impl std::error::Error for Violation {}

/// A rule that was broken, before anyone knows in which run.
pub(super) struct Broken {
    pub(super) rule: &'static str,
    pub(super) detail: String,
}

/// Whether a rule held.
pub(super) type Checked = Result<(), Broken>;

/// Holds if `condition` does; the detail is only worded when it does not.
pub(super) fn require(
    condition: bool,
    rule: &'static str,
    detail: impl FnOnce() -> String,
) -> Checked {
    if condition {
        return Ok(());
    }
    Err(Broken {
        rule,
        detail: detail(),
    })
}

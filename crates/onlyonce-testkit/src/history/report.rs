//! What comes out of a history: counts, and the rules that were broken.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Violations told in full; more are only counted.
const TOLD_MAX: usize = 20;

/// What a history shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// From the first event to the last.
    pub lasted: Duration,
    /// Calls that were made.
    pub calls: u64,
    /// Handlers that started.
    pub runs: u64,
    /// Verbs that were sent to the store.
    pub verbs: u64,
    /// Of these, verbs that the store failed or never answered: what they did is unknown.
    pub verbs_in_doubt: u64,
    /// Lapsed claims that were taken over.
    pub take_overs: u64,
    /// Calls that nobody answered: their process was killed, or they hung up.
    pub unanswered: u64,
    /// Handlers of which no end is known: their process was killed.
    pub endless: u64,
    /// How far the workers' wall clocks were apart.
    pub clocks_apart: Duration,
    /// What went wrong on purpose, how often.
    pub faults: BTreeMap<&'static str, u64>,
    /// What callers heard, how often.
    pub heard: BTreeMap<String, u64>,
    /// How many rules were broken, all told.
    pub broken: u64,
    /// The first of them.
    pub violations: Vec<Violation>,
    /// Where the logs are, if they were kept.
    pub logs: Option<PathBuf>,
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which, in words.
    pub rule: &'static str,
    /// For which key.
    pub key: u32,
    /// How.
    pub detail: String,
    /// The events that show it.
    pub events: Vec<String>,
}

impl Report {
    /// Whether no rule was broken.
    pub fn is_clean(&self) -> bool {
        self.broken == 0
    }

    /// Whether this rule was broken, among those told.
    pub fn breaks(&self, rule: &str) -> bool {
        self.violations.iter().any(|it| it.rule == rule)
    }

    /// Calls a second.
    pub fn calls_per_second(&self) -> f64 {
        self.calls as f64 / self.lasted.as_secs_f64().max(f64::EPSILON)
    }

    /// Adds what another history shows.
    pub fn add(&mut self, other: &Self) {
        self.lasted += other.lasted;
        self.calls += other.calls;
        self.runs += other.runs;
        self.verbs += other.verbs;
        self.verbs_in_doubt += other.verbs_in_doubt;
        self.take_overs += other.take_overs;
        self.unanswered += other.unanswered;
        self.endless += other.endless;
        self.clocks_apart = self.clocks_apart.max(other.clocks_apart);
        for (fault, count) in &other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        for (heard, count) in &other.heard {
            *self.heard.entry(heard.clone()).or_default() += count;
        }
        for violation in &other.violations {
            self.tell(violation.clone());
        }
        self.broken += other.broken - other.violations.len() as u64;
        self.logs = other.logs.clone().or_else(|| self.logs.take());
    }

    pub(crate) fn tell(&mut self, violation: Violation) {
        self.broken += 1;
        // One of each rule is worth more than many of one.
        if self.violations.len() < TOLD_MAX || !self.breaks(violation.rule) {
            self.violations.push(violation);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} calls, {} runs, {} verbs ({} in doubt), {} take-overs in {:.1} s: {:.0} calls/s",
            self.calls,
            self.runs,
            self.verbs,
            self.verbs_in_doubt,
            self.take_overs,
            self.lasted.as_secs_f64(),
            self.calls_per_second(),
        )?;
        writeln!(
            f,
            "{} calls without an answer, {} runs without a known end",
            self.unanswered, self.endless
        )?;
        writeln!(
            f,
            "wall clocks {:.1} s apart",
            self.clocks_apart.as_secs_f64()
        )?;
        writeln!(f, "faults:")?;
        for (fault, count) in &self.faults {
            writeln!(f, "  {fault:<28} {count:>8}")?;
        }
        writeln!(f, "heard:")?;
        for (heard, count) in &self.heard {
            writeln!(f, "  {heard:<28} {count:>8}")?;
        }
        write!(f, "broken rules: {}", self.broken)?;
        for violation in &self.violations {
            write!(f, "\n\n{violation}")?;
        }
        match &self.logs {
            Some(logs) => write!(f, "\nlogs: {}", logs.display()),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "key {} broke the rule: {}", self.key, self.rule)?;
        write!(f, "  {}", self.detail)?;
        for event in &self.events {
            write!(f, "\n  {event}")?;
        }
        Ok(())
    }
}

//! What a run came to.

use std::fmt;
use std::time::Duration;

use crate::judge::Story;
use crate::plan::Plan;

const VIOLATIONS_SHOWN_MAX: usize = 5;

/// One plan.
pub(crate) struct Row {
    name: String,
    /// System calls of a request that is left alone.
    pub(crate) boundaries: usize,
    /// Boundaries at which a process was killed.
    pub(crate) tried: usize,
    /// Operations with kills at random moments instead.
    pub(crate) random: usize,
    /// Boundaries that the request did not come to that time, and those of threads that began with it.
    pub(crate) missed: usize,
    effects: usize,
    /// Outcomes that were held for an operator.
    doubts: usize,
    pub(crate) violations: Vec<String>,
    pub(crate) lasted: Duration,
}

/// All plans of a run.
pub(crate) struct Report(pub(crate) Vec<Row>);

impl Row {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            name: plan.name(),
            boundaries: 0,
            tried: 0,
            random: 0,
            missed: 0,
            effects: 0,
            doubts: 0,
            violations: Vec::new(),
            lasted: Duration::ZERO,
        }
    }

    pub(crate) fn note(&mut self, story: &Story) {
        self.effects += story.made().count();
        self.doubts += usize::from(story.hold.is_some());
    }
}

impl Report {
    pub(crate) fn violations(&self) -> usize {
        self.0.iter().map(|row| row.violations.len()).sum()
    }

    fn tried(&self) -> usize {
        self.0.iter().map(|row| row.tried).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:26} {:>10} {:>6} {:>11} {:>9} {:>8} {:>7} {:>11} {:>8}",
            "plan",
            "boundaries",
            "tried",
            "not reached",
            "at random",
            "effects",
            "doubts",
            "violations",
            "lasted"
        )?;
        for row in &self.0 {
            writeln!(
                f,
                "{:26} {:>10} {:>6} {:>11} {:>9} {:>8} {:>7} {:>11} {:>6} s",
                row.name,
                row.boundaries,
                row.tried,
                row.missed,
                row.random,
                row.effects,
                row.doubts,
                row.violations.len(),
                row.lasted.as_secs()
            )?;
        }
        let effects: usize = self.0.iter().map(|row| row.effects).sum();
        let random: usize = self.0.iter().map(|row| row.random).sum();
        let doubts: usize = self.0.iter().map(|row| row.doubts).sum();
        write!(
            f,
            "{} boundaries tried, {random} rounds at random, {effects} effects, {doubts} doubts, \
             {} violations",
            self.tried(),
            self.violations()
        )?;
        for row in &self.0 {
            for violation in row.violations.iter().take(VIOLATIONS_SHOWN_MAX) {
                write!(f, "\n  {}: {violation}", row.name)?;
            }
        }
        Ok(())
    }
}

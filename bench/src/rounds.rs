//! Two sides that take turns, and the medians of what they did.

use std::time::Duration;

use crate::report::{Goal, Row, Unit};

/// What one side did in one round.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sample {
    /// Operations a second.
    pub(crate) rate: f64,
    /// Operations a second of CPU time, where it is known.
    pub(crate) per_cpu: Option<f64>,
    /// The time that 99 of 100 stay below, in microseconds, where it is known.
    pub(crate) p99: Option<f64>,
    pub(crate) p50: Option<f64>,
    pub(crate) p999: Option<f64>,
}

impl Sample {
    /// Of operations that took so many microseconds each, and all of them together so long.
    pub(crate) fn of(mut micros: Vec<u32>, time: Duration) -> Self {
        micros.sort_unstable();
        let last = micros.len().saturating_sub(1);
        let below = |thousandth: usize| {
            micros
                .get(last * thousandth / 1000)
                .map(|it| f64::from(*it))
        };
        Self {
            rate: micros.len() as f64 / time.as_secs_f64(),
            per_cpu: None,
            p50: below(500),
            p99: below(990),
            p999: below(999),
        }
    }
}

/// The rounds of both sides, pair by pair.
#[derive(Default)]
pub(crate) struct Rounds {
    ours: Vec<Sample>,
    base: Vec<Sample>,
}

impl Rounds {
    pub(crate) const fn new() -> Self {
        Self {
            ours: Vec::new(),
            base: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, ours: Sample, base: Sample) {
        self.ours.push(ours);
        self.base.push(base);
    }

    /// A round of a side that has no other.
    pub(crate) fn add_alone(&mut self, ours: Sample) {
        self.ours.push(ours);
    }

    pub(crate) fn rate(&self, subject: &'static str, case: &str, goal: Option<Goal>) -> Row {
        let rate = |sample: &Sample| Some(sample.rate);
        self.row(subject, case, ("rate", Unit::PerSecond), rate, goal)
    }

    pub(crate) fn per_cpu(&self, subject: &'static str, case: &str, goal: Option<Goal>) -> Row {
        let per_cpu = |sample: &Sample| sample.per_cpu;
        let what = ("rate a CPU second", Unit::PerSecond);
        self.row(subject, case, what, per_cpu, goal)
    }

    pub(crate) fn p99(&self, subject: &'static str, case: &str, goal: Option<Goal>) -> Row {
        let p99 = |sample: &Sample| sample.p99;
        self.row(subject, case, ("p99", Unit::Micros), p99, goal)
    }

    pub(crate) fn p50(&self, subject: &'static str, case: &str) -> Row {
        let p50 = |sample: &Sample| sample.p50;
        self.row(subject, case, ("p50", Unit::Micros), p50, None)
    }

    pub(crate) fn p999(&self, subject: &'static str, case: &str) -> Row {
        let p999 = |sample: &Sample| sample.p999;
        self.row(subject, case, ("p99.9", Unit::Micros), p999, None)
    }

    /// How long an operation takes, of those that follow each other.
    pub(crate) fn time(&self, subject: &'static str, case: &str) -> Row {
        let time = |sample: &Sample| Some(1e6 / sample.rate);
        self.row(subject, case, ("time a call", Unit::Micros), time, None)
    }

    /// The CPU time of an operation.
    pub(crate) fn cpu(&self, subject: &'static str, case: &str) -> Row {
        let cpu = |sample: &Sample| sample.per_cpu.map(|rate| 1e6 / rate);
        self.row(subject, case, ("CPU a request", Unit::Micros), cpu, None)
    }

    fn row(
        &self,
        subject: &'static str,
        case: &str,
        (what, unit): (&'static str, Unit),
        of: impl Fn(&Sample) -> Option<f64>,
        goal: Option<Goal>,
    ) -> Row {
        let ours = median(self.ours.iter().filter_map(&of).collect());
        let base: Vec<_> = self.base.iter().filter_map(&of).collect();
        let row = Row::alone(subject, case, what, (ours, unit), goal);
        if base.is_empty() {
            let all: Vec<_> = self.ours.iter().filter_map(&of).collect();
            return row.spread(&all);
        }
        let pairs = self.ours.iter().zip(&self.base);
        let ratios: Vec<_> = pairs
            .filter_map(|(ours, base)| Some(of(ours)? / of(base)?))
            .collect();
        row.against(median(base), &ratios)
    }
}

/// The middle of these; zero of none.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

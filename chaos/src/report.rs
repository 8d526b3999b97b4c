//! What a run came to: a table for people, JSON for programs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::check::Violation;
use crate::failure::Failure;
use crate::fault::Kind as Fault;
use crate::history::OnLapse;
use crate::store::Kind;

/// All rounds of a run.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
}

/// One round.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) store: Kind,
    pub(crate) on_lapse: OnLapse,
    pub(crate) seed: u64,
    /// Those of clients: asking whether a gateway is back does not count.
    pub(crate) operations: u64,
    pub(crate) attempts: usize,
    pub(crate) executions: usize,
    /// Executions after the first of a key.
    pub(crate) reruns: usize,
    /// Those that only a stall of the machine excuses.
    pub(crate) stalled: usize,
    pub(crate) unknown: usize,
    pub(crate) faults: BTreeMap<Fault, usize>,
    pub(crate) slowest_return_s: f64,
    pub(crate) lasted_s: f64,
    pub(crate) violations: Vec<Violation>,
    /// All that happened to keys for which a rule was broken.
    pub(crate) stories: BTreeMap<u64, String>,
}

const STORIES_SHOWN_MAX: usize = 5;
const HEAD: [&str; 10] = [
    "store",
    "on lapse",
    "operations",
    "requests",
    "executions",
    "reruns",
    "unknown",
    "faults",
    "slowest return",
    "violations",
];

impl Report {
    pub(crate) fn violations(&self) -> usize {
        self.rows.iter().map(|row| row.violations.len()).sum()
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let cannot = || Failure::doing(format!("write {}", path.display()));
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Failure::new(format!("cannot write JSON: {error}")))?;
        fs::write(path, text + "\n").map_err(cannot())
    }

    fn kinds(&self) -> BTreeMap<Fault, usize> {
        let mut kinds = BTreeMap::new();
        for (kind, count) in self.rows.iter().flat_map(|row| &row.faults) {
            *kinds.entry(*kind).or_insert(0) += count;
        }
        kinds
    }
}

impl Row {
    fn faults(&self) -> usize {
        self.faults.values().sum()
    }

    fn cells(&self) -> [String; HEAD.len()] {
        [
            self.store.name().to_owned(),
            self.on_lapse.name().to_owned(),
            self.operations.to_string(),
            self.attempts.to_string(),
            self.executions.to_string(),
            match self.stalled {
                0 => self.reruns.to_string(),
                stalled => format!("{} ({stalled} by a stall)", self.reruns),
            },
            self.unknown.to_string(),
            self.faults().to_string(),
            format!("{:.1} s", self.slowest_return_s),
            self.violations.len().to_string(),
        ]
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} s: {} faults, {} operations, {} violations",
            self.lasted_s,
            self.faults(),
            self.operations,
            self.violations.len()
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![HEAD.map(str::to_owned)];
        rows.extend(self.rows.iter().map(Row::cells));
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<_> = (0..HEAD.len()).map(width).collect();
        for row in &rows {
            let cells = row.iter().zip(&widths);
            let line: String = cells
                .map(|(cell, width)| format!("{cell:width$}  "))
                .collect();
            writeln!(f, "{}", line.trim_end())?;
        }

        writeln!(f)?;
        for row in self.rows.iter().filter(|row| !row.violations.is_empty()) {
            row.fmt_violations(f)?;
        }
        let kinds = self.kinds();
        let named: Vec<_> = kinds
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        writeln!(f, "faults: {}", named.join(", "))?;
        write!(
            f,
            "{} faults injected, {} operations, {} violations",
            kinds.values().sum::<usize>(),
            self.rows.iter().map(|row| row.operations).sum::<u64>(),
            self.violations()
        )
    }
}

impl Row {
    fn fmt_violations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let round = format!(
            "{} {}, seed {}",
            self.store.name(),
            self.on_lapse.name(),
            self.seed
        );
        for it in &self.violations {
            let key = it
                .key
                .map_or_else(String::new, |key| format!(", key {key}"));
            writeln!(f, "VIOLATION ({round}{key}): {}: {}", it.rule, it.detail)?;
        }
        for (key, story) in self.stories.iter().take(STORIES_SHOWN_MAX) {
            writeln!(f, "history of key {key} ({round}):\n{story}")?;
        }
        Ok(())
    }
}

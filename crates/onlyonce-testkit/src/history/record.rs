//! A recorded history: the logs of all workers and of the driver.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::check::check;
use super::clock::Micros;
use super::log::{Entry, What};
use super::report::Report;

/// What every process wrote down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// One log for each life of each worker, and the driver's.
    pub logs: Vec<Log>,
}

/// One process's log, in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// What happened.
    pub entries: Vec<Entry>,
}

/// How the name of a log ends.
pub(crate) const EXTENSION: &str = "jsonl";

impl History {
    /// Reads all logs of a folder.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let mut paths = Vec::new();
        for file in fs::read_dir(folder)? {
            let path = file?.path();
            if path.extension().is_some_and(|it| it == EXTENSION) {
                paths.push(path);
            }
        }
        paths.sort();
        let logs = paths.iter().map(|path| Log::read(path));
        Ok(Self {
            logs: logs.collect::<io::Result<_>>()?,
        })
    }

    /// When the first event happened.
    pub(crate) fn began(&self) -> Micros {
        let all = self.logs.iter().flat_map(|log| &log.entries);
        all.map(|entry| entry.at).min().unwrap_or_default()
    }
}

impl Log {
    /// A log of `entries`, put in order.
    pub fn new(mut entries: Vec<Entry>) -> Self {
        // Threads may write two lines in another order than they read the clock.
        entries.sort_by_key(|entry| entry.at);
        Self { entries }
    }

    /// Reads a log. A last line without its end was never written whole, and had no effect yet.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read(path)?;
        let mut lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
        lines.pop();
        let entries = lines.into_iter().map(serde_json::from_slice);
        let entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
        Ok(Self::new(entries))
    }

    /// Which worker's it is; the driver's is nobody's.
    pub(crate) fn worker(&self) -> Option<(u16, u16)> {
        self.entries.iter().find_map(|entry| match entry.what {
            What::Opened { node, life, .. } => Some((node, life)),
            What::Called { .. }
            | What::Sent { .. }
            | What::Replied { .. }
            | What::Started { .. }
            | What::Ended { .. }
            | What::Dropped { .. }
            | What::Heard { .. }
            | What::HungUp { .. }
            | What::Late { .. }
            | What::Closed
            | What::Fault(_) => None,
        })
    }

    /// One event in words, with its process and the seconds since `began`.
    pub(crate) fn line(&self, index: usize, began: Micros) -> String {
        let entry = &self.entries[index];
        let since = entry.at.saturating_sub(began);
        let mut line = format!("{:>5}.{:06} s  ", since / 1_000_000, since % 1_000_000);
        let written = match self.worker() {
            Some((node, life)) => write!(line, "p{node}.{life:<3} {entry}"),
            None => write!(line, "driver {entry}"),
        };
        written.expect("a string takes whatever is written");
        line
    }
}

/// Where the logs of a run are.
pub(crate) enum LogFolder {
    Given(PathBuf),
    Temporary(TempDir),
}

impl LogFolder {
    pub(crate) fn new(given: Option<&Path>) -> io::Result<Self> {
        match given {
            Some(path) => {
                fs::create_dir_all(path)?;
                Ok(Self::Given(path.to_owned()))
            }
            None => {
                let mut folder = tempfile::Builder::new();
                Ok(Self::Temporary(
                    folder.prefix("onlyonce-history-").tempdir()?,
                ))
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }

    /// Checks the logs; they stay if they were to, or show that a rule was broken.
    pub(crate) fn check(self) -> io::Result<Report> {
        let mut report = check(&History::read(self.path())?);
        report.logs = match self {
            Self::Given(path) => Some(path),
            Self::Temporary(folder) if !report.is_clean() => Some(folder.keep()),
            Self::Temporary(_) => None,
        };
        Ok(report)
    }
}

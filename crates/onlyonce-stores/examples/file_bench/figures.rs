//! What was measured, and how it is told.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Calls, and how long each took.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) micros: Vec<u32>,
    pub(crate) time: Duration,
}

impl Measured {
    pub(crate) fn add(&mut self, mut other: Self) {
        self.micros.append(&mut other.micros);
        self.time += other.time;
    }

    pub(crate) fn figures(mut self) -> Figures {
        self.micros.sort_unstable();
        let at = |part: usize| {
            let last = self.micros.len().saturating_sub(1);
            self.micros.get(last * part / 1000).copied().unwrap_or(0)
        };
        Figures {
            rate: self.micros.len() as f64 / self.time.as_secs_f64(),
            p50: at(500),
            p99: at(990),
            most: at(1000),
        }
    }
}

/// What is told of them.
pub(crate) struct Figures {
    rate: f64,
    p50: u32,
    p99: u32,
    most: u32,
}

impl Figures {
    /// How these compare.
    pub(crate) fn against(&self, other: &Self) -> String {
        format!(
            "= {:.2} of the log's rate, {:.2} times its p99",
            self.rate / other.rate,
            f64::from(self.p99) / f64::from(other.p99.max(1))
        )
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rate,
            p50,
            p99,
            most,
        } = self;
        write!(
            f,
            "{rate:8.0}/s  p50 {p50:5} µs  p99 {p99:6} µs  most {most:7} µs"
        )
    }
}

/// What a folder takes on disk, in whole megabytes.
pub(crate) fn disk_mb(folder: &Path) -> u64 {
    let bytes: u64 = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| allocated(&metadata))
        .sum();
    bytes / 1_000_000
}

#[cfg(unix)]
fn allocated(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata) * 512
}

#[cfg(not(unix))]
fn allocated(metadata: &fs::Metadata) -> u64 {
    metadata.len()
}

/// The memory this process takes, in whole megabytes, where the system tells.
pub(crate) fn resident_mb() -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(0, |kib| kib * 1024 / 1_000_000)
}

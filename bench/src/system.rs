//! What the system says of a process and of a folder.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Bytes in a megabyte, as people count them.
const MEGA: f64 = 1e6;

/// What a folder takes on disk, in megabytes.
pub(crate) fn disk_mb(folder: &Path) -> f64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok());
    files.map(|file| file.blocks() * 512).sum::<u64>() as f64 / MEGA
}

/// The length of all files in a folder.
pub(crate) fn length(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok());
    files.map(|file| file.len()).sum()
}

/// The memory that a process takes, in megabytes.
pub(crate) fn resident_mb(process: &str) -> f64 {
    status_mb(process, "VmRSS:")
}

/// The most memory that a process has taken so far, in megabytes.
pub(crate) fn peak_mb(process: &str) -> f64 {
    status_mb(process, "VmHWM:")
}

fn status_mb(process: &str, field: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.map_or(0.0, |kib| kib * 1024.0 / MEGA)
}

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

/// The CPU time that all threads of a process have taken so far.
pub(crate) fn cpu_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind its name, which may have spaces: the state is the third field.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = |nth: usize| -> f64 {
        let field = fields.split(' ').nth(nth - 3);
        field.and_then(|field| field.parse().ok()).unwrap_or(0.0)
    };
    let (user, system) = (ticks(14), ticks(15));
    (user + system) / rustix::param::clock_ticks_per_second() as f64
}

/// How many bytes this process has handed to writes so far.
pub(crate) fn written_bytes() -> f64 {
    let said = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = said.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|it| it.parse().ok()).unwrap_or(0.0)
}

/// The processes that this one has started.
pub(crate) fn children(process: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children = children.unwrap_or_default();
    children
        .split_whitespace()
        .filter_map(|it| it.parse().ok())
        .collect()
}

/// What this machine is: its cores and its kernel.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors
        .lines()
        .find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": "));
    let model = model.map_or("a processor without a name", |(_, model)| model);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores of {model}, Linux {}", kernel.trim())
}

/// How many processes were busy in the last minute.
pub(crate) fn load() -> f64 {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = load.split(' ').next();
    first.and_then(|it| it.parse().ok()).unwrap_or(0.0)
}

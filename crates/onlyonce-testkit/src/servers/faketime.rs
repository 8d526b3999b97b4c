//! Programs whose clock is wrong, by libfaketime.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::ServerError;

pub(super) const PACKAGE: &str = "faketime";
const PRELOAD: &str = "LD_PRELOAD";
/// The variant for programs with threads.
const LIBRARY: &str = "libfaketimeMT.so.1";
/// Where the folder `faketime` may be; on Debian one level deeper, below the architecture.
const FOLDERS: [&str; 4] = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib"];

/// How far a clock is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// It shows a later time.
    Ahead(Duration),
    /// It shows an earlier time.
    Behind(Duration),
}

/// A command for a program whose wall clock is off by this much, to the millisecond. Monotonic
/// clocks stay right, so that it can wait for a time as usual.
pub fn command(program: impl AsRef<OsStr>, skew: Skew) -> Result<Command, ServerError> {
    let offset = match skew {
        Skew::Ahead(by) => format!("+{:.3}", by.as_secs_f64()),
        Skew::Behind(by) => format!("-{:.3}", by.as_secs_f64()),
    };
    let mut command = Command::new(program);
    command
        .env(PRELOAD, library()?)
        .env("FAKETIME", offset)
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Ok(command)
}

/// A command for a program on a machine that seems to have been restarted, so much later by its
/// wall clock: stores on this machine count time by the boot clock as long as the boot is the same.
/// Each command is another boot. `boot` is a file of the caller's that has to be there when the
/// program starts.
pub fn after_a_restart(
    program: impl AsRef<OsStr>,
    by: Duration,
    boot: &Path,
) -> Result<Command, ServerError> {
    const ID: &str = "/proc/sys/kernel/random/boot_id";
    let cannot = ServerError::io("write the id of a boot");
    fs::copy("/proc/sys/kernel/random/uuid", boot).map_err(cannot)?;
    let mut command = command("unshare", Skew::Ahead(by))?;
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
        .args(["--mount", "sh", "-c"])
        .arg(format!("mount --bind \"$0\" {ID} && exec \"$@\""))
        .arg(boot)
        .arg(program.as_ref());
    Ok(command)
}

/// A command for a program whose wall clock is off by what `file` says, such as `+600`, within a
/// second of every change to it. Monotonic clocks stay right.
pub fn adjustable(program: impl AsRef<OsStr>, file: &Path) -> Result<Command, ServerError> {
    let mut command = Command::new(program);
    command
        .env(PRELOAD, library()?)
        .env("FAKETIME_TIMESTAMP_FILE", file)
        .env("FAKETIME_CACHE_DURATION", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Ok(command)
}

/// The same for a server that is started through programs whose clocks stay right: everything is in
/// its words. Redis's allocator asks for the time while it starts, and libfaketime allocates before it
/// can tell; so the allocator of libc goes before the server's own.
pub(super) fn of_a_server(program: impl AsRef<OsStr>, file: &Path) -> Result<Command, ServerError> {
    let faked = adjustable(program, file)?;
    let mut command = Command::new("env");
    for (name, value) in faked.get_envs() {
        let mut word = name.to_owned();
        word.push("=");
        word.push(value.unwrap_or_default());
        if name == PRELOAD {
            word.push(" libc.so.6");
        }
        command.arg(word);
    }
    command.arg(faked.get_program());
    Ok(command)
}

pub(super) fn library() -> Result<PathBuf, ServerError> {
    let in_folder = |folder: &Path| {
        let file = folder.join("faketime").join(LIBRARY);
        file.is_file().then_some(file)
    };
    let below = |folder: &Path| {
        let mut entries = fs::read_dir(folder).ok()?.flatten();
        entries.find_map(|entry| in_folder(&entry.path()))
    };
    FOLDERS
        .iter()
        .map(Path::new)
        .find_map(|folder| in_folder(folder).or_else(|| below(folder)))
        .ok_or(ServerError::Missing {
            program: LIBRARY,
            package: PACKAGE,
        })
}

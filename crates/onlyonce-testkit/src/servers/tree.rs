//! Signals to a process and to all that it started.
//!
//! PostgreSQL gives each of its processes a group of its own, so a signal to a group would reach
//! only one of them. The kernel's table of processes knows who started whom.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::ServerError;
use super::patience::until;

const TABLE: &str = "/proc";

/// What the kernel's table says about one process.
struct Entry {
    state: char,
    parent: u32,
}

impl Entry {
    fn read(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("{TABLE}/{pid}/stat")).ok()?;
        // The name before this may contain anything.
        let (_, fields) = text.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        Some(Self { state, parent })
    }

    /// It has ended, though its parent has not asked how.
    fn is_over(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// Stops a process and all its descendants where they are, and waits until they stand still.
pub(super) fn stop(root: u32) -> Result<Vec<u32>, ServerError> {
    halt(root)?;
    // A process that stands still starts no others, so each generation is complete.
    let mut stopped = vec![root];
    let mut next = 0;
    while let Some(&parent) = stopped.get(next) {
        for child in children(parent) {
            halt(child)?;
            stopped.push(child);
        }
        next += 1;
    }
    Ok(stopped)
}

/// Lets a process and all its descendants go on.
pub(super) fn resume(root: u32) -> Result<(), ServerError> {
    let mut pids = vec![root];
    let mut next = 0;
    while let Some(&pid) = pids.get(next) {
        pids.extend(children(pid));
        signal(pid, Signal::CONT)?;
        next += 1;
    }
    Ok(())
}

/// Kills a process and all its descendants, and returns these.
pub(super) fn kill(root: u32) -> Result<Vec<u32>, ServerError> {
    let all = stop(root)?;
    for &pid in &all {
        signal(pid, Signal::KILL)?;
    }
    Ok(all)
}

/// Waits until none of these runs any more.
pub(super) fn wait_until_gone(pids: &[u32]) -> Result<(), ServerError> {
    until("all processes of a killed server are gone", || {
        let running = |pid: &&u32| Entry::read(**pid).is_some_and(|entry| !entry.is_over());
        match pids.iter().find(running) {
            Some(pid) => Err(format!("process {pid} still runs")),
            None => Ok(()),
        }
    })
}

/// Sends a signal; a process that is already gone needs none.
pub(super) fn signal(pid: u32, signal: Signal) -> Result<(), ServerError> {
    let target = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let target = target.expect("the kernel's process ids are positive numbers of 32 bits");
    match kill_process(target, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => {
            let what = format!("send a signal to process {pid}");
            Err(ServerError::io(what)(error.into()))
        }
    }
}

fn halt(pid: u32) -> Result<(), ServerError> {
    signal(pid, Signal::STOP)?;
    until("a process stands still", || match Entry::read(pid) {
        Some(entry) if !entry.is_stopped() && !entry.is_over() => {
            Err(format!("process {pid} is in state {}", entry.state))
        }
        Some(_) | None => Ok(()),
    })
}

fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(TABLE) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| Entry::read(*pid).is_some_and(|entry| entry.parent == parent))
        .collect()
}

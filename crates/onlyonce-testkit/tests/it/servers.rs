//! Every server really starts, breaks, starts again and leaves nothing behind.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a panic is how a test fails, and its clock may be the machine's"
)]

mod faketime;
mod groups;
mod mariadb;
mod orphans;
mod postgres;
mod proxy;
mod redis;
mod shared;

use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use onlyonce_testkit::servers::Server;

/// Far more than anything takes, so that only what never happens fails.
const ATTEMPTS_MAX: usize = 3_000;
const PAUSE: Duration = Duration::from_millis(20);

/// Asks until the answer satisfies.
fn eventually<T: Debug>(mut ask: impl FnMut() -> T, satisfies: impl Fn(&T) -> bool) -> T {
    let mut answer = ask();
    for _ in 0..ATTEMPTS_MAX {
        if satisfies(&answer) {
            return answer;
        }
        thread::sleep(PAUSE);
        answer = ask();
    }
    panic!("it never came; the last answer was {answer:?}");
}

/// A line of the kernel's table of processes.
fn status(pid: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line[name.len()..].trim().to_owned())
}

/// Whether a process runs: one that only waits to be asked how it ended does not.
fn runs(pid: u32) -> bool {
    status(pid, "State:").is_some_and(|state| !state.starts_with('Z'))
}

/// The processes that this one started and that still run.
fn children(parent: u32) -> Vec<u32> {
    let parent = parent.to_string();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter(|pid| status(*pid, "PPid:").as_ref() == Some(&parent) && runs(*pid))
        .collect()
}

/// Not root, whoever we are.
fn is_harmless(server: &impl Server) -> bool {
    let users = status(server.pid().unwrap(), "Uid:").unwrap();
    users.split_whitespace().all(|user| user != "0")
}

/// What a server leaves behind when its handle is dropped.
fn leaves_nothing(server: impl Server) {
    let pid = server.pid().unwrap();
    let all: Vec<_> = children(pid).into_iter().chain([pid]).collect();
    let folder = server.folder().to_owned();
    assert!(folder.is_dir());

    drop(server);

    assert!(!runs(pid));
    eventually(|| all.iter().any(|pid| runs(*pid)), |any| !any);
    assert!(!Path::new(&folder).exists());
}

//! Kills a process at a system call of one of its threads, or counts these: by `strace`, attached to the
//! running process right before a request. It counts each thread and each kind of call by itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use crate::failure::Failure;

/// Calls before which the outside may be another than before the one before: network and files. What
/// only waits, or stays inside of the process, is no boundary of its own.
const CALLS: &str = "accept4,close,connect,fallocate,fdatasync,fsync,ftruncate,openat,pwrite64,\
                     pwritev,read,readv,recvfrom,recvmsg,rename,sendmmsg,sendmsg,sendto,shutdown,\
                     socket,sync_file_range,unlink,write,writev";
/// How long strace may take to attach or to leave. Far more than it does.
const PATIENCE: Duration = Duration::from_secs(30);

/// strace on a thread or a process.
pub(crate) struct Trace {
    child: Child,
    said: Lines<BufReader<ChildStderr>>,
}

impl Trace {
    /// Kills the process of this thread where the thread enters its N-th call of this name, and writes
    /// its calls up to that one to a file.
    pub(crate) async fn kill_at(
        thread: u32,
        call: &str,
        number: u64,
        file: &Path,
    ) -> Result<Self, Failure> {
        let inject = format!("inject={call}:signal=KILL:when={number}");
        let (thread, file) = (thread.to_string(), file.display().to_string());
        Self::attach(&["-e", &inject, "-o", &file, "-p", &thread]).await
    }

    /// Writes the calls of all threads of a process to a file.
    pub(crate) async fn record(process: u32, file: &Path) -> Result<Self, Failure> {
        let file = file.display().to_string();
        Self::attach(&["-f", "-o", &file, "-p", &process.to_string()]).await
    }

    async fn attach(args: &[&str]) -> Result<Self, Failure> {
        let mut child = Command::new("strace")
            .args(["-e", &format!("trace={CALLS}")])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(Failure::doing("run strace (Debian package `strace`)"))?;
        let said = child.stderr.take().expect("its stderr is a pipe");
        let mut trace = Self {
            child,
            said: BufReader::new(said).lines(),
        };
        trace.wait_until_attached().await?;
        Ok(trace)
    }

    async fn wait_until_attached(&mut self) -> Result<(), Failure> {
        let mut heard = Vec::new();
        let attached = async {
            while let Ok(Some(line)) = self.said.next_line().await {
                if line.contains(" attached") {
                    return true;
                }
                heard.push(line);
            }
            false
        };
        match timeout(PATIENCE, attached).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(Failure::new(format!(
                "strace cannot attach to a process, and without it nothing can be tried: {}\n\
                 it needs the right to trace processes: root or the capability SYS_PTRACE, and a \
                 container or kernel that does not refuse ptrace",
                heard.join("; ")
            ))),
        }
    }

    /// Leaves the process as it is, if it still runs. When this returns nothing is killed any more.
    pub(crate) async fn end(mut self) -> Result<(), Failure> {
        let running = self.child.try_wait();
        let running: Option<ExitStatus> = running.map_err(Failure::doing("wait for strace"))?;
        if running.is_none()
            && let Some(pid) = self.child.id().and_then(|id| i32::try_from(id).ok())
            && let Some(pid) = Pid::from_raw(pid)
        {
            // It was not waited for: the id is still its own.
            kill_process(pid, Signal::INT).map_err(Failure::doing("end strace"))?;
        }
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(ended) => ended.map(drop).map_err(Failure::doing("wait for strace")),
            Err(_) => Err(Failure::new("strace does not end")),
        }
    }
}

/// How many calls of each name each thread made, by what was recorded.
pub(crate) fn counts(file: &Path) -> Result<BTreeMap<(u32, String), u64>, Failure> {
    let text = fs::read_to_string(file).map_err(Failure::doing("read what strace wrote"))?;
    Ok(count(&text))
}

/// How many calls of this name the one thread made that something was to be killed in.
pub(crate) fn count_of_one(file: &Path, name: &str) -> Result<u64, Failure> {
    let text = fs::read_to_string(file).map_err(Failure::doing("read what strace wrote"))?;
    let calls = text.lines().filter(|line| call(line) == Some(name));
    Ok(calls.count() as u64)
}

fn count(text: &str) -> BTreeMap<(u32, String), u64> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let (thread, rest) = line.split_once(' ').unwrap_or_default();
        if let (Ok(thread), Some(name)) = (thread.parse(), call(rest)) {
            *counts.entry((thread, name.to_owned())).or_default() += 1;
        }
    }
    counts
}

/// The name of the call that a line begins. Others say how one went on, or what happened to the thread.
fn call(line: &str) -> Option<&str> {
    let (name, _) = line.trim_start().split_once('(')?;
    let is_name = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_';
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn calls_are_counted_by_thread_and_name_and_once_though_they_are_interrupted() {
        let counts = count(
            "10  read(3, \"a\", 1) = 1\n\
             11  write(4, \"b\", 1 <unfinished ...>\n\
             10  read(3) = 0\n\
             11  <... write resumed>) = 1\n\
             10  pwrite64(3) = 0\n\
             10  --- SIGCHLD {} ---\n\
             10  +++ killed by SIGKILL +++\n",
        );

        let of = |thread: u32, name: &str| counts[&(thread, name.to_owned())];
        assert_eq!(counts.len(), 3, "{counts:?}");
        assert_eq!(
            (of(10, "read"), of(10, "pwrite64"), of(11, "write")),
            (2, 1, 1)
        );
    }
}

//! A program that runs as long as we want it to, and not longer than we do.

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use onlyonce_testkit::servers;
use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;

const PATIENCE: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(20);
/// How often it is looked whether it has ended in order, before it is ended at once.
const ENDING: u32 = 250;
/// How much of a log is shown.
const LOG_BYTES_TOLD: usize = 400;

pub(crate) struct Process {
    child: Child,
    log: Option<PathBuf>,
}

impl Process {
    /// Starts `command` in a way that it ends with us, whatever ends us.
    pub(crate) fn start(command: &Command) -> Result<Self, Failure> {
        Self::spawn(command, wrapped(command), None)
    }

    /// The same, with what it says in a file.
    pub(crate) fn start_logged(command: &Command, log: &Path) -> Result<Self, Failure> {
        let cannot = || Failure::doing(format!("write to {}", log.display()));
        let out = File::create(log).map_err(cannot())?;
        let err = out.try_clone().map_err(cannot())?;
        let mut wrapped = wrapped(command);
        wrapped.stdin(Stdio::null()).stdout(out).stderr(err);
        Self::spawn(command, wrapped, Some(log.to_owned()))
    }

    fn spawn(
        command: &Command,
        mut wrapped: Command,
        log: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let program = command.get_program().to_string_lossy();
        let child = wrapped
            .spawn()
            .map_err(Failure::doing(format!("start {program}")))?;
        Ok(Self { child, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until somebody listens on this port.
    pub(crate) fn wait_for(&mut self, port: u16) -> Result<(), Failure> {
        for _ in 0..PATIENCE {
            if let Ok(Some(status)) = self.child.try_wait() {
                let said = self.said();
                return Err(Failure::new(format!("it ended at once, {status}: {said}")));
            }
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err(Failure::new(format!("it does not listen: {}", self.said())))
    }

    /// The end of what it wrote, where that is in a file.
    pub(crate) fn said(&self) -> String {
        let log = self.log.as_ref().map(fs::read).and_then(Result::ok);
        let log = log.unwrap_or_default();
        let end = &log[log.len().saturating_sub(LOG_BYTES_TOLD)..];
        String::from_utf8_lossy(end).trim().to_owned()
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It has not been waited for: the id is still its own.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        for _ in 0..ENDING {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        self.signal(Signal::KILL);
        drop(self.child.wait());
    }
}

fn wrapped(command: &Command) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--pdeathsig", "TERM", "--"]);
    wrapped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        wrapped.current_dir(folder);
    }
    wrapped
}

/// A port that is free at the moment.
pub(crate) fn free_port() -> Result<u16, Failure> {
    Ok(servers::free_port()?)
}

//! The folder of a server, and the keeper that clears up after us if we are killed.
//!
//! The keeper is a small shell that reads from a pipe which only we hold open. We tell it which
//! process runs; when the pipe ends, by whatever death of ours, it ends that process and removes
//! the folder. A signal at our own death would not do: the kernel ties it to a thread rather than
//! to a process, and forgets it when the server changes its user.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::Signal;
use tempfile::TempDir;

use super::ServerError;
use super::account::Account;
use super::command;
use super::patience::Deadline;

const LOG: &str = "log";
const LOG_LINES_SHOWN: usize = 25;

/// Starts what follows once it is told to, so that nothing runs that the keeper does not know.
const GATE: &str = r#"read -r go && exec "$@" < /dev/null"#;

/// Each line names a process and the signal that ends it, or is empty. A process id alone may by
/// now belong to another program; the time of its start tells them apart.
const KEEPER: &str = r#"
trap '' HUP INT QUIT TERM
birth() {
  read -r stat < "/proc/$1/stat" && set -- ${stat##*) } && shift 19 && echo "$1"
}
runs() { [ -n "$born" ] && [ "$(birth "$pid")" = "$born" ]; }
born=
while read -r line; do
  pid=${line% *} how=${line#* } born=
  [ -n "$line" ] && born=$(birth "$pid")
done
if runs && [ "$how" -ne 9 ]; then
  kill -"$how" "$pid"
  kill -s CONT "$pid"
  tries=100
  while runs && [ "$tries" -gt 0 ]; do sleep 0.05; tries=$((tries - 1)); done
fi
if runs; then
  kill -s STOP "$pid"
  kill -s KILL "$pid" $(cat "/proc/$pid/task/"*/children)
fi
tries=100
until rm -rf -- "$1" || [ "$tries" -eq 0 ]; do sleep 0.05; tries=$((tries - 1)); done
"#;

/// A temporary folder that belongs to a server's user, and what runs in it.
pub(super) struct Home {
    // Goes before the folder, which it would remove as well.
    keeper: Keeper,
    folder: TempDir,
    account: Account,
}

/// The shell that outlives us.
struct Keeper {
    shell: Child,
    ear: Mutex<ChildStdin>,
}

impl Home {
    pub(super) fn new(name: &str, account: Account) -> Result<Self, ServerError> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("onlyonce-{name}-"))
            .tempdir()
            .map_err(ServerError::io("make a temporary folder"))?;
        let keeper = Keeper::new(folder.path())?;
        account.give(folder.path())?;
        Ok(Self {
            keeper,
            folder,
            account,
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file that the server may change.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), ServerError> {
        let path = self.file(name);
        let cannot = ServerError::io(format!("write {}", path.display()));
        fs::write(&path, text).map_err(cannot)?;
        self.account.give(&path)
    }

    /// Starts a program as this folder's user, in a process group of its own, so that a Ctrl-C is
    /// ours to handle. What it writes goes to the log: a pipe of ours that it inherited would
    /// stay open as long as it runs. The signal is what ends it if we are gone.
    pub(super) fn spawn(&self, program: &Command, end: Signal) -> Result<Child, ServerError> {
        let cannot = |what: &str| {
            let program = program.get_program().to_string_lossy();
            ServerError::io(format!("{what} {program}"))
        };
        let log = self.open_log().map_err(cannot("open the log of"))?;
        let errors = log.try_clone().map_err(cannot("open the log of"))?;

        let mut gate = command::bare("sh");
        gate.args(["-c", GATE, "gate"])
            .args(self.account.prefix())
            .arg(program.get_program())
            .args(program.get_args())
            .env("HOME", self.path())
            .env("TMPDIR", self.path())
            .current_dir(self.path())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(errors);
        let mut child = gate.spawn().map_err(cannot("start"))?;
        self.keeper.watch(Some((child.id(), end)))?;
        let mut latch = child.stdin.take().expect("its stdin is a pipe");
        latch.write_all(b"go\n").map_err(cannot("start"))?;
        Ok(child)
    }

    /// To be called when what was spawned is over.
    pub(super) fn vacate(&self) -> Result<(), ServerError> {
        self.keeper.watch(None)
    }

    /// Runs a program to its end.
    pub(super) fn run(&self, name: &'static str, program: &Command) -> Result<(), ServerError> {
        let cannot = || ServerError::io(format!("wait for {name}"));
        let from = self.log_length();
        let mut child = self.spawn(program, Signal::KILL)?;
        let deadline = Deadline::new();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(cannot())? {
                break Some(status);
            }
            if !deadline.wait() {
                child.kill().map_err(cannot())?;
                child.wait().map_err(cannot())?;
                break None;
            }
        };
        self.vacate()?;

        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.failure(name, status.to_string(), from)),
            None => Err(self.failure(name, "it took too long".to_owned(), from)),
        }
    }

    /// The error for a program that wrote to the log from a given byte on.
    pub(super) fn failure(&self, server: &'static str, why: String, from: u64) -> ServerError {
        let log = self.log(from);
        let lines: Vec<_> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
        let is_shut_out = log.contains("Permission denied");
        ServerError::Start {
            server,
            why,
            hint: if is_shut_out {
                "hint: its user cannot get into the temporary folder; point TMPDIR elsewhere"
            } else {
                "hint: is there space left for temporary files, and memory?"
            },
            log: shown.join("\n"),
        }
    }

    pub(super) fn log_length(&self) -> u64 {
        fs::metadata(self.file(LOG)).map_or(0, |file| file.len())
    }

    /// What was written to the log from a given byte on.
    pub(super) fn log(&self, from: u64) -> String {
        let read = || {
            let mut bytes = Vec::new();
            let mut file = File::open(self.file(LOG))?;
            file.seek(SeekFrom::Start(from))?;
            file.read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>(bytes)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }

    fn open_log(&self) -> std::io::Result<File> {
        let mut options = File::options();
        options.append(true).create(true).open(self.file(LOG))
    }
}

impl Keeper {
    fn new(folder: &Path) -> Result<Self, ServerError> {
        let mut shell = command::bare("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(folder)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(ServerError::io("start a shell"))?;
        let ear = shell.stdin.take().expect("its stdin is a pipe");
        Ok(Self {
            shell,
            ear: Mutex::new(ear),
        })
    }

    fn watch(&self, process: Option<(u32, Signal)>) -> Result<(), ServerError> {
        let line = match process {
            Some((pid, signal)) => format!("{pid} {}\n", signal.as_raw()),
            None => "\n".to_owned(),
        };
        let mut ear = self.ear.lock().unwrap_or_else(PoisonError::into_inner);
        ear.write_all(line.as_bytes())
            .map_err(ServerError::io("tell the keeper what runs"))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // We are alive and clear up ourselves. Neither call can fail for a child not waited for.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

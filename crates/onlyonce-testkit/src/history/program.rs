//! The worker's program: how the driver starts it, and what it calls to be one.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Store;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::clock::now;
use super::plan::Plan;
use super::worker::work;

/// Where a worker finds what it is to do.
const ASSIGNMENT: &str = "ONLYONCE_HISTORY_WORKER";
/// Between two tries to open a store that is away.
const OPEN_AGAIN: Duration = Duration::from_millis(50);
/// Threads of a worker: with one, races between its own tasks would not show.
const THREADS: usize = 2;

/// A program that is a worker: it calls [`worker_main`].
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

#[derive(Serialize, Deserialize)]
struct Assignment {
    url: String,
    log: PathBuf,
    plan: Plan,
}

/// Why a worker could not work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// Nobody said what to do.
    #[error("a worker is started by a run: {ASSIGNMENT} does not say what to do")]
    NoAssignment,
    /// What was said cannot be read.
    #[error("{ASSIGNMENT} cannot be read: driver and worker must be of one version")]
    Unreadable(#[from] serde_json::Error),
    /// The store could not be opened.
    #[error("the store could not be opened")]
    Open(#[source] Box<dyn Error + Send + Sync>),
    /// The log could not be written, or the engine not be opened.
    #[error(transparent)]
    Work(#[from] io::Error),
}

impl Program {
    /// The program at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            arguments: Vec::new(),
        }
    }

    /// This very test program, running only the test of this name: it must call [`worker_main`]
    /// if it [`is_worker`], and do nothing otherwise.
    pub fn this_test(name: &str) -> io::Result<Self> {
        let arguments = [name, "--exact", "--nocapture", "--include-ignored"];
        Ok(Self {
            path: env::current_exe()?,
            arguments: arguments.map(OsString::from).to_vec(),
        })
    }

    /// The program called `name` in the folder of this one: another example.
    pub fn beside(name: &str) -> io::Result<Self> {
        let here = env::current_exe()?;
        Ok(Self::new(here.with_file_name(name)))
    }

    /// Starts a worker, on a wall clock that is off if `clock` is given.
    pub(crate) fn start(
        &self,
        url: &str,
        plan: &Plan,
        log: &Path,
        clock: Option<&ShiftedClock>,
    ) -> io::Result<Child> {
        let assignment = Assignment {
            url: url.to_owned(),
            log: log.to_owned(),
            plan: plan.clone(),
        };
        let mut command = Command::new(&self.path);
        command
            .args(&self.arguments)
            .env(ASSIGNMENT, serde_json::to_string(&assignment)?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(log.with_extension("err"))?);
        if let Some(clock) = clock {
            command
                .env("LD_PRELOAD", &clock.library)
                .env("FAKETIME", &clock.offset)
                // Only what people would set wrong: the wall clock.
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                .env("DONT_FAKE_MONOTONIC", "1");
        }
        command.spawn()
    }
}

/// A wall clock that is off, by libfaketime.
pub(crate) struct ShiftedClock {
    library: PathBuf,
    offset: String,
}

impl ShiftedClock {
    /// Nothing if libfaketime is not installed.
    pub(crate) fn new(offset: &str) -> Option<Self> {
        let folders = std::fs::read_dir("/usr/lib").ok()?;
        let folders = folders
            .flatten()
            .map(|folder| folder.path().join("faketime"));
        // The variant for programs with threads, where there is one.
        let libraries = folders.flat_map(|folder| {
            ["libfaketimeMT.so.1", "libfaketime.so.1"].map(|name| folder.join(name))
        });
        Some(Self {
            library: libraries.into_iter().find(|path| path.exists())?,
            offset: offset.to_owned(),
        })
    }
}

/// Removes what libfaketime leaves behind for a process that was killed.
pub fn clear_faketime(process: u32) {
    for left in ["faketime_shm_", "sem.faketime_sem_"] {
        // Nothing is there if it ended by itself.
        let _ = std::fs::remove_file(format!("/dev/shm/{left}{process}"));
    }
}

/// Whether a run started this process as a worker.
pub fn is_worker() -> bool {
    env::var_os(ASSIGNMENT).is_some()
}

/// Does what the run that started this process wants done, on the store that `open` makes of a URL.
pub fn worker_main<O, E>(open: O) -> Result<(), WorkerError>
where
    O: AsyncFn(&str) -> Result<Arc<dyn Store>, E>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let assignment = env::var(ASSIGNMENT).map_err(|_| WorkerError::NoAssignment)?;
    let Assignment { url, log, plan } = serde_json::from_str(&assignment)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()?;
    let worked = runtime.block_on(async {
        let store = loop {
            match open(&url).await {
                Ok(store) => break store,
                Err(error) if now() > plan.open_until() => {
                    return Err(WorkerError::Open(error.into()));
                }
                Err(_) => tokio::time::sleep(OPEN_AGAIN).await,
            }
        };
        Ok(work(store, plan, &log).await?)
    });
    // What still hangs must not hang the process: it said that it is closed.
    runtime.shutdown_background();
    worked
}

//! Threads for timers and sockets, in a process that has no runtime of its own, and what a fork leaves
//! of them: nothing.

use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use thiserror::Error;
use tokio::runtime::{Builder, Handle, Runtime};

/// Threads for timers, sockets, and what goes on after its caller went away. Handlers run on the
/// host's own threads.
const THREADS: usize = 2;

/// Something cannot be used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CloseError {
    /// Threads do not survive a fork.
    #[error(
        "this {what} was opened in process {opened_in} and cannot be used after a fork: open one in each process"
    )]
    Forked {
        /// What was opened.
        what: &'static str,
        /// The process that opened it.
        opened_in: u32,
    },
    /// It is closed.
    #[error("this {what} is closed")]
    Closed {
        /// What is closed.
        what: &'static str,
    },
}

/// A runtime of one process.
pub(crate) struct Threads {
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
    is_stopped: AtomicBool,
    what: &'static str,
    process: u32,
}

impl Threads {
    /// Starts them for `what`, which errors name.
    pub(crate) fn start(what: &'static str) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("onlyonce")
            .enable_all()
            .build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
            is_stopped: AtomicBool::new(false),
            what,
            process: process::id(),
        })
    }

    /// The runtime, in the process that started it. Waits for nothing: hosts ask with locks of their own held.
    pub(crate) fn handle(&self) -> Result<&Handle, CloseError> {
        let what = self.what;
        if self.are_of_a_parent() {
            let opened_in = self.process;
            return Err(CloseError::Forked { what, opened_in });
        }
        match self.is_stopped.load(Ordering::Acquire) {
            true => Err(CloseError::Closed { what }),
            false => Ok(&self.handle),
        }
    }

    /// Whether they were started before a fork, so that this process has none of them.
    pub(crate) fn are_of_a_parent(&self) -> bool {
        process::id() != self.process
    }

    /// Stops them, in the process that started them.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        let runtime = {
            let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
            runtime.take()
        };
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if self.are_of_a_parent() {
            // To stop the parent's threads is to wait for what never comes; and one of them may have held the lock.
            let runtime = self.runtime.get_mut();
            std::mem::forget(runtime.unwrap_or_else(PoisonError::into_inner).take());
        } else {
            self.stop();
        }
    }
}

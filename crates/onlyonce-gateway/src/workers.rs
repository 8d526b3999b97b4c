//! The threads that serve connections. Each has a runtime of its own, and a connection stays on its
//! thread with everything it asks of the upstream, so that a request wakes no other thread.

use std::io;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The threads, numbered from zero. What still runs on them ends when they are closed or dropped.
pub(crate) struct Workers(Vec<Worker>);

struct Worker {
    runtime: Handle,
    thread: JoinHandle<()>,
    /// The thread runs until this is dropped.
    _stop: oneshot::Sender<()>,
}

impl Workers {
    /// One thread a core.
    pub(crate) fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, usize::from);
        (0..count)
            .map(Worker::start)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The runtimes, by number.
    pub(crate) fn runtimes(&self) -> Vec<Handle> {
        self.0.iter().map(|it| it.runtime.clone()).collect()
    }

    /// Ends all threads and waits for it.
    pub(crate) async fn close(self) {
        let threads: Vec<_> = self.0.into_iter().map(|it| it.thread).collect();
        let ended = tokio::task::spawn_blocking(move || {
            threads.into_iter().all(|thread| thread.join().is_ok())
        });
        if !ended.await.unwrap_or(false) {
            tracing::error!(target: "onlyonce", "a thread that serves connections panicked");
        }
    }
}

impl Worker {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(format!("onlyonce-{number}"))
            .spawn(move || drop(runtime.block_on(stopped)))?;
        Ok(Self {
            runtime: handle,
            thread,
            _stop: stop,
        })
    }
}

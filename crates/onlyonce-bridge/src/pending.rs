//! A result that the runtime is working on, for a host that polls or blocks until it is there.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// What a task will make. Dropped, the task is stopped.
pub struct Pending<T> {
    task: JoinHandle<T>,
    runtime: Handle,
}

impl<T: Send + 'static> Pending<T> {
    pub(crate) fn start(runtime: &Handle, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self {
            task: runtime.spawn(work),
            runtime: runtime.clone(),
        }
    }

    /// The result, once it is there; nothing if the task was stopped. Not to be polled after that.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.task).poll(cx).map(Result::ok)
    }

    /// Blocks this thread until the result is there or `at_most` has passed.
    pub fn wait(&mut self, at_most: Duration) -> Poll<Option<T>> {
        let task = &mut self.task;
        let waited = self
            .runtime
            .block_on(async { tokio::time::timeout(at_most, task).await });
        match waited {
            Ok(done) => Poll::Ready(done.ok()),
            Err(_elapsed) => Poll::Pending,
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

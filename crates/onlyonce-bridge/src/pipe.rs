//! A body on its way between a host language and the layer, in either direction. The writer is asked
//! to wait while much is queued, so that a slow reader bounds the memory that a body takes.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};
use thiserror::Error;

/// A writer waits while this much is queued.
const QUEUED_BYTES_MAX: usize = 256 << 10;

/// The body broke off before its end.
#[derive(Clone, Copy, Debug, Error)]
#[error("the body broke off before its end")]
pub struct Broken;

/// Makes the two ends of a body.
pub struct Pipe;

impl Pipe {
    /// A writer, and the body that it writes.
    pub fn ends() -> (Writer, PipeBody) {
        let shared = Arc::new(Shared::default());
        let body = PipeBody(Arc::clone(&shared));
        (Writer(shared), body)
    }
}

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    queue: VecDeque<Bytes>,
    queued_bytes: usize,
    end: Option<End>,
    /// The reader is gone: what is written is dropped.
    unread: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Broken,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes outside the lock: a waker may run any code.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The writing end. Dropped before [`end`](Self::end), the body is broken off.
pub struct Writer(Arc<Shared>);

impl Writer {
    /// Queues `data`; drops it if the reader is gone.
    pub fn send(&self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        let mut state = self.0.lock();
        if state.unread || state.end.is_some() {
            return;
        }
        state.queued_bytes += data.len();
        state.queue.push_back(data);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    /// Says that the body is complete.
    pub fn end(&self) {
        self.finish(End::Whole);
    }

    /// Says that the body broke off.
    pub fn break_off(&self) {
        self.finish(End::Broken);
    }

    fn finish(&self, how: End) {
        let mut state = self.0.lock();
        state.end.get_or_insert(how);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    /// Whether more may be written now; always, once the reader is gone.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.unread || state.queued_bytes < QUEUED_BYTES_MAX {
            return Poll::Ready(());
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the reader waits for more.
    pub(crate) fn is_wanted(&self) -> bool {
        let state = self.0.lock();
        state.reader.is_some() && state.queue.is_empty() && state.end.is_none()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.break_off();
    }
}

/// The reading end.
pub struct PipeBody(Arc<Shared>);

impl Body for PipeBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let mut state = self.0.lock();
        if let Some(data) = state.queue.pop_front() {
            state.queued_bytes -= data.len();
            let writer = state.writer.take();
            drop(state);
            wake(writer);
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match state.end {
            Some(End::Whole) => Poll::Ready(None),
            Some(End::Broken) => Poll::Ready(Some(Err(Broken))),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.lock();
        state.queue.is_empty() && state.end == Some(End::Whole)
    }
}

impl Drop for PipeBody {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.unread = true;
        state.queue.clear();
        state.queued_bytes = 0;
        let writer = state.writer.take();
        drop(state);
        wake(writer);
    }
}

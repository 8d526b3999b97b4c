//! Answers on their way to clients. On HTTP/2 a client can stop taking one of them and go on with the
//! rest of its connection, which bytes on the wire do not show: such a stream is reset by itself.
//!
//! HTTP/2 runs each stream in a task. [`StreamExecutor`] starts these tasks with a [`Progress`], which
//! the body of the answer keeps up to date: a task that waits although its body gave it something to
//! send waits for its client.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::Sleep;

use crate::body::{BoxError, GatewayBody};

/// What is handed over at a time, so that progress shows. It is the size of a frame anyway.
const PIECE_BYTES_MAX: usize = 16 * 1024;

tokio::task_local! {
    /// Of the stream that runs in this task.
    static PROGRESS: Arc<Progress>;
}

/// How far the answer of a stream has come.
#[derive(Default)]
pub(crate) struct Progress {
    /// Pieces of its body that were taken.
    pieces: AtomicUsize,
    /// There is something to send that the client does not take yet.
    is_held_up: AtomicBool,
}

/// Starts the tasks of HTTP/2, and ends those whose client takes nothing for too long.
#[derive(Clone)]
pub(crate) struct StreamExecutor {
    pause_max: Duration,
}

impl StreamExecutor {
    pub(crate) fn new(pause_max: Duration) -> Self {
        Self { pause_max }
    }
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
{
    fn execute(&self, stream: F) {
        let progress = Arc::<Progress>::default();
        let watched = watch(stream, Arc::clone(&progress), self.pause_max);
        tokio::spawn(PROGRESS.scope(progress, watched));
    }
}

/// Runs the task of a stream. It ends early, which resets the stream, if its client takes nothing for
/// `pause_max`.
async fn watch<F: Future>(stream: F, progress: Arc<Progress>, pause_max: Duration) {
    let mut stream = pin!(stream);
    // Runs while the answer is held up; with the piece since which it does.
    let mut pause: Option<(Pin<Box<Sleep>>, usize)> = None;
    poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !progress.is_held_up.load(Ordering::Relaxed) {
            pause = None;
            return Poll::Pending;
        }
        let pieces = progress.pieces.load(Ordering::Relaxed);
        let (sleep, _) = match pause.take() {
            Some((sleep, since)) if since == pieces => pause.insert((sleep, since)),
            _ => pause.insert((Box::pin(tokio::time::sleep(pause_max)), pieces)),
        };
        ready!(sleep.as_mut().poll(cx));
        tracing::debug!(target: "onlyonce", "a client does not take its answer: its stream is reset");
        Poll::Ready(())
    })
    .await;
}

/// The body of an answer, and what is to be kept until it has been sent.
pub(crate) struct Sending<K> {
    body: GatewayBody,
    /// On HTTP/2.
    progress: Option<Arc<Progress>>,
    /// What was too large for one piece.
    rest: Bytes,
    _kept: K,
}

impl<K> Sending<K> {
    /// Sends `body` on the stream of this task, and drops `kept` after that.
    pub(crate) fn new(body: GatewayBody, kept: K) -> Self {
        Self {
            body,
            progress: PROGRESS.try_with(Arc::clone).ok(),
            rest: Bytes::new(),
            _kept: kept,
        }
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.rest.is_empty() {
            let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES_MAX));
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let next = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if self.progress.is_none() {
            return Poll::Ready(next);
        }
        Poll::Ready(next.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|mut data| {
                    self.rest = data.split_off(data.len().min(PIECE_BYTES_MAX));
                    data
                })
            })
        }))
    }
}

impl<K: Unpin> Body for Sending<K> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let next = this.next(cx);
        if let Some(progress) = &this.progress {
            progress
                .is_held_up
                .store(next.is_ready(), Ordering::Relaxed);
            if next.is_ready() {
                progress.pieces.fetch_add(1, Ordering::Relaxed);
            }
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(rest));
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

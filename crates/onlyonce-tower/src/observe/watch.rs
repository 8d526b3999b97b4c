//! What rides along with both bodies of an exchange: each frame passes at once, and is looked at on
//! its way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::Exchange;

/// Looks at a request's body.
pub(crate) struct RequestWatch(Arc<Exchange>);

/// Looks at an answer's body.
pub(crate) struct AnswerWatch(Arc<Exchange>);

impl RequestWatch {
    /// Watches a body of which nothing was read.
    pub(crate) fn of<B: Body>(exchange: Arc<Exchange>, body: &B) -> Self {
        exchange.expects(body.size_hint().lower());
        if body.is_end_stream() {
            exchange.request_ended();
        }
        Self(exchange)
    }

    pub(crate) fn poll_frame<B: Body<Data = Bytes>>(
        &self,
        mut body: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(body.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.0.requested(data);
                }
                if body.is_end_stream() {
                    self.0.request_ended();
                }
            }
            Some(Err(_)) => self.0.request_broke(),
            None => self.0.request_ended(),
        }
        Poll::Ready(frame)
    }
}

impl Drop for RequestWatch {
    fn drop(&mut self) {
        self.0.request_left();
    }
}

impl AnswerWatch {
    /// Watches a body of which nothing was read.
    pub(crate) fn of<B: Body>(exchange: Arc<Exchange>, body: &B) -> Self {
        exchange.answers(body.size_hint().lower());
        if body.is_end_stream() {
            exchange.answer_ended();
        }
        Self(exchange)
    }

    pub(crate) fn poll_frame<B: Body<Data = Bytes>>(
        &self,
        mut body: Pin<&mut B>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(body.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.0.answered_bytes(data.len());
                }
                if let Some(trailers) = frame.trailers_ref() {
                    self.0.answered_trailers(trailers);
                }
                if body.is_end_stream() {
                    self.0.answer_ended();
                }
            }
            Some(Err(_)) => self.0.answer_broke(),
            None => self.0.answer_ended(),
        }
        Poll::Ready(frame)
    }
}

impl Drop for AnswerWatch {
    fn drop(&mut self) {
        // A caller that left would not have kept its request from running to its end.
        self.0.answer_ended();
    }
}

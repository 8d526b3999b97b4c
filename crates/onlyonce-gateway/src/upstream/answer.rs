//! The body of an upstream's answer, and the connection it still arrives on.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::line::Line;
use super::pool::Pool;

/// What an upstream answers.
pub(crate) enum AnswerBody {
    /// Read whole, or read by a task of its connection.
    Read(Incoming),
    /// Read from its connection as it is asked for.
    Arriving(Arriving),
}

/// A body that is still on its way.
pub(crate) struct Arriving {
    body: Incoming,
    /// Until the body ends, or nobody wants it.
    line: Option<Box<Line>>,
    /// Who gets the connection after that, if it can be used again.
    pool: Option<Arc<Pool>>,
}

impl AnswerBody {
    pub(super) fn arriving(body: Incoming, line: Box<Line>, pool: Option<Arc<Pool>>) -> Self {
        Self::Arriving(Arriving {
            body,
            line: Some(line),
            pool,
        })
    }
}

impl Arriving {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // Asking first tells the connection that there is room for more.
        let mut frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_pending()
            && let Some(line) = &mut self.line
        {
            line.poll_progress(cx);
            frame = Pin::new(&mut self.body).poll_frame(cx);
        }
        let is_last = match &frame {
            Poll::Ready(Some(Ok(_))) => self.body.is_end_stream(),
            Poll::Ready(Some(Err(_))) => {
                self.line = None;
                false
            }
            Poll::Ready(None) => true,
            Poll::Pending => false,
        };
        if is_last {
            let (line, pool) = (self.line.take(), self.pool.take());
            if let (Some(line), Some(pool)) = (line, pool) {
                pool.give_back(line, cx);
            }
        }
        frame
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Read(body) => Pin::new(body).poll_frame(cx),
            Self::Arriving(arriving) => arriving.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Read(body) => body.is_end_stream(),
            Self::Arriving(arriving) => arriving.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Read(body) => body.size_hint(),
            Self::Arriving(arriving) => arriving.body.size_hint(),
        }
    }
}

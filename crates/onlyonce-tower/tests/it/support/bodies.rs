//! A body in pieces, as a test wants them: many chunks, trailers, or an error half-way.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

/// A body that comes frame by frame and gives its length away to nobody.
#[derive(Default)]
pub(crate) struct Frames {
    frames: VecDeque<Result<Frame<Bytes>, BodyError>>,
}

/// Why a body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyError(&'static str);

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BodyError {}

impl BodyError {
    /// The innermost error's own words, however often it was wrapped.
    pub(super) fn find(error: &axum::Error) -> String {
        let mut innermost: &dyn std::error::Error = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        innermost.to_string()
    }
}

impl Frames {
    /// With one more piece of data.
    pub(crate) fn data(mut self, data: impl Into<Bytes>) -> Self {
        self.frames.push_back(Ok(Frame::data(data.into())));
        self
    }

    /// With trailers.
    pub(crate) fn trailers(mut self, trailers: HeaderMap) -> Self {
        self.frames.push_back(Ok(Frame::trailers(trailers)));
        self
    }

    /// Broken off here.
    pub(crate) fn broken(mut self, why: &'static str) -> Self {
        self.frames.push_back(Err(BodyError(why)));
        self
    }

    /// As a body.
    pub(crate) fn body(self) -> Body {
        Body::new(self)
    }
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.frames.pop_front())
    }
}

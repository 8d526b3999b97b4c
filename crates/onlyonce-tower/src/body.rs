//! Bodies on both sides of the layer: streamed through untouched, or whole in memory.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use pin_project_lite::pin_project;

use crate::buffer::{Held, Room};
use crate::observe::{AnswerWatch, RequestWatch};

/// A body that is all there: data, then trailers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    pub(crate) data: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Whole {
    fn next(&mut self) -> Option<Frame<Bytes>> {
        if !self.data.is_empty() {
            return Some(Frame::data(std::mem::take(&mut self.data)));
        }
        self.trailers.take().map(Frame::trailers)
    }

    fn is_end(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.len() as u64)
    }
}

pin_project! {
    /// What the inner service gets: the request's own body, or its bytes if it was buffered.
    pub struct RequestBody<B> {
        #[pin]
        kind: RequestKind<B>,
    }
}

pin_project! {
    #[project = RequestProjection]
    enum RequestKind<B> {
        Streamed { #[pin] body: B },
        Buffered { whole: Whole, room: Held },
        Watched { #[pin] body: B, watch: RequestWatch },
    }
}

/// A body as it comes, for what does not pass through the layer.
impl<B> From<B> for RequestBody<B> {
    fn from(body: B) -> Self {
        Self::streamed(body)
    }
}

impl<B> RequestBody<B> {
    pub(crate) fn streamed(body: B) -> Self {
        let kind = RequestKind::Streamed { body };
        Self { kind }
    }

    /// A body that is all there.
    pub fn whole(data: Bytes) -> Self {
        Self::held(data, Held::Nothing)
    }

    /// The same for what was read within a bound: its room stays taken until it is written, wherever the
    /// body goes.
    pub fn whole_within(data: Bytes, room: Arc<Room>) -> Self {
        Self::held(data, Held::Shared(room))
    }

    fn held(data: Bytes, room: Held) -> Self {
        let trailers = None;
        let whole = Whole { data, trailers };
        let kind = RequestKind::Buffered { whole, room };
        Self { kind }
    }

    pub(crate) fn buffered(whole: Whole, room: Room) -> Self {
        let room = Held::Own(room);
        let kind = RequestKind::Buffered { whole, room };
        Self { kind }
    }

    pub(crate) fn watched(body: B, watch: RequestWatch) -> Self {
        let kind = RequestKind::Watched { body, watch };
        Self { kind }
    }

    /// The data of a body that was read before anything ran: that of a keyed request.
    pub fn data(&self) -> Option<&Bytes> {
        match &self.kind {
            RequestKind::Buffered { whole, .. } => Some(&whole.data),
            RequestKind::Streamed { .. } | RequestKind::Watched { .. } => None,
        }
    }

    /// The same with other data, where it was read before anything ran.
    #[must_use]
    pub fn with_data(self, data: Bytes) -> Self {
        match self.kind {
            RequestKind::Buffered { whole, room } => {
                let whole = Whole { data, ..whole };
                let kind = RequestKind::Buffered { whole, room };
                Self { kind }
            }
            kind @ (RequestKind::Streamed { .. } | RequestKind::Watched { .. }) => Self { kind },
        }
    }
}

impl<B: Body<Data = Bytes>> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            RequestProjection::Streamed { body } => body.poll_frame(cx),
            RequestProjection::Buffered { whole, room } => {
                let frame = whole
                    .next()
                    .map(|frame| frame.map_data(|data| room.keep(data)));
                Poll::Ready(frame.map(Ok))
            }
            RequestProjection::Watched { body, watch } => watch.poll_frame(body, cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            RequestKind::Streamed { body } | RequestKind::Watched { body, .. } => {
                body.is_end_stream()
            }
            RequestKind::Buffered { whole, .. } => whole.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            RequestKind::Streamed { body } | RequestKind::Watched { body, .. } => body.size_hint(),
            RequestKind::Buffered { whole, .. } => whole.size_hint(),
        }
    }
}

pin_project! {
    /// What the caller gets: the inner service's own body, a stored one, or, where that could not
    /// be stored, its start from memory and the rest as it comes.
    pub struct ResponseBody<B: Body> {
        #[pin]
        kind: ResponseKind<B>,
    }
}

pin_project! {
    #[project = ResponseProjection]
    enum ResponseKind<B: Body> {
        Streamed { #[pin] body: B },
        Whole { whole: Whole },
        Resumed { resumed: Resumed<B> },
        Watched { #[pin] body: B, watch: AnswerWatch },
    }
}

/// A body of which the start was read: the rest follows, or the error that broke it off.
pub(crate) struct Resumed<B: Body> {
    pub(crate) start: Bytes,
    pub(crate) broken: Option<B::Error>,
    pub(crate) rest: Pin<Box<B>>,
}

impl<B: Body> Resumed<B> {
    /// Whether it broke off, rather than being too large.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }
}

impl<B: Body<Data = Bytes>> Resumed<B> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if !self.start.is_empty() {
            let start = std::mem::take(&mut self.start);
            return Poll::Ready(Some(Ok(Frame::data(start))));
        }
        match self.broken.take() {
            Some(error) => Poll::Ready(Some(Err(error))),
            None => self.rest.as_mut().poll_frame(cx),
        }
    }

    fn is_end(&self) -> bool {
        self.start.is_empty() && self.broken.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let start = self.start.len() as u64;
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(start.saturating_add(rest.lower()));
        if let Some(upper) = rest.upper() {
            hint.set_upper(start.saturating_add(upper));
        }
        hint
    }
}

impl<B: Body> ResponseBody<B> {
    pub(crate) fn streamed(body: B) -> Self {
        let kind = ResponseKind::Streamed { body };
        Self { kind }
    }

    pub(crate) fn whole(whole: Whole) -> Self {
        let kind = ResponseKind::Whole { whole };
        Self { kind }
    }

    pub(crate) fn watched(body: B, watch: AnswerWatch) -> Self {
        let kind = ResponseKind::Watched { body, watch };
        Self { kind }
    }

    pub(crate) fn resumed(resumed: Resumed<B>) -> Self {
        let kind = ResponseKind::Resumed { resumed };
        Self { kind }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            ResponseProjection::Streamed { body } => body.poll_frame(cx),
            ResponseProjection::Whole { whole } => Poll::Ready(whole.next().map(Ok)),
            ResponseProjection::Resumed { resumed } => resumed.poll_frame(cx),
            ResponseProjection::Watched { body, watch } => watch.poll_frame(body, cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            ResponseKind::Streamed { body } | ResponseKind::Watched { body, .. } => {
                body.is_end_stream()
            }
            ResponseKind::Whole { whole } => whole.is_end(),
            ResponseKind::Resumed { resumed } => resumed.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            ResponseKind::Streamed { body } | ResponseKind::Watched { body, .. } => {
                body.size_hint()
            }
            ResponseKind::Whole { whole } => whole.size_hint(),
            ResponseKind::Resumed { resumed } => resumed.size_hint(),
        }
    }
}

/// A body read into memory, as far as it was allowed to and could be.
pub(crate) enum Gathered<E> {
    /// To its end.
    Whole(Whole),
    /// Up to the bound, or as far as there was room; there is more.
    Over(Bytes),
    /// It broke off.
    Broken(Bytes, E),
}

/// Reads `body` into memory, at most `bytes_max` of it, and no more than `room` has room for.
pub(crate) async fn gather<B>(
    mut body: Pin<&mut B>,
    bytes_max: usize,
    room: &mut Room,
) -> Gathered<B::Error>
where
    B: Body<Data = Bytes>,
{
    let mut pieces = Pieces::default();
    let mut trailers: Option<HeaderMap> = None;
    if body.size_hint().lower() > bytes_max as u64 {
        return Gathered::Over(Bytes::new());
    }
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Gathered::Broken(pieces.into_bytes(), error),
        };
        match frame.into_data() {
            Ok(data) => {
                let has_room = room.take(data.len());
                pieces.push(data);
                if pieces.len() > bytes_max || !has_room {
                    return Gathered::Over(pieces.into_bytes());
                }
            }
            Err(frame) => {
                if let Ok(more) = frame.into_trailers() {
                    trailers.get_or_insert_default().extend(more);
                }
            }
        }
    }
    Gathered::Whole(Whole {
        data: pieces.into_bytes(),
        trailers,
    })
}

/// What was read of a body. Most bodies are one piece, which is kept as it is. Of more, each is copied
/// and dropped at once: a piece of one byte can keep a whole read buffer alive, so that memory would
/// follow how often a client sends rather than how much.
#[derive(Default)]
pub(crate) struct Pieces {
    first: Bytes,
    /// All of it, as soon as there are two pieces.
    joined: Vec<u8>,
}

impl Pieces {
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    pub(crate) fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if self.joined.is_empty() {
            self.joined.reserve(self.first.len() + data.len());
            self.joined
                .extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&data);
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() {
            self.first
        } else {
            self.joined.into_boxed_slice().into()
        }
    }
}

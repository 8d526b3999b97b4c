//! What the gateway answers with: the upstream's own bytes, streamed, or a few of its own.

use std::error::Error;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use onlyonce_core::Reason;
use onlyonce_tower::{Linger, ResponseBody};
use serde_json::json;
use thiserror::Error;
use tokio::time::Sleep;

use crate::failure::{Failure, Problem};
use crate::upstream::AnswerBody;

/// What a client sends. A client that stops in the middle, or sends too slowly to end in time, is not
/// waited for for ever. What is not wanted of it is read nevertheless, within bounds, so that the
/// client hears the answer.
pub(crate) struct ClientBody {
    /// Until its end was read.
    inner: Option<Incoming>,
    patience: BodyPatience,
    /// The client sends only when it is told to, which reading does, and nothing was read yet.
    waits_for_leave: bool,
    is_bounded_as_a_whole: bool,
    /// Runs while there is nothing to read.
    pause: Option<Pin<Box<Sleep>>>,
    /// Runs from the first time that there was nothing to read, where the whole has a bound.
    whole: Option<Pin<Box<Sleep>>>,
}

/// How long to wait for a client's body.
#[derive(Clone, Copy)]
pub(crate) struct BodyPatience {
    /// For its next bytes.
    pub(crate) pause_max: Duration,
    /// For all of it, where it is read before anything runs.
    pub(crate) whole_max: Duration,
    /// For what is left of it when the answer is there.
    pub(crate) linger: Linger,
}

/// A client stopped sending in the middle of its request.
#[derive(Debug, Error)]
#[error("the client stopped sending its request")]
struct Stopped;

impl ClientBody {
    pub(crate) fn new(inner: Incoming, patience: BodyPatience, waits_for_leave: bool) -> Self {
        Self {
            inner: Some(inner),
            patience,
            waits_for_leave,
            is_bounded_as_a_whole: false,
            pause: None,
            whole: None,
        }
    }

    pub(crate) fn empty() -> Self {
        let patience = BodyPatience {
            pause_max: Duration::MAX,
            whole_max: Duration::MAX,
            linger: Linger::NONE,
        };
        Self {
            inner: None,
            patience,
            waits_for_leave: false,
            is_bounded_as_a_whole: false,
            pause: None,
            whole: None,
        }
    }

    /// Bounds how long all of it may take, however steadily it comes.
    pub(crate) fn bound_as_a_whole(&mut self) {
        self.is_bounded_as_a_whole = true;
    }

    /// Ready when the client has kept us waiting for too long.
    fn poll_impatience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let BodyPatience {
            pause_max,
            whole_max,
            ..
        } = self.patience;
        let sleep = |time| Box::pin(tokio::time::sleep(time));
        if self.is_bounded_as_a_whole {
            let whole = self.whole.get_or_insert_with(|| sleep(whole_max));
            if whole.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
        }
        let pause = self.pause.get_or_insert_with(|| sleep(pause_max));
        pause.as_mut().poll(cx)
    }

    /// Whether an error comes from a client that stopped sending.
    pub(crate) fn stopped(error: &(dyn Error + 'static)) -> bool {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if error.is::<Stopped>() {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let Some(inner) = &mut this.inner else {
            return Poll::Ready(None);
        };
        this.waits_for_leave = false;
        if let Poll::Ready(frame) = Pin::new(inner).poll_frame(cx) {
            this.pause = None;
            if !matches!(frame, Some(Ok(_))) {
                this.inner = None;
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(this.poll_impatience(cx));
        // There is nothing to hear for a client that was given up on.
        this.inner = None;
        Poll::Ready(Some(Err(Stopped.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Some(inner) => inner.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take()
            && !self.waits_for_leave
        {
            self.patience.linger.read_on(inner);
        }
    }
}

/// The body of an answer.
pub(crate) enum GatewayBody {
    /// Through the layer: streamed, stored or replayed.
    Answered(ResponseBody<AnswerBody>),
    /// Past the layer.
    Passed(AnswerBody),
    /// The gateway's own words.
    Own(Full<Bytes>),
    /// A stream of events that the gateway writes, or writes anew.
    Events(UnsyncBoxBody<Bytes, BoxError>),
}

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Answered(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Passed(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Own(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Self::Events(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Answered(body) => body.is_end_stream(),
            Self::Passed(body) => body.is_end_stream(),
            Self::Own(body) => body.is_end_stream(),
            Self::Events(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Answered(body) => body.size_hint(),
            Self::Passed(body) => body.size_hint(),
            Self::Own(body) => body.size_hint(),
            Self::Events(body) => body.size_hint(),
        }
    }
}

pub(crate) fn answered(body: ResponseBody<AnswerBody>) -> GatewayBody {
    GatewayBody::Answered(body)
}

pub(crate) fn passed(body: AnswerBody) -> GatewayBody {
    GatewayBody::Passed(body)
}

/// The answer in place of an upstream that gave none.
pub(crate) fn upstream_failed(failure: &Failure) -> Response<GatewayBody> {
    let Problem {
        status,
        kind,
        title,
        detail,
        retryable,
    } = failure.problem();
    let mut response = problem_with(status, kind, title, &detail, Some(retryable));
    if retryable {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

pub(crate) fn empty() -> GatewayBody {
    GatewayBody::Own(Full::default())
}

pub(crate) fn not_found() -> Response<GatewayBody> {
    problem(
        StatusCode::NOT_FOUND,
        "no-route",
        "No route",
        "No route of this gateway matches the request.",
    )
}

pub(crate) fn headers_too_large() -> Response<GatewayBody> {
    problem(
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        "headers-too-large",
        "Headers too large",
        "The header section of the request is larger than this gateway takes.",
    )
}

/// A problem of the gateway's own (RFC 9457).
pub(crate) fn problem(
    status: StatusCode,
    kind: &str,
    title: &str,
    detail: &str,
) -> Response<GatewayBody> {
    problem_with(status, kind, title, detail, None)
}

/// The answer to a message for which there is no room in memory.
pub(crate) fn too_much_buffered(retry_after: Duration) -> Response<GatewayBody> {
    let reason = Reason::TooMuchBuffered;
    let mut response = problem_with(
        StatusCode::SERVICE_UNAVAILABLE,
        reason.name(),
        "Too many request bodies in memory",
        reason.explanation(),
        Some(true),
    );
    let seconds = retry_after.as_secs().max(1);
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    response
}

/// The same with a word on whether to repeat the request.
fn problem_with(
    status: StatusCode,
    kind: &str,
    title: &str,
    detail: &str,
    retryable: Option<bool>,
) -> Response<GatewayBody> {
    let mut body = json!({
        "type": format!("urn:onlyonce:problem:{kind}"),
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    });
    if let Some(retryable) = retryable {
        body["retryable"] = json!(retryable);
    }
    let mut response = Response::new(GatewayBody::Own(Full::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    response
}

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
use hyper::body::Incoming;
use onlyonce_tower::ResponseBody;
use serde_json::json;
use thiserror::Error;
use tokio::time::Sleep;

use crate::upstream::UpstreamError;

/// What a client sends. A client that stops in the middle is not waited for for ever.
pub(crate) struct ClientBody {
    inner: Option<Incoming>,
    pause_max: Duration,
    /// Runs while there is nothing to read.
    pause: Option<Pin<Box<Sleep>>>,
}

/// A client stopped sending in the middle of its request.
#[derive(Debug, Error)]
#[error("the client stopped sending its request")]
struct Stopped;

impl ClientBody {
    pub(crate) fn new(inner: Incoming, pause_max: Duration) -> Self {
        Self {
            inner: Some(inner),
            pause_max,
            pause: None,
        }
    }

    pub(crate) fn empty() -> Self {
        Self {
            inner: None,
            pause_max: Duration::MAX,
            pause: None,
        }
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
        if let Poll::Ready(frame) = Pin::new(inner).poll_frame(cx) {
            this.pause = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let pause_max = this.pause_max;
        let pause = this
            .pause
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(pause_max)));
        ready!(pause.as_mut().poll(cx));
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

/// The body of an answer.
pub(crate) enum GatewayBody {
    /// Through the layer: streamed, stored or replayed.
    Answered(ResponseBody<Incoming>),
    /// Past the layer.
    Passed(Incoming),
    /// The gateway's own words.
    Own(Full<Bytes>),
}

type BoxError = Box<dyn Error + Send + Sync>;

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
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Answered(body) => body.is_end_stream(),
            Self::Passed(body) => body.is_end_stream(),
            Self::Own(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Answered(body) => body.size_hint(),
            Self::Passed(body) => body.size_hint(),
            Self::Own(body) => body.size_hint(),
        }
    }
}

pub(crate) fn answered(body: ResponseBody<Incoming>) -> GatewayBody {
    GatewayBody::Answered(body)
}

pub(crate) fn passed(body: Incoming) -> GatewayBody {
    GatewayBody::Passed(body)
}

/// The answer in place of an upstream that gave none.
pub(crate) fn upstream_failed(error: &UpstreamError) -> Response<GatewayBody> {
    let (status, kind, title, detail) = match error {
        UpstreamError::Unreachable(_) => (
            StatusCode::BAD_GATEWAY,
            "upstream-unreachable",
            "Bad gateway",
            "The service behind this gateway could not be reached. Nothing ran: retry with the same key.",
        ),
        UpstreamError::Lost(_) => (
            StatusCode::BAD_GATEWAY,
            "upstream-lost",
            "Bad gateway",
            "The service behind this gateway was lost before it answered. Retry with the same key to learn the outcome.",
        ),
        UpstreamError::Slow => (
            StatusCode::GATEWAY_TIMEOUT,
            "upstream-slow",
            "Gateway timeout",
            "The service behind this gateway did not answer in time. It may still do what it was asked.",
        ),
        UpstreamError::Unsent(_) => (
            StatusCode::REQUEST_TIMEOUT,
            "request-stopped",
            "Request timeout",
            "The request stopped in the middle of its body.",
        ),
    };
    let mut response = problem(status, kind, title, detail);
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
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
    let body = json!({
        "type": format!("urn:onlyonce:problem:{kind}"),
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    });
    let mut response = Response::new(GatewayBody::Own(Full::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    response
}

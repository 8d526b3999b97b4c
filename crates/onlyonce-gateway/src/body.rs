//! What the gateway answers with: the upstream's own bytes, streamed, or a few of its own.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use onlyonce_core::Release;
use onlyonce_tower::ResponseBody;
use serde_json::json;

use crate::upstream::UpstreamError;

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
    let (kind, detail) = match error.release {
        Release::NotRun => (
            "upstream-unreachable",
            "The service behind this gateway could not be reached. Nothing ran: retry with the same key.",
        ),
        Release::Unknown => (
            "upstream-lost",
            "The service behind this gateway was lost before it answered. Retry with the same key to learn the outcome.",
        ),
    };
    let mut response = problem(StatusCode::BAD_GATEWAY, kind, "Bad gateway", detail);
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

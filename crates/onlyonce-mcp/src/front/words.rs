//! What clients hear of the front itself: HTTP responses, and errors of JSON-RPC in them.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::json;

use super::budget::Whole;
use super::stream::Reader;
use crate::members::raw;
use crate::message::{Id, Reply};
use crate::sse::event;

/// The body of an answer.
pub type FrontBody = UnsyncBoxBody<Bytes, Infallible>;

pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
pub(super) const INTERNAL_ERROR: i32 = -32603;
/// Since 2026-07-28.
pub(super) const HEADER_MISMATCH: i32 = -32020;
pub(super) const UNSUPPORTED_VERSION: i32 = -32022;

/// How long a stream may be silent before a comment keeps its connection open.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(15);
/// When a client whose stream broke off should come back.
const BACK_AFTER_MS: u64 = 500;

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Response<FrontBody> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = status;
    response
}

/// One message, or several in an array.
pub(super) fn json(status: StatusCode, text: impl Into<Whole>) -> Response<FrontBody> {
    let body = Full::new(Bytes::from_owner(text.into()));
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// An error of JSON-RPC, for a message whose id is not known or that is none.
pub(super) fn refused(status: StatusCode, code: i32, why: &str) -> Response<FrontBody> {
    refused_as(status, code, why, &Id::null())
}

/// The same for a request of this id.
pub(super) fn refused_as(status: StatusCode, code: i32, why: &str, id: &Id) -> Response<FrontBody> {
    let error = raw(&json!({"code": code, "message": format!("onlyonce: {why}")}));
    let mut response = json(status, Reply::Error(error).message(id));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let after = HeaderValue::from_static("1");
        response.headers_mut().insert(RETRY_AFTER, after);
    }
    response
}

/// A revision of the protocol that is not spoken here, with those that are.
pub(super) fn unsupported(version: &str, supported: &[&str], id: &Id) -> Response<FrontBody> {
    let message = format!("onlyonce: this revision of the protocol is not known here: {version}");
    let data = json!({"supported": supported, "requested": version});
    let error = raw(&json!({"code": UNSUPPORTED_VERSION, "message": message, "data": data}));
    json(StatusCode::BAD_REQUEST, Reply::Error(error).message(id))
}

pub(super) fn not_allowed(allowed: &'static str) -> Response<FrontBody> {
    let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
    let allowed = HeaderValue::from_static(allowed);
    response.headers_mut().insert(ALLOW, allowed);
    response
}

/// The answer to a request whose server has ended.
pub(super) fn server_gone(id: &Id) -> String {
    let message = "onlyonce: the server ended before it answered. Whether this request took effect is not known.";
    let error = raw(&json!({"code": INTERNAL_ERROR, "message": message}));
    Reply::Error(error).message(id)
}

/// What stands for an answer that could not be held for a client that does not read.
pub(super) fn not_kept(id: &Id) -> String {
    let message = "onlyonce: the server has answered, but this client leaves too much unread for its answer to be kept. A call with a key can be sent again.";
    let error = raw(&json!({"code": INTERNAL_ERROR, "message": message}));
    Reply::Error(error).message(id)
}

/// The answer to a request that its client cancelled itself, where there must be one.
pub(super) fn cancelled() -> String {
    let error =
        raw(&json!({"code": INTERNAL_ERROR, "message": "onlyonce: the request was cancelled"}));
    Reply::Error(error).message(&Id::null())
}

/// How a stream is written.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// Events have ids: a client can come back and read on.
    pub(super) has_ids: bool,
    /// It begins with an event that has nothing but an id, so that even a client that heard nothing can.
    pub(super) is_primed: bool,
}

/// A stream of events.
pub(super) fn events(
    reader: Reader,
    first: Option<(u64, Whole)>,
    form: Form,
) -> Response<FrontBody> {
    let mut start = String::new();
    if form.is_primed {
        let (stream, event) = (reader.stream(), reader.position());
        start = format!("id: {stream}-{event}\nretry: {BACK_AFTER_MS}\ndata: \n\n");
    }
    let telling = Telling {
        reader,
        start: Some(start).filter(|start| !start.is_empty()),
        first,
        form,
    };
    let frames = stream::unfold(telling, |mut telling| async move {
        let text = telling.next().await?;
        Some((Ok(Frame::data(Bytes::from_owner(text))), telling))
    });
    let frames: Frames = Box::pin(frames);
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    let fresh = HeaderValue::from_static("no-cache, no-transform");
    headers.insert(CACHE_CONTROL, fresh);
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    headers.insert(unbuffered, HeaderValue::from_static("no"));
    response
}

type Frames = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;

struct Telling {
    reader: Reader,
    start: Option<String>,
    first: Option<(u64, Whole)>,
    form: Form,
}

impl Telling {
    async fn next(&mut self) -> Option<Whole> {
        if let Some(start) = self.start.take() {
            return Some(start.into());
        }
        if let Some((number, message)) = self.first.take() {
            let written = self.written(number, &message);
            return Some(message.becoming(written));
        }
        match tokio::time::timeout(SILENCE_MAX, self.reader.next()).await {
            Ok(Some((number, message))) => {
                let written = self.written(number, &message);
                Some(Whole::new(written, vec![message]))
            }
            Ok(None) => None,
            Err(_) => Some(":\n\n".to_owned().into()),
        }
    }

    fn written(&self, number: u64, message: &str) -> String {
        let event = event(message);
        if self.form.has_ids {
            format!("id: {}-{number}\n{event}", self.reader.stream())
        } else {
            event
        }
    }
}

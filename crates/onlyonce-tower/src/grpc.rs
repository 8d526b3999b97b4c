//! gRPC speaks of success and failure in its own status, carried in headers or trailers of an
//! HTTP 200. Here it is translated, both ways.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use onlyonce_core::{Reason, Refusal};

use crate::body::Whole;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Whether these are the headers of a gRPC message.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// The HTTP status that means what this response means: policies speak HTTP.
pub(crate) fn effective_status(
    status: StatusCode,
    headers: &HeaderMap,
    trailers: Option<&HeaderMap>,
) -> u16 {
    let code = trailers
        .and_then(|trailers| trailers.get(GRPC_STATUS))
        .or_else(|| headers.get(GRPC_STATUS))
        .filter(|_| is_grpc(headers))
        .and_then(|value| value.to_str().ok()?.parse().ok());
    code.map_or(status.as_u16(), |code: u32| match code {
        0 => status.as_u16(),
        1 => 499,
        3 | 9 | 11 => 400,
        4 => 504,
        5 => 404,
        6 | 10 => 409,
        7 => 403,
        8 => 429,
        12 => 501,
        14 => 503,
        16 => 401,
        _ => 500,
    })
}

/// A refusal as gRPC says it: all in the headers, nothing in the body.
pub(crate) fn refuse(refusal: &Refusal) -> Response<Whole> {
    let code = match refusal.reason {
        Reason::MissingKey
        | Reason::BadKey
        | Reason::BadTtl
        | Reason::RequestUnreadable
        | Reason::RequestEncoded => "3",
        Reason::RequestTooLarge
        | Reason::TooManyWaiters
        | Reason::OverQuota
        | Reason::TooManyBadRequests => "8",
        Reason::KeyOutOfTime | Reason::Mismatch | Reason::OtherCredential | Reason::Unscoped => "9",
        Reason::InProgress => "10",
        Reason::Unverified => "16",
        Reason::OutcomeUnknown | Reason::Panicked => "2",
        Reason::TimedOut => "4",
        Reason::TooManyRunning
        | Reason::TooMuchBuffered
        | Reason::NotRun
        | Reason::NotStored
        | Reason::StoreDown
        | Reason::ShuttingDown => "14",
        Reason::ResponseTooLarge => "15",
    };
    let mut response = Response::new(Whole::default());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(GRPC_STATUS, HeaderValue::from_static(code));
    if let Ok(message) = HeaderValue::from_str(&percent_encoded(&refusal.detail)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    response
}

/// `grpc-message` is percent-encoded outside printable ASCII.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

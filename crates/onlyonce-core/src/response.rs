//! What is stored and replayed: an HTTP answer, or a function's serialised value.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// One answer, as it is replayed. Headers are already filtered: what is volatile never gets here.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status; 200 for a function's value.
    pub status: StatusCode,
    /// Headers worth replaying, repeated ones in their order.
    pub headers: HeaderMap,
    /// The body's bytes, exactly.
    pub body: Bytes,
    /// HTTP trailers; gRPC keeps its status here.
    pub trailers: Option<HeaderMap>,
    /// Who made it.
    pub origin: Origin,
    /// How long the handler ran.
    pub took: Duration,
    /// The id of what was made, where the handler named it: for audits and operators.
    pub resource: Option<String>,
}

/// Who made a response: the handler, or we in its stead. The latter have no body of their own;
/// whoever shows them renders one in the policy's envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The handler's own answer.
    Handler,
    /// The handler panicked.
    Panicked,
    /// The handler's answer was over the bound; it ran, and must not run again.
    TooLarge,
}

impl Response {
    /// An answer of the handler with neither headers nor trailers.
    pub fn new(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            body: body.into(),
            trailers: None,
            origin: Origin::Handler,
            took: Duration::ZERO,
            resource: None,
        }
    }

    /// The stand-in for a handler that panicked.
    pub fn panicked() -> Self {
        Self {
            origin: Origin::Panicked,
            ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, Bytes::new())
        }
    }

    /// The stand-in for an answer that was too large to store.
    pub fn too_large() -> Self {
        Self {
            origin: Origin::TooLarge,
            ..Self::new(StatusCode::INSUFFICIENT_STORAGE, Bytes::new())
        }
    }

    /// Whether this is the answer of an operation that failed.
    pub fn is_failure(&self) -> bool {
        self.status.as_u16() >= 400
    }

    /// How much room it takes in a store, near enough for bounds.
    pub fn bytes(&self) -> usize {
        let headers = |map: &HeaderMap| -> usize {
            map.iter()
                .map(|(name, value)| name.as_str().len() + value.len())
                .sum()
        };
        self.body.len() + headers(&self.headers) + self.trailers.as_ref().map_or(0, headers)
    }
}

/// Bodies and header values may hold secrets: only sizes are shown.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status.as_u16())
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

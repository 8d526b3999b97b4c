//! What passes on its way to a client, and is heard all the same: a server says that its tools have changed, and then
//! nothing that is known of them counts.

use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use onlyonce_mcp::parts::Events;

use super::{Endpoint, Terms};
use crate::body::{self, BoxError, GatewayBody, passed};
use crate::failure::Failure;
use crate::upstream::AnswerBody;

/// A larger message is not the one.
const NOTICE_BYTES_MAX: usize = 4 << 10;

impl Endpoint {
    /// Passes an answer of the server on as it is.
    pub(super) fn to_client(
        &self,
        answer: Result<Response<AnswerBody>, Failure>,
    ) -> Response<GatewayBody> {
        match answer {
            Ok(response) if is_stream(response.headers()) => {
                let terms = Arc::clone(&self.terms);
                response.map(|body| watched(body, terms))
            }
            Ok(response) => response.map(passed),
            Err(failure) => body::upstream_failed(&failure),
        }
    }
}

impl Terms {
    /// Hears a message of the server.
    pub(super) fn hear(&self, message: &str) {
        self.catalog().catalog.hear(message);
    }
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"))
        && !headers.contains_key(CONTENT_ENCODING)
}

fn watched(body: AnswerBody, terms: Arc<Terms>) -> GatewayBody {
    let mut events = Events::small(NOTICE_BYTES_MAX);
    let body = body.map_frame(move |frame| {
        let heard = frame.data_ref().and_then(|piece| events.feed(piece).ok());
        for event in heard.unwrap_or_default() {
            event.data.iter().for_each(|message| terms.hear(message));
        }
        frame
    });
    GatewayBody::Events(body.map_err(BoxError::from).boxed_unsync())
}

//! The forms that an answer can have: JSON, or a stream of events.

use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use onlyonce_mcp::parts::event;

use crate::body::GatewayBody;

/// Which forms of an answer a caller takes.
#[derive(Clone, Copy)]
pub(super) struct Takes {
    json: bool,
    pub(super) events: bool,
}

impl Takes {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accepts = |kinds: &[&str]| {
            let lines = headers
                .get_all(ACCEPT)
                .iter()
                .filter_map(|it| it.to_str().ok());
            let mut all = lines.flat_map(|line| line.split(','));
            all.any(|it| {
                let kind = it.split(';').next().unwrap_or_default().trim();
                kinds.iter().any(|known| kind.eq_ignore_ascii_case(known))
            })
        };
        let events = accepts(&["text/event-stream"]);
        Self {
            json: !events || accepts(&["application/json", "application/*", "*/*"]),
            events,
        }
    }

    pub(super) fn whole(self, message: &str) -> Response<GatewayBody> {
        if !self.json {
            return self.events_of(GatewayBody::Own(Full::from(event(message))));
        }
        let mut response = Response::new(GatewayBody::Own(Full::from(message.to_owned())));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }

    pub(super) fn events_of(self, body: GatewayBody) -> Response<GatewayBody> {
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(
            CACHE_CONTROL,
            HeaderValue::from_static("no-cache, no-transform"),
        );
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }
}

/// The answer to what cannot be read.
pub(super) fn refused_unread(answer: String) -> Response<GatewayBody> {
    let mut response = Response::new(GatewayBody::Own(Full::from(answer)));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

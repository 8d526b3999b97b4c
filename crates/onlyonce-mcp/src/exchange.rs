//! One request over HTTP and its answer, which comes as JSON or in a stream of events; a stream that
//! breaks off is taken up again where the server lets it be.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use crate::message::{Id, Message, each};
use crate::sse::Events;

pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
pub(crate) const EVENT_STREAM: &str = "text/event-stream";
/// Reconnects in a row that bring nothing.
const RESUMES_MAX: u32 = 5;
/// The pause before a reconnect, unless the server says otherwise, and the longest it can ask for.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The body of a server's answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// A request that was not answered.
#[derive(Clone, Debug)]
pub enum Unanswered {
    /// No byte of it can have reached the server.
    NotSent(String),
    /// It may have arrived.
    Lost(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) => write!(f, "the server was not reached: {why}"),
            Self::Lost(why) => write!(f, "the server's answer was lost: {why}"),
        }
    }
}

/// Sends requests to one MCP server over HTTP.
pub trait Http: Send + Sync {
    /// Sends a request; returns the head of its answer as soon as it is there.
    fn send(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, Unanswered>>;
}

/// What became of a request.
#[derive(Debug)]
pub enum Exchanged {
    /// The response to it, as it came, and the headers that it came with.
    Answered {
        /// The JSON-RPC message.
        message: String,
        /// The headers of the HTTP response.
        headers: Box<HeaderMap>,
    },
    /// An HTTP response without one.
    Refused(Box<Response<Bytes>>),
    /// None.
    Unanswered(Unanswered),
}

/// Sends a request and waits for its response. Every other message that comes before it goes to `other`.
pub async fn exchange(
    http: &dyn Http,
    request: Request<Bytes>,
    id: &Id,
    bytes_max: usize,
    other: &mut (dyn FnMut(String) -> BoxFuture<'static, ()> + Send),
) -> Exchanged {
    let again = resumption(&request);
    let response = match http.send(request).await {
        Ok(response) => response,
        Err(unanswered) => return Exchanged::Unanswered(unanswered),
    };
    let (head, body) = response.into_parts();
    let headers = Box::new(head.headers.clone());
    if !is_stream(&head.headers) {
        let lost = |why: &str| Exchanged::Unanswered(Unanswered::Lost(why.into()));
        let Some(body) = whole(body, bytes_max).await else {
            return lost("it broke off, or is too large");
        };
        let text = String::from_utf8_lossy(&body);
        let mut found = None;
        for message in each(text.into_owned()) {
            // What answers the id was read, whatever the status: servers map a tool's exception to one,
            // also if it was raised after the effect.
            if answers(&message, id) {
                found = Some(message);
            } else if head.status.is_success() && is_message(&message) {
                other(message).await;
            }
        }
        return match found {
            Some(message) => Exchanged::Answered { message, headers },
            None => Exchanged::Refused(Box::new(Response::from_parts(head, body))),
        };
    }
    let mut stream = Stream {
        body,
        events: Events::new(bytes_max),
        last_id: None,
    };
    let mut resumes = 0;
    loop {
        let heard = stream.hear(id, other).await;
        match heard {
            Heard::Answer(message) => return Exchanged::Answered { message, headers },
            Heard::End { any: true } => resumes = 0,
            Heard::End { any: false } => resumes += 1,
        }
        let broke_off = || Unanswered::Lost("the stream ended before the answer".into());
        let (Some(last_id), true) = (&stream.last_id, resumes < RESUMES_MAX) else {
            return Exchanged::Unanswered(broke_off());
        };
        let pause = stream.events.retry().unwrap_or(PAUSE).min(PAUSE_MAX);
        tokio::time::sleep(pause).await;
        match http.send(again(last_id)).await {
            Ok(response) if response.status().is_success() && is_stream(response.headers()) => {
                stream.body = response.into_body();
                stream.events = Events::new(bytes_max);
            }
            // It may be on its way up again.
            Err(_) => {
                stream.body = UnsyncBoxBody::new(
                    http_body_util::Empty::new().map_err(|never| match never {}),
                );
            }
            Ok(_) => return Exchanged::Unanswered(broke_off()),
        }
    }
}

/// All of a body, if it comes to its end within the bound.
pub(crate) async fn whole(mut body: AnswerBody, bytes_max: usize) -> Option<Bytes> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.ok()?;
        let piece = frame.data_ref().map_or(&[][..], |piece| &piece[..]);
        if whole.len() + piece.len() > bytes_max {
            return None;
        }
        whole.extend_from_slice(piece);
    }
    Some(whole.freeze())
}

struct Stream {
    body: AnswerBody,
    events: Events,
    last_id: Option<String>,
}

enum Heard {
    Answer(String),
    End { any: bool },
}

impl Stream {
    /// Hears messages until the answer to `id`, or the end.
    async fn hear(
        &mut self,
        id: &Id,
        other: &mut (dyn FnMut(String) -> BoxFuture<'static, ()> + Send),
    ) -> Heard {
        let mut any = false;
        while let Some(Ok(frame)) = self.body.frame().await {
            let Some(piece) = frame.data_ref() else {
                continue;
            };
            let Ok(events) = self.events.feed(piece) else {
                self.last_id = None;
                break;
            };
            for event in events {
                any = true;
                self.last_id = event.id.or(self.last_id.take());
                for message in event.data.map(each).unwrap_or_default() {
                    if answers(&message, id) {
                        return Heard::Answer(message);
                    }
                    other(message).await;
                }
            }
        }
        Heard::End { any }
    }
}

/// Whether a message is the response to the request of this id.
pub(crate) fn answers(message: &str, id: &Id) -> bool {
    matches!(Message::read(message), Message::Response { id: of, .. } if of == *id)
}

/// Whether it is one at all: an error page is none.
fn is_message(text: &str) -> bool {
    !matches!(Message::read(text), Message::Unreadable | Message::Other)
}

pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case(EVENT_STREAM))
}

/// Makes the request that takes a stream up again.
fn resumption(request: &Request<Bytes>) -> impl Fn(&str) -> Request<Bytes> + use<> {
    let (uri, mut headers) = (request.uri().clone(), request.headers().clone());
    headers.remove(CONTENT_TYPE);
    headers.remove(CONTENT_LENGTH);
    headers.insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
    move |last_id| {
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers.clone();
        if let Ok(last_id) = HeaderValue::from_str(last_id) {
            request.headers_mut().insert(LAST_EVENT_ID, last_id);
        }
        request
    }
}

/// Whether a server that answers with this status, and with nothing to the request's id, says so before it
/// looks at the tool: who asks, where, in which session, in which form. No JSON-RPC error says as much.
pub fn is_before_the_tool(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        307 | 308 | 400 | 401 | 403 | 404 | 405 | 406 | 407 | 413 | 415 | 421 | 425 | 429
    )
}

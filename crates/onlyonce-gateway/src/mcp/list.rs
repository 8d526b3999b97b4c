//! Lists of tools on their way to a client: each tool that is covered gets the key. And the lists that we
//! ask for ourselves, to know which tools are.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, request};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use onlyonce_mcp::parts::{Events, Exchanged, Id, Reply, ToolCall, each, event, exchange};
use serde_json::Value;

use super::inner::{MESSAGE_BYTES_MAX, name_method, own_id, post};
use super::wire::Wire;
use super::{Endpoint, Terms};
use crate::body::{BoxError, GatewayBody, problem};
use crate::forward::Peer;
use crate::upstream::AnswerBody;

const PAGES_MAX: u32 = 100;
const LIST_WAIT_MAX: Duration = Duration::from_secs(10);

impl Endpoint {
    /// Passes a request for the list of tools on, and changes what comes back.
    pub(super) async fn list(
        &self,
        mut parts: request::Parts,
        text: String,
        id: &Id,
    ) -> Response<GatewayBody> {
        // What is changed must not come back compressed.
        let identity = HeaderValue::from_static("identity");
        parts.headers.insert(ACCEPT_ENCODING, identity);
        let answer = match self.send(parts, text).await {
            Ok(answer) if answer.status().is_success() => answer,
            answer => return self.to_client(answer),
        };
        let (mut head, body) = answer.into_parts();
        let kind = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let is_stream = kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"));
        head.headers.remove(CONTENT_LENGTH);
        let terms = Arc::clone(&self.terms);
        if is_stream {
            let body = in_events(body, terms, id.clone());
            return Response::from_parts(head, GatewayBody::Events(body));
        }
        match Limited::new(body, MESSAGE_BYTES_MAX).collect().await {
            Ok(body) => {
                let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
                let text = changed(&terms, text, id);
                Response::from_parts(head, GatewayBody::Own(Full::from(text)))
            }
            Err(_) => problem(
                http::StatusCode::BAD_GATEWAY,
                "upstream-lost",
                "Bad gateway",
                "The list of tools broke off, or is too large.",
            ),
        }
    }

    /// Whether a tool is covered. One that even the server's list does not have is, if the settings let it.
    pub(super) async fn covers(&self, parts: &request::Parts, call: &ToolCall) -> bool {
        let known = || self.terms.catalog().catalog.covers(call.tool());
        if let Some(is_covered) = known() {
            return is_covered;
        }
        let learning = self.learn(parts, call);
        drop(tokio::time::timeout(LIST_WAIT_MAX, learning).await);
        known().unwrap_or_else(|| self.terms.rules.tools.include(call.tool()))
    }

    /// Asks the server for its tools, as the caller would.
    async fn learn(&self, parts: &request::Parts, call: &ToolCall) -> Option<()> {
        let mut headers = parts.headers.clone();
        headers.remove(&self.terms.key_header);
        name_method(&mut headers, "tools/list", None);
        let peer = parts.extensions.get::<Peer>();
        let wire = Wire::to(&self.service.inner().0, peer);
        let mut cursor = None::<String>;
        for page in 0..PAGES_MAX {
            let id = own_id(page);
            let message = call.list_request(&id, cursor.as_deref());
            let list = self.page(&wire, parts, &headers, message, &id).await?;
            let next: Value = serde_json::from_str(&list).ok()?;
            cursor = Some(next["nextCursor"].as_str()?.to_owned());
        }
        None
    }

    async fn page(
        &self,
        wire: &Wire,
        parts: &request::Parts,
        headers: &HeaderMap,
        message: String,
        id: &Id,
    ) -> Option<String> {
        let request = post(&parts.uri, headers, message);
        let mut other = |message: String| {
            self.terms.hear(&message);
            std::future::ready(()).boxed()
        };
        let exchanged = exchange(wire, request, id, MESSAGE_BYTES_MAX, &mut other).await;
        let Exchanged::Answered { message, .. } = exchanged else {
            return None;
        };
        let Reply::Result(list) = Reply::of(&message)? else {
            return None;
        };
        let text = list.get().to_owned();
        let tools = &self.terms.rules.tools;
        self.terms.catalog().catalog.learn(list, tools);
        Some(text)
    }
}

/// A message as the client gets it: the list of tools changed, everything else as it is.
pub(super) fn changed(terms: &Terms, text: String, id: &Id) -> String {
    let mut messages = each(text);
    for message in &mut messages {
        if let Some(list) = list_in(message, id) {
            let list = terms.catalog().catalog.learn(list, &terms.rules.tools);
            *message = Reply::Result(list).message(id);
        } else {
            terms.hear(message);
        }
    }
    match &messages[..] {
        [message] => message.clone(),
        several => format!("[{}]", several.join(",")),
    }
}

fn list_in(message: &str, id: &Id) -> Option<Box<serde_json::value::RawValue>> {
    match Reply::to(message, id)? {
        Reply::Result(list) => Some(list),
        Reply::Error(_) => None,
    }
}

/// A stream of events with the list of tools in it.
fn in_events(
    body: AnswerBody,
    terms: Arc<Terms>,
    id: Id,
) -> http_body_util::combinators::UnsyncBoxBody<Bytes, BoxError> {
    let state = (body, Events::new(MESSAGE_BYTES_MAX));
    let frames = stream::try_unfold(state, move |(mut body, mut events)| {
        let (terms, id) = (Arc::clone(&terms), id.clone());
        async move {
            loop {
                let Some(frame) = body.frame().await else {
                    return Ok(None);
                };
                let frame = frame.map_err(BoxError::from)?;
                let Some(piece) = frame.data_ref() else {
                    continue;
                };
                let heard = events.feed(piece).map_err(BoxError::from)?;
                let mut text = String::new();
                for one in heard {
                    if let Some(id) = &one.id {
                        text.push_str(&format!("id: {id}\n"));
                    }
                    match one.data {
                        Some(data) => text.push_str(&event(&changed(&terms, data, &id))),
                        None => text.push_str("data:\n\n"),
                    }
                }
                if !text.is_empty() {
                    return Ok(Some((Frame::data(Bytes::from(text)), (body, events))));
                }
            }
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

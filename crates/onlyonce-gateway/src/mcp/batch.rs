//! Several messages at once, as revision 2025-03-26 has them: each call with a key runs once, on its own, and
//! the rest goes on together.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, future};
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode, request};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use onlyonce_mcp::parts::{Decision, Events, Id, Reply, ToolCall, each, event, has_key};
use onlyonce_tower::RequestBody;

use super::answer::{Begun, Telling};
use super::form::{Takes, refused_unread};
use super::inner::MESSAGE_BYTES_MAX;
use super::list::changed;
use super::{Endpoint, Terms, no_id};
use crate::body::{BoxError, ClientBody, GatewayBody, problem};
use crate::upstream::AnswerBody;

/// Calls with a key in one batch.
const CALLS_MAX: usize = 100;

/// A batch, taken apart.
#[derive(Default)]
struct Batch {
    calls: Vec<(Id, Arc<ToolCall>)>,
    rest: Vec<String>,
    /// Requests for the list of tools, among the rest.
    lists: Vec<Id>,
    /// Whether the rest is not what came.
    is_changed: bool,
}

impl Endpoint {
    pub(super) async fn batch(
        &self,
        mut parts: request::Parts,
        messages: Vec<String>,
        text: String,
        asked: Option<Request<RequestBody<ClientBody>>>,
    ) -> Response<GatewayBody> {
        let batch = match self.take_apart(&parts, messages).await {
            Ok(batch) => batch,
            Err(refused) => return *refused,
        };
        if batch.calls.is_empty() && !batch.is_changed && batch.lists.is_empty() {
            return self.to_client(self.send(parts, text).await);
        }
        // One of the calls may be a replay, which does not reach the server.
        if let (Some(check), Some(asked), false) = (&self.check, asked, batch.calls.is_empty()) {
            let checked = check.pass(asked, Response::new(GatewayBody::Own(Full::default())));
            let checked = checked.await;
            if !checked.status().is_success() {
                return checked;
            }
        }
        let takes = Takes::of(&parts.headers);
        let identity = HeaderValue::from_static("identity");
        parts.headers.insert(ACCEPT_ENCODING, identity);
        let mut answers = Vec::new();
        if !batch.rest.is_empty() {
            let mut parts = parts.clone();
            parts.headers.remove(&self.terms.key_header);
            let answer = self.send(parts, in_one(&batch.rest)).await;
            // What refuses the rest would refuse the calls, which have not begun.
            match answer {
                Ok(answer) if answer.status().is_success() => {
                    answers.push(messages_in(answer, Arc::clone(&self.terms), batch.lists));
                }
                answer => return self.to_client(answer),
            }
        }
        for (id, call) in batch.calls {
            answers.push(match self.begin(parts.clone(), &id, &call) {
                Begun::Answered(reply) => stream::once(future::ready(reply.message(&id))).boxed(),
                Begun::Running(answering, heard) => Telling::of(answering, heard, id).messages(),
            });
        }
        told(stream::select_all(answers).boxed(), takes).await
    }

    /// Nothing of a batch is passed on that has something to refuse in it.
    async fn take_apart(
        &self,
        parts: &request::Parts,
        messages: Vec<String>,
    ) -> Result<Batch, Box<Response<GatewayBody>>> {
        let decisions: Vec<_> = messages.iter().map(|it| self.decide(parts, it)).collect();
        let mut calls = 0;
        for decision in &decisions {
            match decision {
                Decision::Refuse(answer) => return Err(Box::new(refused_unread(answer.clone()))),
                Decision::Call { id: None, .. } => return Err(Box::new(no_id())),
                Decision::Call { id: Some(_), .. } => calls += 1,
                Decision::Pass | Decision::Cancel(_) | Decision::List(_) => {}
            }
        }
        if calls > CALLS_MAX {
            return Err(Box::new(problem(
                StatusCode::BAD_REQUEST,
                "large-batch",
                "Too many calls in a batch",
                "A batch has at most 100 tool calls with a key. Nothing of it was passed on.",
            )));
        }
        let mut batch = Batch::default();
        for (message, decision) in messages.into_iter().zip(decisions) {
            match decision {
                Decision::Call { id: Some(id), call } => {
                    let is_covered = self.covers(parts, &call).await;
                    match (is_covered, has_key(&call, &self.terms.rules)) {
                        (false, _) => batch.rest.push(message),
                        (true, false) => {
                            batch.is_changed = true;
                            batch.rest.push(call.message());
                        }
                        (true, true) => batch.calls.push((id, Arc::new(*call))),
                    }
                }
                Decision::List(id) => {
                    batch.lists.push(id);
                    batch.rest.push(message);
                }
                Decision::Pass
                | Decision::Cancel(_)
                | Decision::Refuse(_)
                | Decision::Call { id: None, .. } => batch.rest.push(message),
            }
        }
        Ok(batch)
    }
}

/// A single message needs no array.
fn in_one(messages: &[String]) -> String {
    match messages {
        [message] => message.clone(),
        several => format!("[{}]", several.join(",")),
    }
}

/// The messages in an answer of the server, lists of tools with the key in them.
fn messages_in(
    answer: Response<AnswerBody>,
    terms: Arc<Terms>,
    lists: Vec<Id>,
) -> BoxStream<'static, String> {
    let (head, body) = answer.into_parts();
    let kind = head.headers.get(CONTENT_TYPE).map(|it| it.as_bytes());
    let is_stream = kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"));
    let texts = if is_stream {
        in_events(body)
    } else {
        let whole = async move {
            // A body that breaks off has no answers that could be told.
            let body = Limited::new(body, MESSAGE_BYTES_MAX).collect().await.ok()?;
            Some(String::from_utf8_lossy(&body.to_bytes()).into_owned())
        };
        stream::once(whole).filter_map(future::ready).boxed()
    };
    let messages = texts.map(move |text| {
        let messages = each(text).into_iter().filter(|it| !it.trim().is_empty());
        let with_key = |message: String| {
            terms.hear(&message);
            lists.iter().fold(message, |it, id| changed(&terms, it, id))
        };
        stream::iter(messages.map(with_key).collect::<Vec<_>>())
    });
    messages.flatten().boxed()
}

fn in_events(body: AnswerBody) -> BoxStream<'static, String> {
    let state = (body, Events::new(MESSAGE_BYTES_MAX));
    let texts = stream::unfold(state, |(mut body, mut events)| async move {
        loop {
            let frame = body.frame().await?.ok()?;
            let Some(piece) = frame.data_ref() else {
                continue;
            };
            let heard = events.feed(piece).ok()?;
            let texts: Vec<_> = heard.into_iter().filter_map(|event| event.data).collect();
            if !texts.is_empty() {
                return Some((stream::iter(texts), (body, events)));
            }
        }
    });
    texts.flatten().boxed()
}

/// Tells every message as it comes; or the answers alone, in one piece.
async fn told(messages: BoxStream<'static, String>, takes: Takes) -> Response<GatewayBody> {
    if takes.events {
        let frames = messages.map(|message| {
            let event = Bytes::from(event(&message));
            Ok::<_, BoxError>(Frame::data(event))
        });
        let body = StreamBody::new(frames).boxed_unsync();
        return takes.events_of(GatewayBody::Events(body));
    }
    let answers = messages.filter(|message| future::ready(Reply::of(message).is_some()));
    let answers: Vec<String> = answers.collect().await;
    takes.whole(&format!("[{}]", answers.join(",")))
}

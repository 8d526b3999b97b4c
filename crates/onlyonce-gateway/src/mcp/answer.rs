//! From the layer's answer to the caller's: with the caller's own id, as JSON or as a stream of events,
//! as the caller takes it. What the server says before its answer makes it a stream.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode, request};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use onlyonce_core::{KeyError, Reason, Refusal, Release};
use onlyonce_mcp::parts::{
    Audience, Id, KeyOrigin, Reply, ToolCall, event, is_failure, key_text, not_verifiable, refused,
    repeated,
};
use onlyonce_tower::{BrokenOff, Refused, Replayed, RequestBody, ResponseBody};
use tokio::sync::mpsc;
use tower_service::Service as _;

use super::form::Takes;
use super::inner::{Forwarded, is_reply};
use super::{Endpoint, Meaning};
use crate::body::{BoxError, ClientBody, GatewayBody};
use crate::failure::Failure;
use crate::forward::Peer;

/// Messages of the server that the caller has not taken yet.
const NOTICES_MAX: usize = 64;
/// Keeps keys that are made of a call's name apart from those that were sent.
const CALL_ID: &str = "call-id:";

/// What a caller gets in the end.
pub(super) enum Said {
    /// An answer to its call.
    Reply(Reply, IsReplay),
    /// An HTTP response of the server, or of the layer.
    Response(Response<Bytes>),
}

pub(super) struct IsReplay(bool);

/// A call that was put on its way, or answered without that.
pub(super) enum Begun {
    Answered(Reply),
    /// Its end, and what the server says before it.
    Running(BoxFuture<'static, Said>, mpsc::Receiver<String>),
}

impl Endpoint {
    /// Runs a call once.
    pub(super) async fn once(
        &self,
        parts: request::Parts,
        id: Id,
        call: Arc<ToolCall>,
        asked: Option<Request<RequestBody<ClientBody>>>,
    ) -> Response<GatewayBody> {
        let takes = Takes::of(&parts.headers);
        match self.begin(parts, &id, &call) {
            Begun::Answered(reply) => takes.whole(&reply.message(&id)),
            Begun::Running(answering, heard) => self.told(answering, heard, takes, id, asked).await,
        }
    }

    /// Puts a call on its way to the layer. It starts when it is polled.
    pub(super) fn begin(&self, mut parts: request::Parts, id: &Id, call: &Arc<ToolCall>) -> Begun {
        let rules = &self.terms.rules;
        let (text, origin) = match key_text(call, rules) {
            Ok(key) => key,
            Err(refusal) => {
                let audience = self.audience(call, KeyOrigin::Sent);
                return Begun::Answered(refused(&refusal, &audience));
            }
        };
        let audience = self.audience(call, origin);
        let lines = parts.headers.get_all(&self.terms.key_header).iter().count();
        if lines > 1 {
            let why = Refusal::new(Reason::BadKey).because(KeyError::Several { lines });
            return Begun::Answered(refused(&why, &audience));
        }
        if let Some(verify) = rules.verify(call.tool())
            && !verify.can_ask(call, &text)
        {
            return Begun::Answered(not_verifiable(verify.asks(), audience.says_complete));
        }
        let (notices, heard) = mpsc::channel(NOTICES_MAX);
        let sent = parts.headers.remove(&self.terms.key_header);
        let forwarded = Arc::new(Forwarded {
            call: Arc::clone(call),
            is_verified: rules.verify(call.tool()).is_some(),
            id: id.clone(),
            headers: parts.headers.clone(),
            uri: parts.uri.clone(),
            peer: parts.extensions.get::<Peer>().cloned(),
            terms: Arc::clone(&self.terms),
            notices,
            server: self.service.inner().0.clone(),
            room: parts.extensions.get().cloned(),
        });
        let Some(key) = key_header(&text, origin, sent) else {
            let why = Refusal::new(Reason::BadKey).because("a header cannot have it");
            return Begun::Answered(refused(&why, &audience));
        };
        parts.headers.insert(self.terms.key_header.clone(), key);
        let json = HeaderValue::from_static("application/json");
        parts.headers.insert(CONTENT_TYPE, json);
        parts.extensions.insert(forwarded);
        let request = Request::from_parts(parts, Full::from(call.meaning()));
        Begun::Running(self.clone().answering(request, audience).boxed(), heard)
    }

    fn audience(&self, call: &ToolCall, origin: KeyOrigin) -> Audience {
        Audience {
            origin,
            says_complete: call.says_complete(),
            on_lapse: self.terms.on_lapse,
        }
    }

    /// What becomes of a call. Dropped before its end, the call goes on all the same.
    async fn answering(mut self, request: Request<Meaning>, audience: Audience) -> Said {
        let response = match self.service.call(request).await {
            Ok(response) => response,
            Err(failure) => return Said::Reply(failed(&failure, &audience), IsReplay(false)),
        };
        let is_replay = response.extensions().get::<Replayed>().is_some();
        if let Some(Refused(refusal)) = response.extensions().get() {
            if refusal.reason == Reason::Unverified {
                return whole(response).await;
            }
            return Said::Reply(refused(refusal, &audience), IsReplay(false));
        }
        if response.extensions().get::<BrokenOff>().is_some() {
            let unknown = Refusal::new(Reason::OutcomeUnknown);
            return Said::Reply(refused(&unknown, &audience), IsReplay(false));
        }
        if !is_reply(response.status()) {
            return whole(response).await;
        }
        let Said::Response(response) = whole(response).await else {
            unreachable!("it is read as a response");
        };
        let body = response.into_body();
        let reply = match (is_replay, Reply::restored(&body)) {
            (false, Some(reply)) => reply,
            (true, reply) | (false, reply @ None) => {
                let status = match reply.as_ref().is_some_and(is_failure) {
                    true => StatusCode::INTERNAL_SERVER_ERROR,
                    false => StatusCode::OK,
                };
                let stored = onlyonce_core::Response::new(status, body);
                repeated(&stored, audience.origin)
            }
        };
        Said::Reply(reply, IsReplay(is_replay))
    }

    /// Tells the caller: in one piece, or piece by piece if the server has something to say before.
    async fn told(
        &self,
        mut answering: BoxFuture<'static, Said>,
        mut heard: mpsc::Receiver<String>,
        takes: Takes,
        id: Id,
        asked: Option<Request<RequestBody<ClientBody>>>,
    ) -> Response<GatewayBody> {
        let first = tokio::select! {
            biased;
            Some(notice) = heard.recv(), if takes.events => notice,
            said = &mut answering => return self.told_whole(said, takes, &id, asked).await,
        };
        let mut telling = Telling::of(answering, heard, id);
        telling.next = Some(first);
        let body = StreamBody::new(telling.events());
        takes.events_of(GatewayBody::Events(body.boxed_unsync()))
    }

    async fn told_whole(
        &self,
        said: Said,
        takes: Takes,
        id: &Id,
        asked: Option<Request<RequestBody<ClientBody>>>,
    ) -> Response<GatewayBody> {
        let (reply, IsReplay(is_replay)) = match said {
            Said::Response(response) => {
                return response.map(|body| GatewayBody::Own(Full::new(body)));
            }
            Said::Reply(reply, is_replay) => (reply, is_replay),
        };
        let response = takes.whole(&reply.message(id));
        match (&self.check, asked) {
            (Some(check), Some(asked)) if is_replay => check.pass(asked, response).await,
            (Some(_) | None, _) => response,
        }
    }
}

/// The key as the layer reads it. One that came as a header stays as it came.
fn key_header(text: &str, origin: KeyOrigin, sent: Option<HeaderValue>) -> Option<HeaderValue> {
    if sent
        .as_ref()
        .is_some_and(|it| it.as_bytes() == text.as_bytes())
    {
        return sent;
    }
    let prefix = match origin {
        KeyOrigin::Sent => "",
        KeyOrigin::CallId | KeyOrigin::Derived => CALL_ID,
    };
    let is_plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    let value = HeaderValue::from_str(&format!("\"{prefix}{text}\""));
    value.ok().filter(|_| is_plain)
}

fn failed(failure: &Failure, audience: &Audience) -> Reply {
    let reason = match failure.release() {
        Release::NotRun => Reason::NotRun,
        Release::Unknown => Reason::OutcomeUnknown,
    };
    refused(&Refusal::new(reason), audience)
}

/// A response whose body is all there.
async fn whole(response: Response<ResponseBody<Full<Bytes>>>) -> Said {
    let (mut parts, body) = response.into_parts();
    // It was read whole before: from a store, or from the server.
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    parts.headers.remove(CONTENT_LENGTH);
    Said::Response(Response::from_parts(parts, body.unwrap_or_default()))
}

/// An answer that is told piece by piece.
pub(super) struct Telling {
    answering: Option<BoxFuture<'static, Said>>,
    heard: mpsc::Receiver<String>,
    next: Option<String>,
    id: Id,
}

type Events = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, BoxError>> + Send>>;

impl Telling {
    pub(super) fn of(
        answering: BoxFuture<'static, Said>,
        heard: mpsc::Receiver<String>,
        id: Id,
    ) -> Self {
        Self {
            answering: Some(answering),
            heard,
            next: None,
            id,
        }
    }

    /// Its messages, the answer last.
    pub(super) fn messages(self) -> BoxStream<'static, String> {
        let messages = stream::unfold(self, |mut telling| async move {
            let message = telling.next().await?;
            Some((message, telling))
        });
        messages.boxed()
    }

    fn events(self) -> Events {
        Box::pin(stream::unfold(self, |mut telling| async move {
            let message = telling.next().await?;
            let frame = Frame::data(Bytes::from(event(&message)));
            Some((Ok(frame), telling))
        }))
    }

    /// The next message; nothing after the answer.
    async fn next(&mut self) -> Option<String> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        let answering = self.answering.as_mut()?;
        let said = tokio::select! {
            biased;
            Some(notice) = self.heard.recv() => return Some(notice),
            said = answering => said,
        };
        self.answering = None;
        Some(match said {
            Said::Reply(reply, _) => reply.message(&self.id),
            Said::Response(response) => {
                let status = response.status();
                let why = format!("onlyonce: the server answered with {status}");
                error(&why, &self.id)
            }
        })
    }
}

fn error(why: &str, id: &Id) -> String {
    let error = serde_json::json!({"code": -32603, "message": why});
    let error = serde_json::value::to_raw_value(&error);
    Reply::Error(error.expect("text is JSON")).message(id)
}

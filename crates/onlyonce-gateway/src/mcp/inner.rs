//! What runs behind the layer: the call goes to the server, and its answer becomes what is stored, without
//! the id, which belongs to one request.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::{ACCEPT, CONTENT_TYPE, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use onlyonce_core::{Execution, Finding};
use onlyonce_mcp::parts::{
    About, Exchanged, Id, Reply, ToolCall, exchange, is_before_the_tool, outcome_of,
};
use onlyonce_mcp::{Errors, Http, Unanswered};
use onlyonce_tower::{Reconciler, RequestBody, Room};
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::sync::mpsc;
use tower_service::Service;

use super::wire::Wire;
use super::{Meaning, Terms};
use crate::failure::{Failure, Sent};
use crate::forward::Peer;
use crate::identify::Identified;
use crate::upstream::{Upstream, UpstreamError};

/// The largest message of a server.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// A caller that does not take what the server says meanwhile is not waited for any longer.
const NOTICE_MAX: Duration = Duration::from_secs(30);

/// A call on its way through the layer.
pub(crate) struct Forwarded {
    pub(super) call: Arc<ToolCall>,
    /// Whether another tool is asked about it, should its answer be lost.
    pub(super) is_verified: bool,
    pub(super) id: Id,
    /// As the caller sent them, without a key of ours.
    pub(super) headers: HeaderMap,
    pub(super) uri: Uri,
    pub(super) peer: Option<Peer>,
    /// What is known of the server's tools is of their route.
    pub(super) terms: Arc<Terms>,
    /// Where everything goes that the server says before its answer.
    pub(super) notices: mpsc::Sender<String>,
    /// The connections of the caller's own thread.
    pub(super) server: Identified,
    /// That of the message that the call came in, as long as the call is in memory.
    pub(super) room: Option<Arc<Room>>,
}

impl Forwarded {
    /// A request for the server with another message of this caller.
    pub(super) fn request(&self, message: String) -> Request<Bytes> {
        post(&self.uri, &self.headers, message)
    }
}

pub(super) fn post(uri: &Uri, headers: &HeaderMap, message: String) -> Request<Bytes> {
    let mut request = Request::new(Bytes::from(message));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.clone();
    let own = request.headers_mut();
    own.clone_from(headers);
    own.remove(IF_NONE_MATCH);
    own.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let both = HeaderValue::from_static("application/json, text/event-stream");
    own.insert(ACCEPT, both);
    request
}

/// The server behind the layer.
#[derive(Clone)]
pub(crate) struct Inner(pub(crate) Identified);

impl Inner {
    pub(crate) fn upstream(&self) -> &Upstream {
        &self.0.upstream
    }

    pub(crate) fn over(&self, upstream: Upstream) -> Self {
        Self(self.0.over(upstream))
    }
}

impl Service<Request<RequestBody<Meaning>>> for Inner {
    type Response = Response<Full<Bytes>>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Failure>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody<Meaning>>) -> Self::Future {
        let sent = Sent::of(&request);
        let execution = request.extensions().get::<Execution>().cloned();
        let forwarded = request.extensions().get::<Arc<Forwarded>>().cloned();
        let forwarded = forwarded.expect("the endpoint puts one into every request");
        let wire = Wire {
            server: self.0.clone(),
            peer: forwarded.peer.clone(),
            execution: execution.clone(),
            room: forwarded.room.clone(),
        };
        async move {
            run(&wire, &forwarded, execution.as_ref())
                .await
                .map_err(|error| Failure { error, sent })
        }
        .boxed()
    }
}

async fn run(
    wire: &Wire,
    forwarded: &Forwarded,
    execution: Option<&Execution>,
) -> Result<Response<Full<Bytes>>, UpstreamError> {
    let message = match execution {
        Some(execution) if forwarded.is_verified => forwarded.call.identified(execution).message(),
        Some(_) | None => forwarded.call.message(),
    };
    let request = forwarded.request(message);
    let notices = forwarded.notices.clone();
    let mut other = move |message: String| {
        forwarded.terms.hear(&message);
        let notices = notices.clone();
        async move {
            // One that is gone needs none.
            drop(tokio::time::timeout(NOTICE_MAX, notices.send(message)).await);
        }
        .boxed()
    };
    let exchanged = exchange(wire, request, &forwarded.id, MESSAGE_BYTES_MAX, &mut other).await;
    let lost = |why: String| {
        if let Some(execution) = execution {
            // A connection that ends does not end the tool.
            execution.may_go_on();
        }
        UpstreamError::Lost(why.into())
    };
    match exchanged {
        Exchanged::Answered { message, .. } => {
            let reply = Reply::of(&message).ok_or_else(|| lost("it is no answer".into()))?;
            if let Some(execution) = execution {
                outcome_of(&reply, Errors::Replay, execution);
            }
            let mut response = Response::new(Full::from(reply.stored()));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            Ok(response)
        }
        Exchanged::Refused(refused) if is_before_the_tool(refused.status()) => {
            if let Some(execution) = execution {
                execution.do_not_store();
            }
            Ok(refused.map(Full::new))
        }
        Exchanged::Refused(refused) => Err(lost(format!(
            "it answered with {} and no message",
            refused.status()
        ))),
        Exchanged::Unanswered(Unanswered::NotSent(why)) => {
            Err(UpstreamError::Unreachable(why.into()))
        }
        Exchanged::Unanswered(Unanswered::Lost(why)) => Err(lost(why)),
    }
}

/// Finds out by another tool whether a call happened; nothing where no tool has one.
pub(crate) fn reconciler(terms: &Arc<Terms>) -> Option<Reconciler> {
    if terms.rules.reconcile.is_empty() {
        return None;
    }
    let terms = Arc::clone(terms);
    Some(Reconciler::new(move |question| {
        let terms = Arc::clone(&terms);
        async move {
            let forwarded = question.parts().extensions.get::<Arc<Forwarded>>();
            match forwarded {
                Some(forwarded) => look(&terms, forwarded, question.execution()).await,
                None => Finding::CannotTell,
            }
        }
    }))
}

async fn look(terms: &Terms, forwarded: &Forwarded, execution: &Execution) -> Finding {
    let Some(verify) = terms.rules.verify(forwarded.call.tool()) else {
        return Finding::CannotTell;
    };
    let operation = execution.operation().to_string();
    let about = About {
        call: &forwarded.call,
        key: execution.key().expose(),
        operation: &operation,
    };
    let id = own_id(execution.attempt());
    let Some(question) = verify.question(&about, &id) else {
        return Finding::CannotTell;
    };
    let mut request = forwarded.request(question);
    name_method(request.headers_mut(), "tools/call", Some(verify.asks()));
    let wire: Arc<dyn Http> = Wire::to(&forwarded.server, forwarded.peer.as_ref());
    let mut other = |_| std::future::ready(()).boxed();
    match exchange(&*wire, request, &id, MESSAGE_BYTES_MAX, &mut other).await {
        Exchanged::Answered { message, .. } => verify.read(Reply::of(&message).as_ref()),
        Exchanged::Refused(_) | Exchanged::Unanswered(_) => Finding::CannotTell,
    }
}

/// An id of a request of ours. Its answer comes on a stream of its own.
pub(super) fn own_id(number: u32) -> Id {
    let name = to_raw_value(&json!(format!("onlyonce-{number}")));
    Id::of(&name.expect("text is JSON"))
}

/// Says in the headers which message it is, where the protocol's version has it there.
pub(super) fn name_method(headers: &mut HeaderMap, method: &'static str, name: Option<&str>) {
    let repeated: Vec<HeaderName> = headers
        .keys()
        .filter(|it| it.as_str().starts_with("mcp-param-") || it.as_str() == "mcp-name")
        .cloned()
        .collect();
    for header in repeated {
        headers.remove(header);
    }
    if !headers.contains_key("mcp-method") {
        return;
    }
    headers.insert("mcp-method", HeaderValue::from_static(method));
    if let Some(Ok(name)) = name.map(HeaderValue::from_str) {
        headers.insert("mcp-name", name);
    }
}

/// Whether an answer of the layer is one of the tool, and no HTTP response of its server.
pub(super) fn is_reply(status: StatusCode) -> bool {
    status == StatusCode::OK
}

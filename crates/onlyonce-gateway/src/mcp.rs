//! A route that is an MCP endpoint. Tool calls go through the layer as the keyed requests that they are:
//! their meaning without the JSON-RPC id, under their caller's scope. Everything else passes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, ORIGIN};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, request,
};
use http_body_util::Full;
use onlyonce_core::{Clock as _, OnLapse, SystemClock};
use onlyonce_mcp::Rules;
use onlyonce_mcp::parts::{Catalog, Decision, Id, ToolCall, decide, each, has_key};
use onlyonce_tower::{BufferLimit, Idempotent, KnownHosts, NotBuffered, RequestBody, Room};
use tower_service::Service as _;

use crate::auth_check::AuthCheck;
use crate::body::{ClientBody, GatewayBody, problem, too_much_buffered};
use crate::failure::Failure;
use crate::upstream::{AnswerBody, Upstream};

pub(crate) use self::inner::{Inner, reconciler};

mod answer;
mod batch;
mod form;
mod inner;
mod list;
mod watch;
mod wire;

type Classify = fn(&Failure) -> onlyonce_core::Release;
/// How long what is known of a server's tools counts: it may be replaced without a word.
const CATALOG_AGE_MAX: Duration = Duration::from_secs(300);

/// What all threads share of a route.
pub(crate) struct Terms {
    pub(crate) rules: Rules,
    pub(crate) origins: Vec<String>,
    /// What this gateway is asked for by, if it is known: a browser says no origin when it reads from the
    /// page's own host, which may be a name that was made to point here.
    pub(crate) hosts: Option<KnownHosts>,
    pub(crate) key_header: HeaderName,
    pub(crate) on_lapse: OnLapse,
    pub(crate) request_bytes_max: usize,
    /// Messages are read here, and not by the layer: within the same bound as the bodies that it reads.
    buffers: BufferLimit,
    retry_after: Duration,
    catalog: Mutex<Known>,
}

/// The server's tools, and since when they are known.
struct Known {
    catalog: Catalog,
    /// A clock that was started then.
    since: SystemClock,
}

impl Terms {
    pub(crate) fn new(
        rules: Rules,
        origins: Vec<String>,
        hosts: Option<KnownHosts>,
        policy: &onlyonce_core::Policy,
        buffers: BufferLimit,
    ) -> Self {
        let is_reconciled = !rules.reconcile.is_empty();
        Self {
            hosts: hosts.map(|hosts| hosts.and(origins.iter().filter_map(|it| host_of(it)))),
            origins,
            key_header: policy.http.key_header.clone(),
            on_lapse: if is_reconciled {
                OnLapse::Hold
            } else {
                policy.on_lapse
            },
            request_bytes_max: policy.limits.request_bytes_max,
            buffers,
            retry_after: policy.retry_after,
            rules,
            catalog: Mutex::new(Known {
                catalog: Catalog::default(),
                since: SystemClock::new(),
            }),
        }
    }

    /// Whether the sender of this may call: a web page only from an origin that is known.
    fn admits(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(ORIGIN).iter();
        origins.all(|origin| {
            let Ok(origin) = origin.to_str() else {
                return false;
            };
            let is_listed = self
                .origins
                .iter()
                .any(|it| it.trim_end_matches('/').eq_ignore_ascii_case(origin));
            is_listed || is_of_this_machine(origin)
        })
    }

    /// Whether a request that reads, and does not say from which page it comes, asks for this gateway.
    fn is_asked<B>(&self, request: &Request<B>) -> bool {
        let is_of_a_known_page = request.headers().contains_key(ORIGIN);
        let mut hosts = self.hosts.iter();
        !request.method().is_safe()
            || is_of_a_known_page
            || hosts.all(|hosts| hosts.admit(request).is_ok())
    }

    fn catalog(&self) -> MutexGuard<'_, Known> {
        let mut known = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        if known.since.now() > CATALOG_AGE_MAX {
            known.catalog.forget();
            known.since = SystemClock::new();
        }
        known
    }
}

fn host_of(origin: &str) -> Option<String> {
    let uri = origin.parse::<Uri>().ok()?;
    uri.host().map(str::to_owned)
}

/// A page that this machine served. A name that was made to point here (DNS rebinding) is not one.
fn is_of_this_machine(origin: &str) -> bool {
    let Ok(uri) = origin.parse::<Uri>() else {
        return false;
    };
    let host = uri.host().map(|host| host.trim_matches(['[', ']']));
    host.is_some_and(|host| {
        let is_loopback = |ip: std::net::IpAddr| ip.is_loopback();
        host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_loopback)
    })
}

/// An MCP endpoint, on the connections of one thread.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) terms: Arc<Terms>,
    pub(crate) service: Idempotent<Inner, Classify>,
    pub(crate) check: Option<Arc<AuthCheck>>,
}

impl Endpoint {
    /// The same over other connections.
    pub(crate) fn over(&self, upstream: &Upstream) -> Self {
        let check = self.check.as_deref();
        Self {
            terms: Arc::clone(&self.terms),
            service: self
                .service
                .around(self.service.inner().over(upstream.clone())),
            check: check.map(|check| Arc::new(check.over(upstream))),
        }
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        self.service.inner().upstream()
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, mut request: Request<ClientBody>) -> Response<GatewayBody> {
        if !self.terms.admits(request.headers()) {
            return problem(
                StatusCode::FORBIDDEN,
                "foreign-origin",
                "Foreign origin",
                "The request comes from a web page whose origin is not listed for this endpoint.",
            );
        }
        if !self.terms.is_asked(&request) {
            return problem(
                StatusCode::MISDIRECTED_REQUEST,
                "foreign-host",
                "Foreign host",
                "This gateway listens on this machine only and is not known by the host that the request \
                 asks for: a web page may have been pointed at it. Ask for localhost, list the host's \
                 origin in `mcp.origins`, or set `limits.address_header` if something is in front of it.",
            );
        }
        if request.method() != Method::POST {
            // What is heard of a stream must not come compressed.
            let identity = HeaderValue::from_static("identity");
            request.headers_mut().insert(ACCEPT_ENCODING, identity);
            let request = request.map(RequestBody::from);
            return self.to_client(self.pass(request).await);
        }
        let asked = self.check.as_ref().map(|check| check.request(&request));
        request.body_mut().bound_as_a_whole();
        let (mut parts, body) = request.into_parts();
        let (text, room) = match self.read(&parts, body).await {
            Ok(read) => read,
            Err(refused) => return refused,
        };
        // Whatever is made of the message keeps its room taken: a call goes on without its caller.
        parts.extensions.insert(Arc::new(room));
        parts.headers.remove(CONTENT_LENGTH);
        let messages = each(text.clone());
        let is_batch = text.trim_start().starts_with('[');
        let (false, [message]) = (is_batch, &messages[..]) else {
            return self.batch(parts, messages, text, asked).await;
        };
        match self.decide(&parts, message) {
            Decision::Pass | Decision::Cancel(_) => self.to_client(self.send(parts, text).await),
            Decision::List(id) => self.list(parts, text, &id).await,
            Decision::Refuse(answer) => form::refused_unread(answer),
            Decision::Call { id: None, .. } => no_id(),
            Decision::Call { id: Some(id), call } => {
                self.called(parts, text, id, call, asked).await
            }
        }
    }

    fn decide(&self, parts: &request::Parts, message: &str) -> Decision {
        let header = parts.headers.get(&self.terms.key_header);
        let header = header.map(|it| String::from_utf8_lossy(it.as_bytes()));
        decide(message, &self.terms.rules, header.as_deref())
    }

    /// All of a body as text.
    async fn read(
        &self,
        parts: &request::Parts,
        body: ClientBody,
    ) -> Result<(String, Room), Response<GatewayBody>> {
        if parts.headers.contains_key(CONTENT_ENCODING) {
            return Err(problem(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "encoded",
                "Encoded body",
                "This gateway reads the messages of this endpoint, and takes them unencoded only.",
            ));
        }
        let terms = &self.terms;
        match terms.buffers.read(body, terms.request_bytes_max).await {
            // What is no text would be another message on its way on, and equal to other such messages.
            Ok((data, room)) => match String::from_utf8(data.into()) {
                Ok(text) => Ok((text, room)),
                Err(_) => Err(problem(
                    StatusCode::BAD_REQUEST,
                    "not-text",
                    "Message not readable",
                    "Messages of this endpoint are UTF-8, and this one is not. It was not passed on.",
                )),
            },
            Err(NotBuffered::TooLarge) => Err(problem(
                StatusCode::PAYLOAD_TOO_LARGE,
                "request-too-large",
                "Message too large",
                "The message is larger than this endpoint takes. It was not passed on.",
            )),
            Err(NotBuffered::NoRoom) => Err(too_much_buffered(terms.retry_after)),
            Err(NotBuffered::Broken(_)) => Err(problem(
                StatusCode::BAD_REQUEST,
                "request-stopped",
                "Message incomplete",
                "The message did not come to its end. It was not passed on.",
            )),
        }
    }

    /// A call that may be ours.
    async fn called(
        &self,
        mut parts: request::Parts,
        text: String,
        id: Id,
        call: Box<ToolCall>,
        asked: Option<Request<RequestBody<ClientBody>>>,
    ) -> Response<GatewayBody> {
        let is_covered = self.covers(&parts, &call).await;
        match (is_covered, has_key(&call, &self.terms.rules)) {
            (false, _) => self.to_client(self.send(parts, text).await),
            (true, false) => {
                parts.headers.remove(&self.terms.key_header);
                self.to_client(self.send(parts, call.message()).await)
            }
            (true, true) => self.once(parts, id, Arc::new(*call), asked).await,
        }
    }

    /// Passes a message on. It takes its room with it, for it may be long on its way.
    async fn send(
        &self,
        mut parts: request::Parts,
        text: String,
    ) -> Result<Response<AnswerBody>, Failure> {
        let text = Bytes::from(text);
        let body = match parts.extensions.remove::<Arc<Room>>() {
            Some(room) => RequestBody::whole_within(text, room),
            None => RequestBody::whole(text),
        };
        self.pass(Request::from_parts(parts, body)).await
    }

    async fn pass(
        &self,
        request: Request<RequestBody<ClientBody>>,
    ) -> Result<Response<AnswerBody>, Failure> {
        self.upstream().clone().call(request).await
    }
}

fn no_id() -> Response<GatewayBody> {
    problem(
        StatusCode::BAD_REQUEST,
        "no-id",
        "A call without an id",
        "A tool call with a key needs an id, for its answer. It was not passed on.",
    )
}

/// A body of one piece, as the layer gets it.
pub(crate) type Meaning = Full<Bytes>;

//! The service behind the gateway, as a tower service: pooled connections, and errors that say
//! whether the request can have reached it. Plain HTTP/1.1, the usual case, has a pool of its own,
//! whose connections are polled by the requests on them; hyper-util's client has the rest.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::HOST;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::connect::{CaptureConnection, HttpConnector, capture_connection};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use onlyonce_core::Release;
use onlyonce_tower::RequestBody;
use thiserror::Error as ThisError;
use tower_service::Service;

use crate::body::{BoxError, ClientBody};
use crate::failure::{Failure, Sent};
use crate::forward::{self, Peer};
use crate::trust;
use crate::upgrade::{self, Handshake};

use self::connection::Connector;
use self::pool::{IDLE_CONNECTIONS_MAX, Pool};

pub(crate) use self::answer::AnswerBody;
pub(crate) use self::health::{Health, HealthNow, Healths};

mod answer;
mod connection;
mod health;
mod line;
mod pool;

/// What an upstream is sent.
pub(crate) type UpstreamBody = RequestBody<ClientBody>;

/// One upstream server; cheap to clone.
#[derive(Clone)]
pub(crate) struct Upstream(Arc<Server>);

struct Server {
    /// For HTTP/1.1 without TLS.
    pool: Option<Arc<Pool>>,
    /// For everything else, WebSockets too.
    client: Client<Connector, UpstreamBody>,
    /// For WebSockets, where the other client may come to speak HTTP/2, which has no `Upgrade`.
    handshakes: Option<Client<Connector, UpstreamBody>>,
    scheme: Scheme,
    authority: Authority,
    /// What comes before every path; empty or without a slash at its end.
    base: String,
    /// Whether it speaks HTTP/2 without TLS.
    is_h2c: bool,
    uri: Uri,
    patience: Patience,
    health: Arc<Health>,
}

/// How long to wait for what.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) connect_max: Duration,
    /// For a response to begin, where no execution has a deadline of its own.
    pub(crate) response_max: Duration,
    pub(crate) idle_max: Duration,
}

/// An upstream that did not answer.
#[derive(Debug, ThisError)]
pub(crate) enum UpstreamError {
    #[error("the upstream could not be reached")]
    Unreachable(#[source] BoxError),
    #[error("the upstream was lost before it answered")]
    Lost(#[source] BoxError),
    #[error("the upstream gave an answer whose head cannot be read")]
    Unreadable(#[source] BoxError),
    #[error("the upstream was lost in the middle of its answer")]
    BrokenOff,
    #[error("the upstream did not answer in time")]
    Slow,
    #[error("the upstream changed to a protocol that it was not asked for")]
    Switched,
    #[error("the operation's id has no place in the request: {0}")]
    NoPlace(String),
    #[error("it could not be found out whether the request happened: {0}")]
    NotAskable(String),
    #[error("the client did not send its request to the end")]
    Unsent(#[source] BoxError),
}

impl UpstreamError {
    /// What went wrong, as one word that does not change; nothing where the client is to blame.
    fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable(_) => Some("unreachable"),
            Self::Lost(_) => Some("lost"),
            Self::Unreadable(_) => Some("unreadable"),
            Self::BrokenOff => Some("broken_off"),
            Self::Slow => Some("slow"),
            Self::Switched => Some("switched"),
            Self::NoPlace(_) | Self::NotAskable(_) | Self::Unsent(_) => None,
        }
    }

    /// Only a connection that was never made says that nothing ran.
    pub(crate) fn release(&self) -> Release {
        match self {
            Self::Unreachable(_) | Self::NoPlace(_) | Self::NotAskable(_) => Release::NotRun,
            Self::Lost(_)
            | Self::Unreadable(_)
            | Self::BrokenOff
            | Self::Slow
            | Self::Switched
            | Self::Unsent(_) => Release::Unknown,
        }
    }
}

impl Upstream {
    /// The server at `uri`, which was checked before.
    pub(crate) fn new(uri: Uri, patience: Patience, health: Arc<Health>) -> Self {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.set_connect_timeout(Some(patience.connect_max));
        let is_h2c = uri.scheme_str() == Some("h2c");
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_idle_timeout(patience.idle_max)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .set_host(false)
            .http2_only(is_h2c);
        let handshakes = (uri.scheme() == Some(&Scheme::HTTPS))
            .then(|| builder.build(Connector::new(trust::http1_connector(http.clone()))));
        let is_plain = uri.scheme() == Some(&Scheme::HTTP);
        let pool = is_plain.then(|| Pool::new(http.clone(), uri.clone(), patience));
        let client = builder.build(Connector::new(trust::connector(http)));
        let scheme = match uri.scheme() {
            Some(scheme) if !is_h2c => scheme.clone(),
            Some(_) | None => Scheme::HTTP,
        };
        Self(Arc::new(Server {
            pool,
            client,
            handshakes,
            scheme,
            authority: uri
                .authority()
                .cloned()
                .unwrap_or_else(|| Authority::from_static("localhost")),
            base: uri.path().trim_end_matches('/').to_owned(),
            is_h2c,
            uri,
            patience,
            health,
        }))
    }

    /// How it does, over all threads.
    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.0.health
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.0.uri
    }

    pub(crate) fn patience(&self) -> Patience {
        self.0.patience
    }

    /// Sends a request on. The response is as it came.
    fn send(&self, request: Request<UpstreamBody>, is_handshake: bool) -> Sending {
        let (mut parts, body) = request.into_parts();
        if let Some(peer) = parts.extensions.remove::<Peer>() {
            forward::to_upstream(&mut parts, &peer);
        }
        if is_handshake {
            upgrade::mark(&mut parts.headers);
        }
        let server = &*self.0;
        server.name_host(&mut parts.headers);
        parts.version = http::Version::HTTP_11;
        // What the layers told each other is not for the wire.
        parts.extensions.clear();
        match server.pool.as_ref().filter(|_| !is_handshake) {
            Some(pool) => {
                parts.uri = Uri::from(server.path(&parts.uri));
                let request = Request::from_parts(parts, body);
                Box::pin(Arc::clone(pool).send(request))
            }
            None => {
                parts.uri = server.target(&parts.uri);
                let handshakes = server.handshakes.as_ref().filter(|_| is_handshake);
                let client = handshakes.unwrap_or(&server.client);
                send_by(client, Request::from_parts(parts, body))
            }
        }
    }
}

/// A request on its way, and then the head of its answer.
type Sending = Pin<Box<dyn Future<Output = Result<Response<AnswerBody>, UpstreamError>> + Send>>;

/// Sends a request by a client whose connections have tasks of their own.
fn send_by(
    client: &Client<Connector, UpstreamBody>,
    mut request: Request<UpstreamBody>,
) -> Sending {
    let connection = capture_connection(&mut request);
    let sent = client.request(request);
    Box::pin(async move {
        let response = sent.await?;
        if ends_badly(&response) {
            retire(&connection);
        }
        Ok(response.map(AnswerBody::Read))
    })
}

/// Whether the upstream may be about to give up the connection that this answer came on: many that fail
/// say so, close, and do not announce it. On HTTP/2 an answer is no word on the connection.
fn ends_badly<B>(response: &Response<B>) -> bool {
    response.status().is_server_error() && response.version() < http::Version::HTTP_2
}

/// Keeps a connection out of the pool: the next request on it might be lost with it, and it would be
/// another caller's.
fn retire(connection: &CaptureConnection) {
    if let Some(connected) = &*connection.connection_metadata() {
        connected.poison();
    }
}

impl Server {
    /// Sees to it that the server is called by one name: by the one the client used, or by its own
    /// where there is none. Over HTTP/2 its own is in the target, and two would contradict each
    /// other.
    fn name_host(&self, headers: &mut HeaderMap) {
        if self.is_h2c {
            headers.remove(HOST);
        } else if !headers.contains_key(HOST)
            && let Ok(own) = HeaderValue::from_str(self.authority.as_str())
        {
            headers.insert(HOST, own);
        }
    }

    fn path(&self, uri: &Uri) -> PathAndQuery {
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        // `*` is the server as a whole, and so not below anything.
        if self.base.is_empty() || path == "*" {
            let path = uri.path_and_query().cloned();
            return path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        }
        let path = format!("{}{path}", self.base).parse();
        path.expect("both parts were checked, and are short enough")
    }

    fn target(&self, uri: &Uri) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(self.path(uri));
        Uri::from_parts(parts).unwrap_or_default()
    }
}

impl Service<Request<UpstreamBody>> for Upstream {
    type Response = Response<AnswerBody>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<UpstreamBody>) -> Self::Future {
        let promise = Sent::of(&request);
        let is_plain = matches!(promise, Sent::Plain { .. });
        let is_handshake = is_plain && request.extensions().get::<Handshake>().is_some();
        let response_max = self.0.patience.response_max;
        let sent = self.send(request, is_handshake);
        let health = Arc::clone(&self.0.health);
        Box::pin(async move {
            let failure = |error: UpstreamError| {
                health.failed(&error);
                Failure {
                    error,
                    sent: promise,
                }
            };
            // An execution has a deadline of its own.
            let answered = if is_plain {
                let in_time = tokio::time::timeout(response_max, sent).await;
                in_time.unwrap_or(Err(UpstreamError::Slow))
            } else {
                sent.await
            };
            let (mut parts, body) = answered.map_err(failure)?.into_parts();
            let is_agreed = is_handshake && upgrade::is_to_websocket(&parts.headers);
            if parts.status == StatusCode::SWITCHING_PROTOCOLS && !is_agreed {
                return Err(failure(UpstreamError::Switched));
            }
            health.answered();
            forward::to_client(&mut parts);
            Ok(Response::from_parts(parts, body))
        })
    }
}

impl UpstreamError {
    /// What it means that a request was not answered on a connection that was made.
    fn unanswered(source: BoxError) -> Self {
        if ClientBody::stopped(&*source) {
            Self::Unsent(source)
        } else if is_unreadable(&*source) {
            Self::Unreadable(source)
        } else {
            Self::Lost(source)
        }
    }
}

/// Whether the upstream said something that is no answer in HTTP, or has too large a head.
fn is_unreadable(error: &(dyn Error + 'static)) -> bool {
    let is_parse = |it: &(dyn Error + 'static)| {
        it.downcast_ref()
            .is_some_and(|it: &hyper::Error| it.is_parse())
    };
    is_parse(error) || error.source().is_some_and(is_parse)
}

impl From<legacy::Error> for UpstreamError {
    fn from(source: legacy::Error) -> Self {
        if source.is_connect() {
            Self::Unreachable(source.into())
        } else {
            Self::unanswered(source.into())
        }
    }
}

impl From<hyper::Error> for UpstreamError {
    fn from(source: hyper::Error) -> Self {
        Self::unanswered(source.into())
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({}://{})", self.0.scheme, self.0.authority)
    }
}

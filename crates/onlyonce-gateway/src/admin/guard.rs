//! Who is let in. Without a token, every client that reaches the address is trusted: then a request must ask
//! for a host that this is known by, so that no web page comes in whose name was pointed here. With
//! a token the host is compared only if `admin_hosts` is given: no page has the token. Whatever a
//! request changes, it must not come from a page of another origin, nor in a form that a page could
//! send without asking. The console's own forms are such forms: they must prove where they come from,
//! and are taken nowhere else. The token itself cannot be guessed fast: see `tries`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, ORIGIN, RETRY_AFTER};
use http::header::{HeaderValue, TRANSFER_ENCODING, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use onlyonce_tower::{Foreign, KnownHosts, same_origin};
use sha2::{Digest as _, Sha256};

use super::console::Sessions;
use super::problem::Problem;
use super::tries::{Tried, Tries, WINDOW};
use super::{Admin, Peer};
use crate::config::HostName;

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

/// Of a token, or of the name of a session: comparing digests takes the same time whatever was sent.
pub(super) type Digest = [u8; 32];

/// What is asked of a request before anything else.
#[derive(Clone)]
pub(super) struct Guard {
    /// None if any host will do.
    hosts: Option<KnownHosts>,
    token: Option<Digest>,
    /// Tokens that were wrong.
    tries: Arc<Tries>,
    /// Operators that gave the token to the console.
    sessions: Arc<Sessions>,
}

impl Guard {
    pub(super) fn new(bound: SocketAddr, names: Option<&[HostName]>, token: Option<&str>) -> Self {
        let is_any_host = token.is_some() && names.is_none();
        let names = names.unwrap_or_default().iter();
        let hosts = KnownHosts::of(bound).and(names.map(HostName::as_str));
        Self {
            hosts: (!is_any_host).then_some(hosts),
            token: token.map(digest),
            tries: Arc::default(),
            sessions: Arc::new(Sessions::new(bound.port())),
        }
    }

    pub(super) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Whether a token is asked for.
    pub(super) fn asks_for_token(&self) -> bool {
        self.token.is_some()
    }

    /// What a token is that was typed into the console's form; none is asked for: right.
    pub(super) fn typed(&self, sent: &str, from: Option<IpAddr>) -> Tried {
        let judge = |token| self.tries.typed(&digest(sent), token, from);
        self.token.as_ref().map_or(Tried::Right, judge)
    }

    /// What the token of a request is. None was sent: wrong, which counts as no try.
    fn presented<B>(&self, request: &http::Request<B>) -> Tried {
        let Some(token) = &self.token else {
            return Tried::Right;
        };
        let sent = request.headers().get(AUTHORIZATION);
        let sent = sent.and_then(|value| value.to_str().ok());
        let Some(sent) = sent.and_then(|value| value.strip_prefix("Bearer ")) else {
            return Tried::Wrong;
        };
        let from = request.extensions().get().map(|Peer(address)| *address);
        self.tries.presented(&digest(sent), token, from)
    }

    /// Whether a request is an operator's: by a session that was opened with the token, or by the token.
    pub(super) fn is_operator<B>(&self, request: &http::Request<B>) -> bool {
        self.sessions.is_live(request.headers()) || self.presented(request) == Tried::Right
    }

    fn admit<B>(&self, request: &http::Request<B>) -> Result<(), Problem> {
        let admitted = match &self.hosts {
            Some(hosts) => hosts.admit(request),
            None => same_origin(request),
        };
        admitted.map_err(|foreign| match &foreign {
            Foreign::Host { .. } => {
                let why = format!(
                    "{foreign}; ask for localhost or the address in `admin`, or add the name to \
                     `admin_hosts`"
                );
                Problem::new(StatusCode::MISDIRECTED_REQUEST, why)
            }
            Foreign::CrossSite { .. } | _ => {
                Problem::new(StatusCode::FORBIDDEN, foreign.to_string())
            }
        })
    }
}

/// Lets through what comes from an operator.
pub(super) async fn admitted(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    match admin.guard.admit(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Lets a change through if its body is JSON, or there is none.
pub(super) async fn as_json(request: Request, next: Next) -> Response {
    if request.method().is_safe() || is_json(request.headers()) {
        return next.run(request).await;
    }
    let why = "send the body as `Content-Type: application/json`";
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why).into_response()
}

/// Lets a change through if it is a form of a page of ours. Any page can send a form, and what is no
/// browser says nothing of its origin: so it must be said, and `admitted` has compared it.
pub(super) async fn as_own_form(request: Request, next: Next) -> Response {
    let headers = request.headers();
    if request.method().is_safe() {
        return next.run(request).await;
    }
    if !is_only(headers, FORM) {
        let why = "the console takes forms; send JSON to /api/v1";
        return Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why).into_response();
    }
    let is_same = |site: &HeaderValue| site.as_bytes() == b"same-origin";
    if headers.contains_key(ORIGIN) || headers.get("sec-fetch-site").is_some_and(is_same) {
        return next.run(request).await;
    }
    let why = "a form must say which page it comes from (Origin); send JSON to /api/v1 instead";
    Problem::new(StatusCode::FORBIDDEN, why).into_response()
}

/// Lets a request through if it has the token, where one is asked for. A session of the console may
/// read, which is all that its pages do here.
pub(super) async fn with_token(
    State(admin): State<Admin>,
    request: Request,
    next: Next,
) -> Response {
    let guard = &admin.guard;
    if request.method().is_safe() && guard.sessions.is_live(request.headers()) {
        return next.run(request).await;
    }
    match guard.presented(&request) {
        Tried::Right => next.run(request).await,
        Tried::Wrong => {
            let why = "send the admin token as `Authorization: Bearer …`";
            let problem = Problem::new(StatusCode::UNAUTHORIZED, why);
            ([(WWW_AUTHENTICATE, "Bearer")], problem).into_response()
        }
        Tried::TooMany => {
            let why = "too many wrong admin tokens came from this address: wait a minute, and give \
                       every program there the right one";
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, why);
            ([(RETRY_AFTER, WINDOW.as_secs())], problem).into_response()
        }
    }
}

/// Whether a body is JSON, or there is none. A page can send text and forms to anybody, but JSON
/// only to whom allows it.
fn is_json(headers: &HeaderMap) -> bool {
    if headers.contains_key(CONTENT_TYPE) {
        return is_only(headers, JSON);
    }
    let is_empty = headers.get(CONTENT_LENGTH).is_none_or(|it| it == "0");
    is_empty && !headers.contains_key(TRANSFER_ENCODING)
}

/// Whether a body is of this kind, and said to be of no other.
fn is_only(headers: &HeaderMap, wanted: &str) -> bool {
    let mut kinds = headers.get_all(CONTENT_TYPE).iter().peekable();
    let is_wanted = |kind: &HeaderValue| {
        let kind = kind.to_str().unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case(wanted)
    };
    kinds.peek().is_some() && kinds.all(is_wanted)
}

pub(super) fn digest(secret: &str) -> Digest {
    Sha256::digest(secret.trim().as_bytes()).into()
}

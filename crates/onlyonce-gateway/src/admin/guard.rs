//! Who is let in. Without a token, every client that reaches the address is trusted: then a request must ask
//! for a host that this is known by, so that no web page comes in whose name was pointed here. With
//! a token the host is compared only if `admin_hosts` is given: no page has the token. Whatever a
//! request changes, it must not come from a page of another origin, nor in a form that a page could
//! send without asking. The console's own forms are such forms: they must prove where they come from,
//! and are taken nowhere else.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, ORIGIN, TRANSFER_ENCODING};
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use onlyonce_tower::{Foreign, KnownHosts, same_origin};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Admin;
use super::console::Sessions;
use super::problem::Problem;
use crate::config::HostName;

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

/// What is asked of a request before anything else.
#[derive(Clone)]
pub(super) struct Guard {
    /// None if any host will do.
    hosts: Option<KnownHosts>,
    /// The digest of the token, so that comparing takes the same time whatever was sent.
    token: Option<[u8; 32]>,
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

    /// Whether `sent` is the token; takes the same time whatever was sent.
    pub(super) fn is_token(&self, sent: &str) -> bool {
        let token = self.token.as_ref();
        token.is_some_and(|token| bool::from(digest(sent).ct_eq(token)))
    }

    /// Whether a request has the token, where one is asked for.
    fn has_token(&self, headers: &HeaderMap) -> bool {
        let sent = headers.get(AUTHORIZATION);
        let sent = sent.and_then(|value| value.to_str().ok());
        let sent = sent.and_then(|value| value.strip_prefix("Bearer "));
        !self.asks_for_token() || sent.is_some_and(|sent| self.is_token(sent))
    }

    /// Whether a request is an operator's: by the token, or by a session that was opened with it.
    pub(super) fn is_operator(&self, headers: &HeaderMap) -> bool {
        self.has_token(headers) || self.sessions.is_live(headers)
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
    let (guard, headers) = (&admin.guard, request.headers());
    let is_reader = request.method().is_safe() && guard.is_operator(headers);
    if is_reader || guard.has_token(headers) {
        return next.run(request).await;
    }
    let why = "send the admin token as `Authorization: Bearer …`";
    let mut response = Problem::new(StatusCode::UNAUTHORIZED, why).into_response();
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
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

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.trim().as_bytes()).into()
}

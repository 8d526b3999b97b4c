//! Who is let in. Without a token, every client that reaches the address is trusted: then a request must ask
//! for a host that this is known by, so that no web page comes in whose name was pointed here. With
//! a token the host is compared only if `admin_hosts` is given: no page has the token. Whatever a
//! request changes, it must not come from a page of another origin, nor in a form that a page could
//! send without asking.

use std::net::SocketAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use onlyonce_tower::{Foreign, KnownHosts, same_origin};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Admin;
use super::problem::Problem;
use crate::config::HostName;

/// What is asked of a request before anything else.
#[derive(Clone)]
pub(super) struct Guard {
    /// None if any host will do.
    hosts: Option<KnownHosts>,
    /// The digest of the token, so that comparing takes the same time whatever was sent.
    token: Option<[u8; 32]>,
}

impl Guard {
    pub(super) fn new(bound: SocketAddr, names: Option<&[HostName]>, token: Option<&str>) -> Self {
        let is_any_host = token.is_some() && names.is_none();
        let names = names.unwrap_or_default().iter();
        let hosts = KnownHosts::of(bound).and(names.map(HostName::as_str));
        Self {
            hosts: (!is_any_host).then_some(hosts),
            token: token.map(digest),
        }
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
        })?;
        if request.method().is_safe() || is_json(request.headers()) {
            return Ok(());
        }
        let why = "send the body as `Content-Type: application/json`";
        Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why))
    }
}

/// Lets through what comes from an operator.
pub(super) async fn admitted(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    match admin.guard.admit(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Lets a request through if it has the token, where one is asked for.
pub(super) async fn with_token(
    State(admin): State<Admin>,
    request: Request,
    next: Next,
) -> Response {
    let Some(token) = &admin.guard.token else {
        return next.run(request).await;
    };
    let sent = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "))
        .map(digest);
    if sent.is_some_and(|sent| bool::from(sent.ct_eq(token))) {
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
    let mut kinds = headers.get_all(CONTENT_TYPE).iter().peekable();
    if kinds.peek().is_none() {
        let is_empty = headers.get(CONTENT_LENGTH).is_none_or(|it| it == "0");
        return is_empty && !headers.contains_key(TRANSFER_ENCODING);
    }
    kinds.all(|kind| {
        let kind = kind.to_str().unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/json")
    })
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.trim().as_bytes()).into()
}

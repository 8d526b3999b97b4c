//! Who is let in over HTTP: programs, by a known host and the token if there is one; no web page of
//! another origin.

use std::net::SocketAddr;
use std::path::Path;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};
use onlyonce_tower::{Foreign, KnownHosts, same_origin};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::CommandError;
use super::api::problem;
use super::wanted::wrong;

const TOKEN_BYTES_MIN: usize = 16;

/// What is asked of a request before anything else.
#[derive(Clone)]
pub(super) struct Guard {
    /// None over a Unix socket, which no web page reaches.
    hosts: Option<KnownHosts>,
    /// The digest of the token, so that comparing takes the same time whatever was sent.
    token: Option<[u8; 32]>,
}

impl Guard {
    pub(super) fn new(
        bound: Option<SocketAddr>,
        token_file: Option<&Path>,
    ) -> Result<Self, CommandError> {
        let token = token_file.map(read_token).transpose()?;
        Ok(Self {
            hosts: bound.map(KnownHosts::of),
            token,
        })
    }

    fn refusal<B>(&self, request: &http::Request<B>) -> Option<(StatusCode, String)> {
        let admitted = match &self.hosts {
            Some(hosts) => hosts.admit(request),
            None => same_origin(request),
        };
        if let Err(foreign) = admitted {
            let status = match &foreign {
                Foreign::Host { .. } => StatusCode::MISDIRECTED_REQUEST,
                Foreign::CrossSite { .. } | _ => StatusCode::FORBIDDEN,
            };
            return Some((status, foreign.to_string()));
        }
        if !self.has_token(request.headers()) {
            let why = "send the token as `Authorization: Bearer …`";
            return Some((StatusCode::UNAUTHORIZED, why.to_owned()));
        }
        if !request.method().is_safe() && !is_json(request.headers()) {
            let why = "send the body as `Content-Type: application/json`";
            return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, why.to_owned()));
        }
        None
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let sent = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "))
            .map(digest);
        sent.is_some_and(|sent| bool::from(sent.ct_eq(token)))
    }
}

/// Lets through what may come in.
pub(super) async fn admitted(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.refusal(&request) {
        None => next.run(request).await,
        Some((status, why)) => problem(status, &why).into_response(),
    }
}

fn read_token(file: &Path) -> Result<[u8; 32], CommandError> {
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(CommandError::io(format!("the token {name} cannot be read")))?;
    if text.trim().len() < TOKEN_BYTES_MIN {
        let why =
            format!("the token in {name} is too short: {TOKEN_BYTES_MIN} characters at least");
        return Err(wrong(&why));
    }
    Ok(digest(&text))
}

/// Whether a body is JSON, or there is none. A page can send text and forms to anybody, but JSON only to
/// a server that allows it.
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

//! Who is let in, and who it is: a token makes a caller, and without tokens the credential that is sent tells
//! callers apart. Web pages come in only from origins that were named, or from here.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, StatusCode};
use onlyonce_mcp::Caller;
use onlyonce_tower::{Foreign, KnownHosts, same_origin};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use thiserror::Error;

const TOKEN_BYTES_MIN: usize = 16;

#[derive(Debug, Error)]
pub(in crate::mcp) enum BadToken {
    #[error("the tokens in {} cannot be read", file.display())]
    File { file: PathBuf, source: io::Error },
    #[error("{} has no token: write one a line", file.display())]
    None { file: PathBuf },
    #[error(
        "a token in {} is too short: {TOKEN_BYTES_MIN} characters at least",
        file.display()
    )]
    Short { file: PathBuf },
}

/// What is asked of a request before anything else.
pub(super) struct Guard {
    /// None if any host will do: no page has a token.
    hosts: Option<KnownHosts>,
    origins: Vec<String>,
    /// Digests of the tokens, so that comparing takes the same time whatever was sent.
    tokens: Option<Vec<[u8; 32]>>,
}

/// A request that is not let in.
pub(super) enum Denied {
    Foreign(Foreign),
    NoToken,
}

impl Guard {
    pub(super) fn new(
        bound: SocketAddr,
        names: &[String],
        origins: &[String],
        token_file: Option<&Path>,
    ) -> Result<Self, BadToken> {
        let tokens = token_file.map(read_tokens).transpose()?;
        let is_any_host = tokens.is_some() && names.is_empty();
        Ok(Self {
            hosts: (!is_any_host).then(|| KnownHosts::of(bound).and(names)),
            origins: origins.to_vec(),
            tokens,
        })
    }

    /// Lets a request in; says whose it is.
    pub(super) fn admit<B>(&self, request: &Request<B>) -> Result<Option<Caller>, Denied> {
        let headers = request.headers();
        self.check_source(request).map_err(Denied::Foreign)?;
        let Some(tokens) = &self.tokens else {
            return Ok(credential(headers));
        };
        let sent = headers.get(AUTHORIZATION);
        let sent = sent.and_then(|value| value.to_str().ok());
        let sent = sent.and_then(|value| value.strip_prefix("Bearer "));
        let sent = digest(sent.ok_or(Denied::NoToken)?.trim().as_bytes());
        let mut known = false;
        for token in tokens {
            known |= bool::from(sent.ct_eq(token));
        }
        known.then(|| Some(hex(&sent))).ok_or(Denied::NoToken)
    }

    /// Every method counts as one that may change something: a stream that is read is gone.
    fn check_source<B>(&self, request: &Request<B>) -> Result<(), Foreign> {
        let mut probe = Request::new(());
        *probe.method_mut() = Method::POST;
        *probe.uri_mut() = request.uri().clone();
        *probe.headers_mut() = request.headers().clone();
        if self.is_from_listed(request.headers()) {
            // The host counts all the same.
            *probe.method_mut() = Method::GET;
        }
        match &self.hosts {
            Some(hosts) => hosts.admit(&probe),
            None => same_origin(&probe),
        }
    }

    fn is_from_listed(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(ORIGIN).iter().peekable();
        let is_listed = |origin: &str| {
            let mut listed = self.origins.iter().map(|it| it.trim_end_matches('/'));
            listed.any(|it| it.eq_ignore_ascii_case(origin))
        };
        origins.peek().is_some() && origins.all(|origin| origin.to_str().is_ok_and(is_listed))
    }
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        match self {
            Self::Foreign(foreign) => {
                let status = match &foreign {
                    Foreign::Host { .. } => StatusCode::MISDIRECTED_REQUEST,
                    Foreign::CrossSite { .. } | _ => StatusCode::FORBIDDEN,
                };
                (status, foreign.to_string()).into_response()
            }
            Self::NoToken => {
                let why = "send a token as `Authorization: Bearer …`";
                let asked = [(WWW_AUTHENTICATE, "Bearer")];
                (StatusCode::UNAUTHORIZED, asked, why).into_response()
            }
        }
    }
}

/// Who sends a request, by the credential in it; nothing for one without.
fn credential(headers: &HeaderMap) -> Option<Caller> {
    let mut sent = headers.get_all(AUTHORIZATION).iter().peekable();
    sent.peek()?;
    let mut digest = Sha256::new();
    for line in sent {
        // A length before each: two lines are not one with both in it.
        digest.update(line.as_bytes().len().to_be_bytes());
        digest.update(line.as_bytes());
    }
    Some(hex(&digest.finalize()))
}

fn read_tokens(file: &Path) -> Result<Vec<[u8; 32]>, BadToken> {
    let named = || file.to_owned();
    let text = fs::read_to_string(file).map_err(|source| BadToken::File {
        file: named(),
        source,
    })?;
    let lines = text.lines().map(str::trim);
    let tokens: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    if tokens.is_empty() {
        return Err(BadToken::None { file: named() });
    }
    if tokens.iter().any(|token| token.len() < TOKEN_BYTES_MIN) {
        return Err(BadToken::Short { file: named() });
    }
    let digests = tokens.iter().map(|token| digest(token.as_bytes()));
    Ok(digests.collect())
}

fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

fn hex(bytes: &[u8]) -> Caller {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    digits.collect::<String>().into()
}

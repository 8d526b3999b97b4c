//! What a request asks for and of whom, settled once, before anything looks at it: one host, one
//! path in its normal form. What can be taken for two things is refused.

use http::header::HOST;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Method, Response, StatusCode, Uri, Version, request};

use crate::body::{self, GatewayBody};
use crate::path::{self, BadPath};

/// A request that names nothing this gateway serves, or more than one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadTarget {
    /// A tunnel is asked for.
    Connect,
    /// Not exactly one host, or none that can be one.
    Host,
    /// Neither a path nor the URL of one.
    Form,
    /// A path that cannot be read.
    Path(BadPath),
    /// A path that one server reads as another one than the next, and they have different routes.
    Ambiguous,
}

/// Brings a request to the form in which everything behind this sees it: the host in `Host`
/// alone, and of the target only its path and query.
pub(crate) fn settle(parts: &mut request::Parts) -> Result<(), BadTarget> {
    if parts.method == Method::CONNECT {
        return Err(BadTarget::Connect);
    }
    settle_host(parts)?;
    let Some(target) = parts.uri.path_and_query() else {
        return Err(BadTarget::Form);
    };
    let is_whole_server = target.as_str() == "*" && parts.method == Method::OPTIONS;
    if !target.as_str().starts_with('/') && !is_whole_server {
        return Err(BadTarget::Form);
    }
    let settled = match path::normal(target.path()).map_err(BadTarget::Path)? {
        Some(path) => Some(with_path(target, &path).ok_or(BadTarget::Form)?),
        None if parts.uri.authority().is_some() => Some(target.clone()),
        None => None,
    };
    if let Some(settled) = settled {
        parts.uri = Uri::from(settled);
    }
    Ok(())
}

/// Puts the host that the target names into `Host`: it goes before what the header says (RFC
/// 9112, section 3.2.2; RFC 9113, section 8.3.1).
fn settle_host(parts: &mut request::Parts) -> Result<(), BadTarget> {
    let mut lines = parts.headers.get_all(HOST).iter();
    let (line, more) = (lines.next(), lines.next());
    if more.is_some() || line.is_some_and(|host| !is_host(host.as_bytes())) {
        return Err(BadTarget::Host);
    }
    match parts.uri.authority() {
        Some(authority) => {
            let is_web = parts.uri.scheme().is_none_or(is_web);
            if !is_web {
                return Err(BadTarget::Form);
            }
            let is_unnamed = line.is_none() && parts.version == Version::HTTP_11;
            if is_unnamed || !is_host(authority.as_str().as_bytes()) {
                return Err(BadTarget::Host);
            }
            let host = HeaderValue::from_str(authority.as_str()).map_err(|_| BadTarget::Host)?;
            parts.headers.insert(HOST, host);
        }
        // HTTP/1.0 has no `Host`.
        None if line.is_none() && parts.version > Version::HTTP_10 => return Err(BadTarget::Host),
        None => {}
    }
    Ok(())
}

fn is_web(scheme: &Scheme) -> bool {
    *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS
}

/// Whether this can be a host with or without a port; a comma would be a list of them.
fn is_host(text: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%:[]!$&'()*+;=".contains(byte);
    !text.is_empty() && text.iter().all(fits)
}

fn with_path(target: &PathAndQuery, path: &str) -> Option<PathAndQuery> {
    match target.query() {
        Some(query) => format!("{path}?{query}").parse().ok(),
        None => path.parse().ok(),
    }
}

impl BadTarget {
    /// The answer to such a request.
    pub(crate) fn answer(self) -> Response<GatewayBody> {
        let (status, kind, title, detail) = match self {
            Self::Connect => (
                StatusCode::NOT_IMPLEMENTED,
                "no-tunnels",
                "No tunnels",
                "This gateway does not support CONNECT. WebSockets are opened with GET over \
                 HTTP/1.1.",
            ),
            Self::Host => (
                StatusCode::BAD_REQUEST,
                "bad-host",
                "Bad host",
                "The request must name exactly one valid host, in one Host header.",
            ),
            Self::Form => (
                StatusCode::BAD_REQUEST,
                "bad-target",
                "Bad request target",
                "The request target must be a path that starts with a slash, or an http or https \
                 URL.",
            ),
            Self::Path(BadPath::Escape) => (
                StatusCode::BAD_REQUEST,
                "bad-path",
                "Bad path",
                "The path has a percent sign without two hexadecimal digits after it: write %25 \
                 for a percent sign.",
            ),
            Self::Path(BadPath::Nul) => (
                StatusCode::BAD_REQUEST,
                "bad-path",
                "Bad path",
                "The path has a zero byte: %00 is not allowed.",
            ),
            Self::Ambiguous => (
                StatusCode::BAD_REQUEST,
                "ambiguous-path",
                "Ambiguous path",
                "Servers read this path in different ways, and these match different routes of \
                 this gateway. Write it without %2F, backslashes, double slashes and semicolons, \
                 and do not escape punctuation that needs no escape.",
            ),
        };
        body::problem(status, kind, title, detail)
    }
}

//! What a request asks for and of whom, settled once, before anything looks at it: one host, one
//! path in its normal form. What can be taken for two things is refused.

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Method, Response, StatusCode, Uri, Version, request};

use crate::body::{self, GatewayBody};
use crate::forward::list_of;
use crate::path::{self, BadPath};

/// The longest target that is sent on. With what an upstream has before every path it is still one
/// that can be sent: 65,534 bytes.
pub(crate) const TARGET_BYTES_MAX: usize = 60 * 1024;
/// The longest path that an upstream may have before every other.
pub(crate) const BASE_BYTES_MAX: usize = 4 * 1000;

/// A head that this gateway does not serve, or that can be taken for two things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHead {
    /// A tunnel is asked for.
    Connect,
    /// A method with lower-case letters, which the upstream may take for one that is covered.
    Method,
    /// Not exactly one host, or none that can be one.
    Host,
    /// Two lengths of one body, or none that is a number.
    Length,
    /// A body in a coding that would be lost on its way.
    Coding,
    /// Neither a path nor the URL of one.
    Form,
    /// More than can be sent on.
    Long,
    /// A path that cannot be read.
    Path(BadPath),
    /// A path that one server reads as another one than the next, and they have different routes.
    Ambiguous,
}

/// Brings a request to the form in which everything behind this sees it: the host in `Host`
/// alone, and of the target only its path and query.
pub(crate) fn settle(parts: &mut request::Parts) -> Result<(), BadHead> {
    if parts.method == Method::CONNECT {
        return Err(BadHead::Connect);
    }
    if parts
        .method
        .as_str()
        .bytes()
        .any(|it| it.is_ascii_lowercase())
    {
        return Err(BadHead::Method);
    }
    settle_host(parts)?;
    settle_length(parts)?;
    let mut codings = list_of(&parts.headers, &TRANSFER_ENCODING);
    if codings.any(|it| !it.eq_ignore_ascii_case(b"chunked")) {
        return Err(BadHead::Coding);
    }
    let Some(target) = parts.uri.path_and_query() else {
        return Err(BadHead::Form);
    };
    let is_whole_server = target.as_str() == "*" && parts.method == Method::OPTIONS;
    if !target.as_str().starts_with('/') && !is_whole_server {
        return Err(BadHead::Form);
    }
    let settled = match path::normal(target.path()).map_err(BadHead::Path)? {
        Some(path) => Some(with_path(target, &path).ok_or(BadHead::Long)?),
        None if parts.uri.authority().is_some() => Some(target.clone()),
        None => None,
    };
    if settled.as_ref().unwrap_or(target).as_str().len() > TARGET_BYTES_MAX {
        return Err(BadHead::Long);
    }
    if let Some(settled) = settled {
        parts.uri = Uri::from(settled);
    }
    Ok(())
}

/// Puts the host that the target names into `Host`: it goes before what the header says (RFC
/// 9112, section 3.2.2; RFC 9113, section 8.3.1).
fn settle_host(parts: &mut request::Parts) -> Result<(), BadHead> {
    let mut lines = parts.headers.get_all(HOST).iter();
    let (line, more) = (lines.next(), lines.next());
    if more.is_some() || line.is_some_and(|host| !is_host(host.as_bytes())) {
        return Err(BadHead::Host);
    }
    match parts.uri.authority() {
        Some(authority) => {
            let is_web = parts.uri.scheme().is_none_or(is_web);
            if !is_web {
                return Err(BadHead::Form);
            }
            let is_unnamed = line.is_none() && parts.version == Version::HTTP_11;
            if is_unnamed || !is_host(authority.as_str().as_bytes()) {
                return Err(BadHead::Host);
            }
            let host = HeaderValue::from_str(authority.as_str()).map_err(|_| BadHead::Host)?;
            parts.headers.insert(HOST, host);
        }
        // HTTP/1.0 has no `Host`.
        None if line.is_none() && parts.version > Version::HTTP_10 => return Err(BadHead::Host),
        None => {}
    }
    Ok(())
}

/// Leaves one length of the body where the same was said more than once (RFC 9110, section 8.6): two
/// are one too many for some upstreams.
fn settle_length(parts: &mut request::Parts) -> Result<(), BadHead> {
    let lengths: Vec<&[u8]> = list_of(&parts.headers, &CONTENT_LENGTH).collect();
    let Some((first, others)) = lengths.split_first() else {
        return Ok(());
    };
    let is_number = !first.is_empty() && first.iter().all(u8::is_ascii_digit);
    if !is_number || others.iter().any(|other| other != first) {
        return Err(BadHead::Length);
    }
    if !others.is_empty() {
        let length = HeaderValue::from_bytes(first).map_err(|_| BadHead::Length)?;
        parts.headers.insert(CONTENT_LENGTH, length);
    }
    Ok(())
}

fn is_web(scheme: &Scheme) -> bool {
    *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS
}

/// The target with another path; `None` if it is longer than a target can be.
fn with_path(target: &PathAndQuery, path: &str) -> Option<PathAndQuery> {
    match target.query() {
        Some(query) => format!("{path}?{query}").parse().ok(),
        None => path.parse().ok(),
    }
}

/// Whether this can be a host with or without a port; a comma would be a list of them.
fn is_host(text: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%:[]!$&'()*+;=".contains(byte);
    !text.is_empty() && text.iter().all(fits)
}

impl BadHead {
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
            Self::Method => (
                StatusCode::NOT_IMPLEMENTED,
                "unknown-method",
                "Unknown method",
                "Methods are case-sensitive, and this gateway knows none with lower-case letters: \
                 write it in capitals.",
            ),
            Self::Host => (
                StatusCode::BAD_REQUEST,
                "bad-host",
                "Bad host",
                "The request must name exactly one valid host, in one Host header.",
            ),
            Self::Length => (
                StatusCode::BAD_REQUEST,
                "bad-length",
                "Bad length",
                "The request must have at most one Content-Length, and that must be a number.",
            ),
            Self::Coding => (
                StatusCode::NOT_IMPLEMENTED,
                "unknown-coding",
                "Unknown transfer coding",
                "This gateway knows no transfer coding but chunked: compress with \
                 Content-Encoding.",
            ),
            Self::Long => (
                StatusCode::URI_TOO_LONG,
                "target-too-long",
                "Target too long",
                "The path and the query of the request are longer than this gateway sends on.",
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

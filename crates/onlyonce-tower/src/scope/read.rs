//! How the parts of a scope are read from a request. What is absent is absent; what is there and
//! cannot be read, or not in one way only, is refused: a caller taken for an anonymous one, or for
//! another, would meet records that are not its own.

use std::borrow::Cow;

use http::header::{COOKIE, HOST};
use http::{HeaderMap, HeaderName, request};
use onlyonce_core::{Reason, Refusal};

use crate::marks;

/// A request whose caller cannot be told apart from others, and why.
pub(super) fn unscoped(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(Reason::Unscoped).because(why)
}

/// One line or none; which of several counts would be a guess that an attacker could steer.
pub(super) fn only_line<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a [u8]>, Refusal> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next();
    if lines.next().is_some() {
        return Err(unscoped(format!(
            "the header {name} was sent more than once"
        )));
    }
    Ok(first.map(|value| value.as_bytes()))
}

/// The host the client asked for, however it is spelled: without regard to case, without the dot that
/// may end a name, and without a port that is the usual one of http or https.
pub(super) fn host(parts: &request::Parts) -> Result<Option<Cow<'_, [u8]>>, Refusal> {
    let host = match parts.uri.authority() {
        Some(authority) => Some(authority.as_str().as_bytes()),
        None => only_line(&parts.headers, &HOST)?,
    };
    Ok(host.map(|host| {
        let host = plain(host);
        if host.iter().any(u8::is_ascii_uppercase) {
            host.to_ascii_lowercase().into()
        } else {
            host
        }
    }))
}

fn plain(host: &[u8]) -> Cow<'_, [u8]> {
    let (name, port) = match host.iter().rposition(|byte| matches!(byte, b':' | b']')) {
        Some(at) if host[at] == b':' => (&host[..at], &host[at + 1..]),
        Some(_) | None => (host, &host[host.len()..]),
    };
    let bare = name.strip_suffix(b".").unwrap_or(name);
    match port {
        b"" | b"80" | b"443" => bare.into(),
        _ if bare.len() == name.len() => host.into(),
        _ => [bare, b":", port].concat().into(),
    }
}

/// The value of the cookie called `wanted`, byte for byte: cookies of others in the same line, in
/// whatever encoding, do not hide it.
pub(super) fn cookie<'a>(
    headers: &'a HeaderMap,
    wanted: &str,
) -> Result<Option<&'a [u8]>, Refusal> {
    let pairs = headers
        .get_all(COOKIE)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    let mut found = None;
    for pair in pairs {
        let (name, value) = match pair.iter().position(|byte| *byte == b'=') {
            Some(at) => (&pair[..at], Some(&pair[at + 1..])),
            None => (pair, None),
        };
        if name.trim_ascii() != wanted.as_bytes() {
            continue;
        }
        let Some(value) = value else {
            let why = format!("the cookie {wanted} was sent without a value: send {wanted}=VALUE");
            return Err(unscoped(why));
        };
        if found.replace(value.trim_ascii()).is_some() {
            let why = format!("the cookie {wanted} was sent more than once");
            return Err(unscoped(why));
        }
    }
    Ok(found)
}

/// The segment of `path` that follows the first one called `segment`; none if that is empty.
pub(super) fn segment_after<'a>(path: &'a str, segment: &str) -> Option<&'a str> {
    let mut segments = path.split('/').skip_while(|it| *it != segment);
    segments.nth(1).filter(|it| !it.is_empty())
}

/// The member of the JSON body called `name`, as it was written: `"1"` and `1` are two sessions. No
/// body has no members.
pub(super) fn member<'a>(body: &'a [u8], name: &str) -> Result<Option<&'a str>, Refusal> {
    if body.is_empty() {
        return Ok(None);
    }
    let Some(members) = marks::object_members(body, name) else {
        let why =
            format!("the body is not a JSON object, and its member {name} tells callers apart");
        return Err(unscoped(why));
    };
    match members[..] {
        [] => Ok(None),
        [value] => Ok(Some(value.get())),
        [_, _, ..] => Err(unscoped(format!(
            "the JSON body has more than one member {name}"
        ))),
    }
}

//! Which key a request has: in the header, in a place of its JSON body, or derived from the body; and
//! whether it is still in its time.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, request};
use onlyonce_core::fingerprint::derive_key;
use onlyonce_core::policy::{KeyFirst, KeyTime, Policy};
use onlyonce_core::{Key, KeyError, Reason, Refusal};
use serde_json::value::RawValue;

use super::Covered;
use crate::layer::Settings;
use crate::marks::object_members;

/// The key in the header, and the header as its sender wrote it.
pub(super) fn in_header(
    headers: &HeaderMap,
    policy: &Policy,
) -> Result<Option<(Key, HeaderValue)>, KeyError> {
    let mut lines = headers.get_all(&policy.http.key_header).iter();
    let Some(first) = lines.next() else {
        return Ok(None);
    };
    match lines.count() {
        0 => Ok(Some((
            Key::parse(first.as_bytes(), &policy.key)?,
            first.clone(),
        ))),
        more => Err(KeyError::Several { lines: more + 1 }),
    }
}

/// Refuses a key in the header that is out of its time, and a time without a key.
pub(super) fn check_time(
    headers: &HeaderMap,
    found: &Result<Option<(Key, HeaderValue)>, KeyError>,
    settings: &Settings,
) -> Result<(), Refusal> {
    let http = &settings.policy.http;
    let Some(rule) = &http.key_time else {
        return Ok(());
    };
    match (found, &rule.from) {
        (Ok(Some((key, _))), _) => is_in_time(key, headers, settings),
        (Ok(None), KeyTime::Header(time))
            if headers.contains_key(time) && !http.may_be_in_body() =>
        {
            let (time, key) = (time.clone(), http.key_header.clone());
            Err(Refusal::new(Reason::BadKey).because(KeyError::OnlyTimed { time, key }))
        }
        (Ok(None), KeyTime::Header(_) | KeyTime::UuidV7) | (Err(_), _) => Ok(()),
    }
}

/// Whether the time that a key carries is one in which it can be used.
fn is_in_time(key: &Key, headers: &HeaderMap, settings: &Settings) -> Result<(), Refusal> {
    let policy = &settings.policy;
    match &policy.http.key_time {
        Some(rule) => rule.check(key, headers, settings.engine.wall(), policy.keep_for),
        None => Ok(()),
    }
}

/// Whether a key in the header counts, whatever the body has.
pub(super) fn header_counts(policy: &Policy) -> bool {
    policy.http.key_first == KeyFirst::Header || policy.http.key_member.is_none()
}

/// The key that counts: of the header, of a member of the body, or derived from the body.
pub(super) fn that_counts(
    parts: &request::Parts,
    covered: &Covered,
    body: &[u8],
    settings: &Settings,
) -> Result<Option<Key>, Refusal> {
    let policy = &settings.policy;
    let bad = |error: KeyError| Refusal::new(Reason::BadKey).because(error);
    if let Some(key) = covered.key.as_ref().filter(|_| header_counts(policy)) {
        return Ok(Some(key.clone()));
    }
    if let Some(key) = key_member(&parts.headers, body, policy).map_err(bad)? {
        is_in_time(&key, &parts.headers, settings)?;
        return Ok(Some(key));
    }
    match &covered.key {
        Some(key) => Ok(Some(key.clone())),
        None => derived_key(&parts.headers, body, policy).map_err(bad),
    }
}

/// A key given in the JSON body.
fn key_member(headers: &HeaderMap, body: &[u8], policy: &Policy) -> Result<Option<Key>, KeyError> {
    let Some(place) = &policy.http.key_member else {
        return Ok(None);
    };
    let Some(found) = place.find(body) else {
        return keyless(headers, body);
    };
    match found[..] {
        [] => Ok(None),
        [value] => {
            let text: String = serde_json::from_str(value.get()).map_err(|_| KeyError::NotText)?;
            Key::new(&text, &policy.key).map(Some)
        }
        ref several => Err(KeyError::Several {
            lines: several.len(),
        }),
    }
}

/// A key derived from the JSON body.
fn derived_key(headers: &HeaderMap, body: &[u8], policy: &Policy) -> Result<Option<Key>, KeyError> {
    let Some(rule) = &policy.http.derive else {
        return Ok(None);
    };
    let Some(data) = object_members(body, &rule.data_field) else {
        if is_json_of_another_kind(body) {
            return Ok(None);
        }
        return keyless(headers, body);
    };
    let Some(data) = data.last() else {
        return Ok(None);
    };
    let context = object_members(body, &rule.context_field).unwrap_or_default();
    let context = context.last().map_or("", |context| RawValue::get(context));
    derive_key(context, data.get().as_bytes(), rule.trim)
        .map(|key| Key::new(&key, &policy.key))
        .transpose()
}

/// Whether a body is JSON, and no object.
fn is_json_of_another_kind(body: &[u8]) -> bool {
    let value = serde_json::from_slice::<&RawValue>(body);
    value.is_ok_and(|value| !value.get().starts_with('{'))
}

/// What follows for a body that cannot be read as JSON: it has no key, if it is something else. Parsers
/// differ: to many, a byte order mark, UTF-16, `NaN` or half a surrogate pair is JSON all the same, with a key
/// in it, and every repetition of such a request would run.
fn keyless(headers: &HeaderMap, body: &[u8]) -> Result<Option<Key>, KeyError> {
    let is_before = |byte: &u8| *byte <= b' ' || BYTE_ORDER_MARKS.contains(byte);
    let first = body.iter().find(|byte| !is_before(byte));
    let is_meant_as_json = match Said::by(headers) {
        Said::Json => first.is_some(),
        Said::Text => matches!(first, Some(b'{' | b'[')),
        Said::Other => false,
    };
    if is_meant_as_json {
        return Err(KeyError::Unreadable);
    }
    Ok(None)
}

/// The bytes of those of UTF-8, UTF-16 and UTF-32.
const BYTE_ORDER_MARKS: [u8; 5] = [0xef, 0xbb, 0xbf, 0xfe, 0xff];

/// What a body is, by its `Content-Type`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    /// Some kind of JSON, by any line.
    Json,
    /// Any text, or what clients say that say nothing of it.
    Text,
    /// Something else, such as protobuf, which may begin with any byte.
    Other,
}

impl Said {
    fn by(headers: &HeaderMap) -> Self {
        let lines = headers.get_all(CONTENT_TYPE).iter().map(|line| {
            let essence = line.as_bytes().split(|it| *it == b';').next();
            essence
                .unwrap_or_default()
                .trim_ascii()
                .to_ascii_lowercase()
        });
        let lines: Vec<_> = lines.collect();
        let is_json = |it: &Vec<u8>| it.windows(4).any(|it| it == b"json");
        let is_text = |it: &Vec<u8>| it.starts_with(b"text/") || it.as_slice() == FORM;
        if lines.iter().any(is_json) {
            Self::Json
        } else if lines.iter().all(is_text) {
            Self::Text
        } else {
            Self::Other
        }
    }
}

/// What `curl` says of any data.
const FORM: &[u8] = b"application/x-www-form-urlencoded";

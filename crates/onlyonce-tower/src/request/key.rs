//! Which key a request has: in the header, in a place of its JSON body, or derived from the body; and
//! whether it is still in its time.

use http::{HeaderMap, HeaderValue, request};
use onlyonce_core::fingerprint::derive_key;
use onlyonce_core::policy::{KeyFirst, KeyTime, Policy};
use onlyonce_core::{Key, KeyError, Reason, Refusal};
use serde_json::value::RawValue;

use super::Covered;
use crate::layer::Settings;
use crate::marks::members;

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
    if let Some(key) = key_member(body, policy).map_err(bad)? {
        is_in_time(&key, &parts.headers, settings)?;
        return Ok(Some(key));
    }
    match &covered.key {
        Some(key) => Ok(Some(key.clone())),
        None => derived_key(body, policy).map_err(bad),
    }
}

/// A key given in the JSON body.
fn key_member(body: &[u8], policy: &Policy) -> Result<Option<Key>, KeyError> {
    let Some(place) = &policy.http.key_member else {
        return Ok(None);
    };
    let found = place.find(body).unwrap_or_default();
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
fn derived_key(body: &[u8], policy: &Policy) -> Result<Option<Key>, KeyError> {
    let Some(rule) = &policy.http.derive else {
        return Ok(None);
    };
    let context = members(body, &rule.context_field);
    let data = members(body, &rule.data_field);
    let Some(data) = data.last() else {
        return Ok(None);
    };
    let context = context.last().map_or("", |context| RawValue::get(context));
    derive_key(context, data.get().as_bytes(), rule.trim)
        .map(|key| Key::new(&key, &policy.key))
        .transpose()
}

//! From a request to a call: its key, its time to live, its meaning and its scope. Parsed once,
//! here; what is wrong with it is refused before anything runs.

use std::sync::Arc;
use std::time::Duration;

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderName, HeaderValue, request};
use onlyonce_core::engine::{Call, Who};
use onlyonce_core::fingerprint::{RequestParts, derive_key};
use onlyonce_core::policy::{HttpRules, KeyNeed, Policy};
use onlyonce_core::{Engine, Key, KeyError, Reason, Refusal};
use serde_json::value::RawValue;

use crate::layer::Settings;
use crate::marks::members;
use crate::origin;
use crate::scope::{Asker, Subject};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// What to do with a request, judged by its head alone.
pub(crate) enum Head {
    /// Not ours: stream it through.
    Pass,
    /// Read the body; then there will be a key, or we will see.
    Read(Covered),
    /// No.
    Refuse(Refusal),
}

/// A covered request before its body is read.
pub(crate) struct Covered {
    key: Option<Key>,
    need: KeyNeed,
    pub(crate) keep_for: Option<Duration>,
    params: Vec<(String, String)>,
    /// The key as its sender wrote it, to echo it.
    pub(crate) echo: Option<HeaderValue>,
}

/// Judges a request by its head.
pub(crate) fn head(parts: &request::Parts, settings: &Settings) -> Head {
    let policy = &*settings.policy;
    let Some(need) = policy.http.methods.need(&parts.method) else {
        return Head::Pass;
    };
    let path = origin::uri(&parts.uri, &parts.extensions).path();
    let params = match settings.route.as_ref().map(|route| route.params(path)) {
        Some(Some(params)) => params,
        Some(None) => return Head::Pass,
        None => Vec::new(),
    };
    match key_header(&parts.headers, policy) {
        Ok(None) if !may_be_in_body(&policy.http) => match need {
            KeyNeed::Optional => Head::Pass,
            KeyNeed::Required => Head::Refuse(Refusal::new(Reason::MissingKey)),
        },
        Ok(found) => match keep_for(&parts.headers, policy) {
            Ok(keep_for) => {
                let (key, echo) = found.unzip();
                Head::Read(Covered {
                    key,
                    need,
                    keep_for,
                    params,
                    echo,
                })
            }
            Err(refusal) => Head::Refuse(refusal),
        },
        Err(error) => Head::Refuse(Refusal::new(Reason::BadKey).because(error)),
    }
}

pub(crate) fn may_be_in_body(rules: &HttpRules) -> bool {
    rules.key_member.is_some() || rules.derive.is_some()
}

fn key_header(
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

fn keep_for(headers: &HeaderMap, policy: &Policy) -> Result<Option<Duration>, Refusal> {
    let Some(rule) = &policy.ttl else {
        return Ok(None);
    };
    let mut lines = headers.get_all(&rule.header).iter();
    let Some(value) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        let why = format!("{} was sent more than once", rule.header);
        return Err(Refusal::new(Reason::BadTtl).because(why));
    }
    rule.parse(value.as_bytes())
        .map(Some)
        .map_err(|error| Refusal::new(Reason::BadTtl).because(error))
}

/// What a covered request with its body turns out to be.
pub(crate) enum Body {
    /// A call; shared, because it goes through many futures. And who asks, where that counts.
    Call(Arc<Call>, Option<Asker>),
    /// No key after all, and none needed.
    Pass,
    /// No.
    Refuse(Refusal),
}

/// Makes a call of a covered request and its body.
pub(crate) fn body(
    parts: &request::Parts,
    covered: &Covered,
    body: &[u8],
    settings: &Settings,
) -> Body {
    let policy = &settings.policy;
    let key = match &covered.key {
        Some(key) => Some(key.clone()),
        None => match key_in_body(body, policy) {
            Ok(key) => key,
            Err(error) => return Body::Refuse(Refusal::new(Reason::BadKey).because(error)),
        },
    };
    match (key, covered.need) {
        (Some(key), _) => match call(parts, covered, &key, body, settings) {
            Ok((call, asker)) => Body::Call(Arc::new(call), asker),
            Err(refusal) => Body::Refuse(refusal),
        },
        (None, KeyNeed::Optional) => Body::Pass,
        (None, KeyNeed::Required) => Body::Refuse(Refusal::new(Reason::MissingKey)),
    }
}

/// A key given in the JSON body, or else derived from it.
fn key_in_body(body: &[u8], policy: &Policy) -> Result<Option<Key>, KeyError> {
    if let Some(field) = &policy.http.key_member {
        match members(body, field)[..] {
            [] => {}
            [value] => {
                let text: String =
                    serde_json::from_str(value.get()).map_err(|_| KeyError::NotText)?;
                return Key::new(&text, &policy.key).map(Some);
            }
            ref several => {
                return Err(KeyError::Several {
                    lines: several.len(),
                });
            }
        }
    }
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

/// The call, and who asks, where that is counted. While the secret is rotated it comes with the same
/// call under the former one.
fn call(
    parts: &request::Parts,
    covered: &Covered,
    key: &Key,
    body: &[u8],
    settings: &Settings,
) -> Result<(Call, Option<Asker>), Refusal> {
    let under = |engine: &Engine| call_under(engine, parts, covered, key, body, settings);
    let (call, asker) = under(&settings.engine)?;
    match settings.engine.former() {
        Some(former) => Ok((call.after(under(former)?.0), asker)),
        None => Ok((call, asker)),
    }
}

fn call_under(
    engine: &Engine,
    parts: &request::Parts,
    covered: &Covered,
    key: &Key,
    body: &[u8],
    settings: &Settings,
) -> Result<(Call, Option<Asker>), Refusal> {
    let policy = &settings.policy;
    let uri = origin::uri(&parts.uri, &parts.extensions);
    let mut scoped = settings.scope.read(
        &Subject {
            parts,
            path: uri.path(),
            params: &covered.params,
            body,
        },
        engine,
    )?;
    let fingerprint = policy.fingerprint.apply(&RequestParts {
        method: parts.method.as_str(),
        path: uri.path(),
        query: uri.query(),
        headers: &parts.headers,
        body,
        credential: scoped.credential.as_ref().map(<[u8; 32]>::as_slice),
    });
    let allowance = settings.allowance.as_ref();
    let asker = allowance.map(|_| scoped.asker(parts));
    let route = settings
        .operation
        .clone()
        .or_else(|| Some(Arc::clone(&settings.route.as_ref()?.pattern)))
        .or_else(|| origin::pattern(&parts.extensions));
    let who = Who {
        operation: route.clone().unwrap_or_else(|| uri.path().into()),
        actor: scoped.actor,
        trace: trace(&parts.headers),
        credential: scoped.credential,
        intake: settings.label.clone().or(scoped.intake),
        route,
    };
    let call = engine.call(&scoped.scope, key, fingerprint, policy, who);
    let call = match covered.keep_for {
        Some(keep_for) => call.keep_for(keep_for),
        None => call,
    };
    Ok((call, asker))
}

/// The trace and the span of a W3C `traceparent`: 32 hex digits, a dash, 16 hex digits.
fn trace(headers: &HeaderMap) -> Option<Arc<str>> {
    const TRACE: usize = 32;
    const SPAN: usize = 16;
    let value = headers.get(TRACEPARENT)?.to_str().ok()?;
    let ids = value.get(3..3 + TRACE + 1 + SPAN)?;
    let (trace, span) = ids.split_once('-')?;
    let is_id =
        |id: &str, digits| id.len() == digits && id.bytes().all(|it| it.is_ascii_hexdigit());
    (is_id(trace, TRACE) && is_id(span, SPAN)).then(|| ids.into())
}

/// A body that will be marked must not come back compressed.
pub(crate) fn ask_for_identity(headers: &mut HeaderMap, policy: &Policy) {
    if policy.http.body_marks.is_some() {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
}

//! From a request to a call: its key, its time to live, its meaning and its scope. Parsed once,
//! here; what is wrong with it is refused before anything runs.

use std::sync::Arc;
use std::time::Duration;

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderName, HeaderValue, request};
use onlyonce_core::engine::{Call, Who};
use onlyonce_core::fingerprint::{Fingerprint, RequestParts, is_encoded};
use onlyonce_core::policy::{KeyNeed, Policy};
use onlyonce_core::{Engine, Key, Reason, Refusal, Slot};

use crate::layer::{Matched, Settings};
use crate::origin;
use crate::params::PathParams;
use crate::scope::{Asker, Scoped, Subject};
use crate::status;

mod key;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// What to do with a request, judged by its head alone.
pub(crate) enum Head {
    /// Not ours: stream it through.
    Pass,
    /// Read the body; then there will be a key, or we will see.
    Read(Covered),
    /// Somebody asks what has become of a key.
    Status(status::Asked),
    /// No.
    Refuse(Refusal),
}

/// A covered request before its body is read.
pub(crate) struct Covered {
    key: Option<Key>,
    need: KeyNeed,
    pub(crate) keep_for: Option<Duration>,
    pub(crate) params: PathParams,
    /// The key as its sender wrote it, to echo it.
    pub(crate) echo: Option<HeaderValue>,
}

/// Judges a request by its head.
pub(crate) fn head(parts: &request::Parts, settings: &Settings) -> Head {
    let policy = &*settings.policy;
    if let Some(head) = status_head(parts, settings) {
        return head;
    }
    let Some(need) = policy.http.methods.need(&parts.method) else {
        return Head::Pass;
    };
    let path = origin::uri(&parts.uri, &parts.extensions).path();
    let params = match params(&Matched::Own(path), parts, settings) {
        Ok(Some(params)) => params,
        Ok(None) => return Head::Pass,
        Err(refusal) => return Head::Refuse(refusal),
    };
    let found = key::in_header(&parts.headers, policy);
    if let Err(refusal) = key::check_time(&parts.headers, &found, settings) {
        return Head::Refuse(refusal);
    }
    match found {
        Ok(None) if !policy.http.may_be_in_body() => match need {
            KeyNeed::Optional => Head::Pass,
            KeyNeed::Required => Head::Refuse(Refusal::new(Reason::MissingKey)),
        },
        Ok(found) if needs_members(found.is_some(), settings) && is_encoded(&parts.headers) => {
            Head::Refuse(Refusal::new(Reason::RequestEncoded))
        }
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

/// Whether members of the body say which key counts, or whose request it is. What cannot be read there would
/// be taken for absent: the request would run without its key, or as another caller's.
fn needs_members(has_key: bool, settings: &Settings) -> bool {
    let http = &settings.policy.http;
    let finds_key = http.may_be_in_body() && !(has_key && key::header_counts(&settings.policy));
    finds_key || settings.scope.reads_body()
}

/// What a request for the status of a key is; nothing if this is none.
fn status_head(parts: &request::Parts, settings: &Settings) -> Option<Head> {
    let policy = &*settings.policy;
    let path = origin::uri(&parts.uri, &parts.extensions).path();
    let path = status::target(&policy.http, &parts.method, path)?;
    let params = match params(&Matched::Operation(path), parts, settings) {
        Ok(params) => params?,
        Err(refusal) => return Some(Head::Refuse(refusal)),
    };
    Some(match key::in_header(&parts.headers, policy) {
        Ok(Some((key, _))) => Head::Status(status::Asked {
            key,
            path: path.to_owned(),
            params,
        }),
        Ok(None) => Head::Refuse(Refusal::new(Reason::MissingKey)),
        Err(error) => Head::Refuse(Refusal::new(Reason::BadKey).because(error)),
    })
}

/// The parameters of a path, if the layer covers it.
pub(crate) fn params(
    path: &Matched<'_>,
    parts: &request::Parts,
    settings: &Settings,
) -> Result<Option<PathParams>, Refusal> {
    match &settings.route {
        Some(route) => route.params(path, &parts.extensions),
        None => Ok(Some(PathParams::default())),
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
    let key = match key::that_counts(parts, covered, body, settings) {
        Ok(key) => key,
        Err(refusal) => return Body::Refuse(refusal),
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
    let Meant {
        mut scoped,
        fingerprint,
        path,
    } = meant(engine, parts, covered, body, settings)?;
    let allowance = settings.allowance.as_ref();
    let asker = allowance.map(|_| scoped.asker(parts));
    let route = settings
        .operation
        .clone()
        .or_else(|| Some(Arc::clone(&settings.route.as_ref()?.pattern)))
        .or_else(|| origin::pattern(&parts.extensions));
    let who = Who {
        operation: route.clone().unwrap_or_else(|| path.into()),
        actor: scoped.actor,
        trace: trace(&parts.headers),
        credential: scoped.credential,
        intake: settings.label.clone().or(scoped.intake),
        route,
    };
    let call = engine.call(&scoped.scope, key, fingerprint, &settings.policy, who);
    let call = match covered.keep_for {
        Some(keep_for) => call.keep_for(keep_for),
        None => call,
    };
    Ok((call, asker))
}

/// Whose request it is, and what it means.
struct Meant<'a> {
    scoped: Scoped<'a>,
    fingerprint: Fingerprint,
    path: &'a str,
}

fn meant<'a>(
    engine: &Engine,
    parts: &'a request::Parts,
    covered: &'a Covered,
    body: &'a [u8],
    settings: &Settings,
) -> Result<Meant<'a>, Refusal> {
    let policy = &settings.policy;
    let uri = origin::uri(&parts.uri, &parts.extensions);
    let scoped = settings.scope.read(
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
    Ok(Meant {
        scoped,
        fingerprint,
        path: uri.path(),
    })
}

/// What a covered request with its body would be, where it only is looked at.
pub(crate) enum Sighted {
    /// A call.
    Keyed(SightedKey),
    /// No key, and none needed.
    Unkeyed,
    /// No.
    Refused(Refusal),
}

/// What tells calls apart.
pub(crate) struct SightedKey {
    pub(crate) slot: Slot,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) credential: Option<[u8; 32]>,
    pub(crate) keep_for: Duration,
    pub(crate) is_weak: bool,
    /// How logs name the key.
    pub(crate) label: String,
}

/// Reads a covered request and its body as [`body`] does, without making a call of it.
pub(crate) fn sighted(
    parts: &request::Parts,
    covered: &Covered,
    body: &[u8],
    settings: &Settings,
) -> Sighted {
    let (policy, engine) = (&settings.policy, &settings.engine);
    let found = key::that_counts(parts, covered, body, settings);
    let key = match (found, covered.need) {
        (Ok(Some(key)), _) => key,
        (Ok(None), KeyNeed::Optional) => return Sighted::Unkeyed,
        (Ok(None), KeyNeed::Required) => return Sighted::Refused(Refusal::new(Reason::MissingKey)),
        (Err(refusal), _) => return Sighted::Refused(refusal),
    };
    let meant = match meant(engine, parts, covered, body, settings) {
        Ok(meant) => meant,
        Err(refusal) => return Sighted::Refused(refusal),
    };
    let slot = engine.slot(&meant.scoped.scope, &key);
    Sighted::Keyed(SightedKey {
        slot,
        fingerprint: meant.fingerprint,
        credential: meant.scoped.credential,
        keep_for: covered.keep_for.unwrap_or(policy.keep_for),
        is_weak: key.looks_weak(),
        label: format!("{}…{}", engine.hint(&key), slot.short()),
    })
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

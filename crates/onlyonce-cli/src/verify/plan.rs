//! What to verify and how: the arguments, resolved once, so that nothing later can be wrong.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Method};
use onlyonce_core::fingerprint::BodyRule;
use onlyonce_core::policy::{KeyFirst, KeyTime, Pointer, Policy, ScopePart};
use onlyonce_core::profile::usual;
use onlyonce_core::{Clock as _, OsEntropy, SystemClock, Timestamp};
use onlyonce_gateway::config::{self, Contract};
use thiserror::Error;

use super::args::{Args, HeaderLine};
use super::check::{self, Check};
use super::keys::uuid;
use super::payload::Payload;
use super::target::Target;

/// The largest body to send on the user's behalf.
const BODY_BYTES_MAX: u64 = 512 * 1024;
const TIMEOUT_MAX: Duration = Duration::from_secs(120);

/// A run of checks against one endpoint.
pub struct Plan {
    pub(crate) target: Target,
    /// What the rules are called in reports.
    pub(crate) profile: String,
    pub(crate) policy: Policy,
    pub(crate) method: Method,
    pub(crate) payload: Payload,
    pub(crate) other_payload: Payload,
    pub(crate) headers: Vec<HeaderLine>,
    pub(crate) other_headers: Vec<HeaderLine>,
    pub(crate) key_header: HeaderName,
    /// Where keys are in the body, if they belong there.
    pub(crate) key_place: Option<Pointer>,
    /// When the requests of this run were first sent, where that goes with a key.
    pub(crate) first_sent: Option<HeaderLine>,
    pub(crate) slow_path: Option<String>,
    pub(crate) concurrency: usize,
    pub(crate) timeout: Duration,
    pub(crate) strict: bool,
    pub(crate) checks: Vec<&'static Check>,
}

/// Arguments that make no plan.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct PlanError(String);

impl PlanError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl Plan {
    /// Resolves the arguments.
    pub fn resolve(args: &Args) -> Result<Self, PlanError> {
        let url = args.url.as_deref();
        let target = Target::parse(url.ok_or_else(|| PlanError::new("give a URL"))?)?;
        let (profile, mut policy) = rules(args, &target)?;
        check_method(&args.method, &policy, &profile)?;
        if let Some(need) = args.key {
            policy.http.methods = policy.http.methods.all_need(need.into());
        }
        let key_header = match &args.key_header {
            Some(name) => name.clone(),
            None => policy.http.key_header.clone(),
        };
        let headers = read_headers("--header", &args.headers, &key_header)?;
        let other_headers = read_headers("--other-header", &args.other_headers, &key_header)?;
        if args.timeout.is_zero() || args.timeout > TIMEOUT_MAX {
            return Err(PlanError::new("--timeout must be over 0s and at most 120s"));
        }
        let payload = match &args.body {
            Some(body) => read_payload("--body", body, args.content_type.as_ref())?,
            None => default_payload(&policy, args.content_type.as_ref()),
        };
        let other_payload = match &args.other_body {
            Some(body) => Payload {
                content_type: payload.content_type.clone(),
                ..read_payload("--other-body", body, None)?
            },
            None => payload.altered(&kept_members(&policy)),
        };
        if other_payload.bytes == payload.bytes {
            return Err(PlanError::new("--other-body must differ from the body"));
        }
        Ok(Self {
            slow_path: match &args.slow_path {
                Some(path) => Some(target.join(path)?),
                None => None,
            },
            target,
            profile,
            method: args.method.clone(),
            payload,
            other_payload,
            headers,
            other_headers,
            key_header,
            key_place: match policy.http.key_first {
                KeyFirst::Body if args.key_header.is_none() => policy.http.key_member.clone(),
                KeyFirst::Body | KeyFirst::Header => None,
            },
            first_sent: first_sent(&policy, SystemClock::new().wall()),
            policy,
            concurrency: usize::from(args.concurrency),
            timeout: args.timeout,
            strict: args.strict,
            checks: check::select(&args.only, &args.skip)?,
        })
    }

    /// Whether two requests that differ in nothing but the body are two payloads.
    pub(crate) fn compares_bodies(&self) -> bool {
        self.policy.fingerprint.body != BodyRule::Ignore
    }
}

/// The header that says when a request was first sent, where there is one.
fn first_sent(policy: &Policy, now: Timestamp) -> Option<HeaderLine> {
    let KeyTime::Header(name) = &policy.http.key_time.as_ref()?.from else {
        return None;
    };
    let now = UNIX_EPOCH + Duration::from_millis(now.as_millis());
    let value = HeaderValue::try_from(httpdate::fmt_http_date(now)).ok()?;
    let name = name.clone();
    Some(HeaderLine { name, value })
}

/// The rules to hold the endpoint to, and what they are called.
fn rules(args: &Args, target: &Target) -> Result<(String, Policy), PlanError> {
    let Some(file) = &args.config else {
        let preset = args.profile.unwrap_or_else(usual);
        return Ok((preset.name().to_owned(), preset.policy()));
    };
    let shown = file.display();
    let config = config::load(Some(file), [], &[]).map_err(|it| PlanError::new(it.to_string()))?;
    let path = target.path().split('?').next().unwrap_or_default();
    let request = format!("{} {path}", args.method);
    match config.contract_of(&args.method, path) {
        Ok(Contract::Once {
            route,
            profile,
            policy,
        }) => {
            let route = route.map_or_else(String::new, |it| format!(", route {it}"));
            Ok((format!("{profile} (as in {shown}{route})"), *policy))
        }
        Ok(Contract::Passes(route)) => Err(PlanError::new(format!(
            "{shown}: {request} passes through unprotected (route {route}): there is nothing to verify"
        ))),
        Ok(Contract::Observed(route)) => {
            let setting = match route {
                Some(route) => format!("route {route}"),
                None => "the general setting".to_owned(),
            };
            Err(PlanError::new(format!(
                "{shown}: {request} is only observed ({setting} has mode = \"observe\"): nothing is promised yet, see `onlyonce observe report`"
            )))
        }
        Ok(_) => Err(PlanError::new(format!(
            "{shown}: no route is for {request}, and there is no general upstream"
        ))),
        Err(error) => Err(PlanError::new(format!("{shown}: {error}"))),
    }
}

fn check_method(method: &Method, policy: &Policy, profile: &str) -> Result<(), PlanError> {
    if policy.http.methods.need(method).is_some() {
        return Ok(());
    }
    let candidates = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let covered: Vec<_> = candidates
        .iter()
        .filter(|method| policy.http.methods.need(method).is_some())
        .map(Method::as_str)
        .collect();
    Err(PlanError::new(format!(
        "the profile {profile} promises nothing about {method}: --method may be {}",
        covered.join(", ")
    )))
}

fn read_headers(
    option: &str,
    lines: &[String],
    key_header: &HeaderName,
) -> Result<Vec<HeaderLine>, PlanError> {
    let read = |line: &String| {
        let line: HeaderLine = line
            .parse()
            .map_err(|error| PlanError::new(format!("{option}: {error}")))?;
        check_name(&line.name, key_header)?;
        Ok(line)
    };
    lines.iter().map(read).collect()
}

/// Some headers this tool must set itself.
fn check_name(name: &HeaderName, key_header: &HeaderName) -> Result<(), PlanError> {
    if name == key_header {
        return Err(PlanError::new(format!(
            "{name} cannot be given: every check makes its own fresh keys"
        )));
    }
    if name == CONTENT_TYPE {
        return Err(PlanError::new("give the content type with --content-type"));
    }
    if [CONTENT_LENGTH, HOST, TRANSFER_ENCODING].contains(name) {
        return Err(PlanError::new(format!("{name} cannot be given")));
    }
    Ok(())
}

/// Members that address a record: another value would be another record, not another payload.
fn kept_members(policy: &Policy) -> Vec<String> {
    let in_scope = policy.http.scope.iter().filter_map(|part| match part {
        ScopePart::Body(member) => Some(member.clone()),
        ScopePart::Route
        | ScopePart::Caller
        | ScopePart::Path(_)
        | ScopePart::PathAfter(_)
        | ScopePart::Header { .. }
        | ScopePart::UserHeader(_)
        | ScopePart::Cookie(_)
        | ScopePart::Jwt(_) => None,
    });
    let places = policy.http.key_member.iter();
    let places = places.chain(&policy.fingerprint.except);
    in_scope
        .chain(places.map(|place| place.root().to_owned()))
        .collect()
}

/// A small order; where keys are derived, with a session of its own and data to derive from.
fn default_payload(policy: &Policy, content_type: Option<&HeaderValue>) -> Payload {
    let mut body = serde_json::json!({"amount": 1, "note": "onlyonce verify"});
    if let Some(rule) = &policy.http.derive {
        body[&rule.context_field] = uuid(&OsEntropy::new()).into();
        body[&rule.data_field] = serde_json::json!({"amount": 1, "name": "onlyonce verify"});
    }
    Payload::new(body.to_string(), content_type.cloned())
}

fn read_payload(
    option: &str,
    text: &str,
    content_type: Option<&HeaderValue>,
) -> Result<Payload, PlanError> {
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    let bytes = match text.strip_prefix('@') {
        Some(path) => read_file(option, Path::new(path))?,
        None if is_json || text.is_empty() => Bytes::copy_from_slice(text.as_bytes()),
        None if Path::new(text).is_file() => read_file(option, Path::new(text))?,
        None => {
            return Err(PlanError::new(format!(
                "{option} is neither JSON nor a file: put other content into a file and write @FILE"
            )));
        }
    };
    Ok(Payload::new(bytes, content_type.cloned()))
}

fn read_file(option: &str, path: &Path) -> Result<Bytes, PlanError> {
    let shown = path.display();
    let broken = |error| PlanError::new(format!("{option}: cannot read {shown}: {error}"));
    let bytes = std::fs::metadata(path).map_err(broken)?.len();
    if bytes > BODY_BYTES_MAX {
        return Err(PlanError::new(format!(
            "{option}: {shown} has {bytes} bytes; at most {BODY_BYTES_MAX} are sent"
        )));
    }
    Ok(std::fs::read(path).map_err(broken)?.into())
}

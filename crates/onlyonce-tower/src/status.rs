//! A client asks what has become of its own key: `GET` on the status path before the operation's own
//! path, with the same key, host and credentials. Nothing runs, and nothing is told of others.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, request};
use onlyonce_core::engine::{KeyState, KeyStatus};
use onlyonce_core::policy::{HttpRules, Policy};
use onlyonce_core::{Engine, Key, Reason, Refusal, Timestamp};
use serde_json::json;

use crate::body::Whole;
use crate::layer::Settings;
use crate::params::PathParams;
use crate::scope::Subject;

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The path of the operation that a status request asks about, if it is one.
pub(crate) fn target<'p>(rules: &HttpRules, method: &Method, path: &'p str) -> Option<&'p str> {
    let prefix = rules.status_path.as_deref()?;
    let rest = path.strip_prefix(prefix)?;
    (*method == Method::GET && rest.starts_with('/')).then_some(rest)
}

/// In the extensions of every answer to a status request, other than a refusal: where the key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldState(pub KeyState);

/// A status request.
pub(crate) struct Asked {
    pub(crate) key: Key,
    pub(crate) path: String,
    pub(crate) params: PathParams,
}

/// Answers it.
pub(crate) async fn answer(
    settings: Arc<Settings>,
    parts: request::Parts,
    asked: Asked,
) -> Result<Response<Whole>, Refusal> {
    if settings.scope.reads_body() {
        // Said to be unknown, it would be taken for what never ran.
        let why = "a status request has no body, and a member of it tells records apart";
        return Err(Refusal::new(Reason::Unscoped).because(why));
    }
    let policy = &settings.policy;
    let wait = wait(&parts.headers).min(policy.duplicate.patience());
    // While the secret is rotated every record that counts is under the former one too.
    let engines = [settings.engine.former(), Some(&settings.engine)];
    let mut status = None;
    for engine in engines.into_iter().flatten() {
        let found = look(engine, &settings, &parts, &asked, wait).await?;
        let is_known = found.state != KeyState::Unknown;
        status = Some(found);
        if is_known {
            break;
        }
    }
    let status = status.ok_or_else(|| Refusal::new(Reason::StoreDown))?;
    Ok(shown(&status, policy))
}

async fn look(
    engine: &Engine,
    settings: &Settings,
    parts: &request::Parts,
    asked: &Asked,
    wait: Duration,
) -> Result<KeyStatus, Refusal> {
    let subject = Subject {
        parts,
        path: &asked.path,
        params: &asked.params,
        body: b"",
    };
    let scoped = settings.scope.read(&subject, engine)?;
    let (scope, credential) = (scoped.scope, scoped.credential);
    let status = engine.status(&scope, &asked.key, credential, wait).await;
    status.map_err(|_| {
        let refusal = Refusal::new(Reason::StoreDown);
        refusal.retry_after(settings.policy.retry_after)
    })
}

/// How long the client would wait: `Prefer: wait=N`, in seconds (RFC 7240).
fn wait(headers: &HeaderMap) -> Duration {
    let lines = headers.get_all(PREFER).iter();
    let mut preferences = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    let seconds = preferences.find_map(|it| {
        let (name, value) = it.split_once('=')?;
        let is_wait = name.trim().eq_ignore_ascii_case("wait");
        is_wait.then(|| value.trim().trim_matches('"').parse::<u32>().ok())?
    });
    Duration::from_secs(seconds.unwrap_or(0).into())
}

fn shown(status: &KeyStatus, policy: &Policy) -> Response<Whole> {
    let mut body = json!({ "state": status.state.name() });
    if let KeyState::Done(code) = status.state {
        body["status"] = code.into();
    }
    let times = [("since", status.since), ("expires", status.expires_at)];
    for (name, time) in times {
        if let Some(time) = time {
            body[name] = Timestamp::to_rfc3339(time).into();
        }
    }
    let mut response = Response::new(Whole {
        data: body.to_string().into(),
        trailers: None,
    });
    response.extensions_mut().insert(ToldState(status.state));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    match status.state {
        KeyState::Running => {
            headers.insert(RETRY_AFTER, policy.retry_after.as_secs().into());
        }
        KeyState::Unknown => *response.status_mut() = StatusCode::NOT_FOUND,
        KeyState::Done(_) | KeyState::InDoubt => {}
    }
    response
}

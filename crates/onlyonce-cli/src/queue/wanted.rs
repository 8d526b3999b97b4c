//! Requests as they are written down: in a group's file, and to the daemon.

use std::collections::BTreeMap;

use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use onlyonce_client::{Group, Key, Operation};
use onlyonce_core::KeyRule;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::CommandError;

/// One request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    method: String,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// As text.
    body: Option<String>,
    /// As JSON, which is sent as it is written: a number with more digits than a float has keeps them.
    json: Option<Box<RawValue>>,
    pub(super) key: Option<String>,
}

/// Requests that are done in order, all of them or none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WantedGroup {
    name: Option<String>,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    r#do: Wanted,
    undo: Option<Wanted>,
}

impl Wanted {
    pub(super) fn operation(&self) -> Result<Operation, CommandError> {
        let mut operation = Operation::new(method(&self.method)?, &self.url)?;
        operation = match (&self.body, &self.json) {
            (Some(_), Some(_)) => return Err(wrong("give `body` or `json`, not both")),
            (None, Some(json)) => operation.json(json)?,
            (Some(text), None) => with_body(operation, None, text.clone().into_bytes())?,
            (None, None) => operation,
        };
        for (name, value) in &self.headers {
            operation = with_header(operation, name, value)?;
        }
        Ok(operation)
    }
}

impl WantedGroup {
    pub(super) fn group(&self) -> Result<Group, CommandError> {
        let mut group = Group::new();
        if let Some(name) = &self.name {
            group = group.named(&key(name)?);
        }
        for step in &self.steps {
            let parts = [Some(&step.r#do), step.undo.as_ref()];
            if parts.into_iter().flatten().any(|part| part.key.is_some()) {
                let why = "a step's key is made for it: `key` cannot be given in a group; `name` names the group";
                return Err(wrong(why));
            }
            let operation = step.r#do.operation()?;
            group = match &step.undo {
                Some(undo) => group.step_or_undo(operation, undo.operation()?),
                None => group.step(operation),
            };
        }
        Ok(group)
    }
}

pub(super) fn method(text: &str) -> Result<Method, CommandError> {
    let method = Method::from_bytes(text.to_ascii_uppercase().as_bytes());
    method.map_err(|_| wrong("the method is not valid: write it like POST"))
}

pub(super) fn key(text: &str) -> Result<Key, CommandError> {
    Key::new(text, &KeyRule::any()).map_err(|why| wrong(&format!("the key is not valid: {why}")))
}

/// The same with a header, also one that is a credential: it is kept with the request until that is done.
pub(super) fn with_header(
    operation: Operation,
    name: &str,
    value: &str,
) -> Result<Operation, CommandError> {
    let parsed = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| wrong("a header's name is not valid: write headers like 'Name: value'"))?;
    if parsed == "idempotency-key" {
        return Err(wrong(
            "the key is given with --key (`key` in JSON), not as a header",
        ));
    }
    Ok(operation.credential(parsed, value)?)
}

/// The same with a body. JSON is known as such if nothing else is said.
pub(super) fn with_body(
    operation: Operation,
    content_type: Option<&str>,
    body: Vec<u8>,
) -> Result<Operation, CommandError> {
    let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
    let content_type = match content_type {
        Some(given) => given,
        None if is_json() => "application/json",
        None => "application/octet-stream",
    };
    Ok(operation.body(content_type, body)?)
}

/// Whether a header's value is kept from a list: it may prove who somebody is.
pub(super) fn is_secret(name: &HeaderName) -> bool {
    const PLAIN: [HeaderName; 2] = [ACCEPT, CONTENT_TYPE];
    const TELLING: [&str; 9] = [
        "auth",
        "token",
        "secret",
        "key",
        "cookie",
        "sign",
        "pass",
        "credential",
        "session",
    ];
    !PLAIN.contains(name) && TELLING.iter().any(|part| name.as_str().contains(part))
}

pub(super) fn wrong(why: &str) -> CommandError {
    CommandError::Wrong(why.to_owned())
}

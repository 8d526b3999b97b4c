//! Who does something and why, as a request says it. The token proves that somebody is an operator;
//! the name is the one they give.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::header::USER_AGENT;
use http::request::Parts;
use onlyonce_core::{Deed, Operated};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

/// How `onlyonce keys` calls itself.
const CLI: &str = "onlyonce-cli/";
const NAME_CHARS_MAX: usize = 128;
const REASON_CHARS_MAX: usize = 1000;

/// A line of text of at most so many characters, not empty, without control characters: it is written to logs.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Line<const CHARS_MAX: usize>(Arc<str>);

/// The name of an operator.
pub(super) type Name = Line<NAME_CHARS_MAX>;
/// Why an operator does something.
pub(super) type Reason = Line<REASON_CHARS_MAX>;

impl<const CHARS_MAX: usize> Line<CHARS_MAX> {
    pub(super) fn text(self) -> Arc<str> {
        self.0
    }
}

impl<const CHARS_MAX: usize> TryFrom<String> for Line<CHARS_MAX> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_line =
            !text.is_empty() && text.chars().count() <= CHARS_MAX && !text.chars().any(is_control);
        if is_line {
            Ok(Self(text.into()))
        } else {
            Err(format!(
                "a name or reason is a line of 1 to {CHARS_MAX} characters without control characters"
            ))
        }
    }
}

/// As the schema says it.
fn is_control(it: char) -> bool {
    matches!(it, '\0'..='\u{1f}' | '\u{7f}')
}

impl<const CHARS_MAX: usize> JsonSchema for Line<CHARS_MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Line{CHARS_MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 1,
            "maxLength": CHARS_MAX,
            "pattern": "^[^\\u0000-\\u001f\\u007f]+$",
        })
    }
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Via(pub(super) &'static str);

impl<S: Send + Sync> FromRequestParts<S> for Via {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let agent = parts.headers.get(USER_AGENT);
        let is_cli = agent.is_some_and(|agent| agent.as_bytes().starts_with(CLI.as_bytes()));
        Ok(Self(if is_cli { "cli" } else { "api" }))
    }
}

impl Via {
    /// What an operator did, for the log, the metrics and the audit trail.
    pub(super) fn operated(self, deed: Deed, by: Option<Name>, reason: Option<Reason>) -> Operated {
        Operated {
            deed,
            by: by.map(Line::text),
            reason: reason.map(Line::text),
            via: self.0,
        }
    }
}

//! What the headers of a request say: which answers its client takes, in which session and which revision of
//! the protocol it is, and what of its message is repeated there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, request};
use onlyonce_core::{Key, KeyError, KeyRule};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::exchange::LAST_EVENT_ID;
use crate::members::{Members, read};
use crate::remote::{METHOD, NAME, SESSION, VERSION, VERSION_MEMBER};

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const PARAMETER: &str = "mcp-param-";
/// The first revision without sessions.
pub(super) const STATELESS_SINCE: &str = "2026-07-28";
/// The first revision that has clients know of an event that has nothing but an id.
pub(super) const PRIMED_SINCE: &str = "2025-11-25";
/// The only revision that has batches.
pub(super) const BATCHES_IN: &str = "2025-03-26";
/// Revisions with a handshake. What client and server agree on is known too, whatever it is.
pub(super) const HANDSHAKES: [&str; 4] = ["2024-11-05", BATCHES_IN, "2025-06-18", PRIMED_SINCE];

/// The headers of a request.
pub(super) struct Head<'a>(&'a HeaderMap);

/// Which forms of an answer a client takes.
#[derive(Clone, Copy)]
pub(super) struct Takes {
    pub(super) json: bool,
    pub(super) events: bool,
}

impl<'a> Head<'a> {
    pub(super) fn of(parts: &'a request::Parts) -> Self {
        Self(&parts.headers)
    }

    pub(super) fn is_json(&self) -> bool {
        let kind = self.text(&CONTENT_TYPE).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    }

    pub(super) fn takes(&self) -> Takes {
        let lines = self.0.get_all(ACCEPT).iter();
        let lines: Vec<_> = lines.filter_map(|line| line.to_str().ok()).collect();
        let accepts = |kinds: &[&str]| {
            let mut all = lines.iter().flat_map(|line| line.split(','));
            all.any(|it| {
                let kind = it.split(';').next().unwrap_or_default().trim();
                kinds.iter().any(|known| kind.eq_ignore_ascii_case(known))
            })
        };
        Takes {
            json: lines.is_empty() || accepts(&["application/json", "application/*", "*/*"]),
            events: accepts(&["text/event-stream", "text/*"]),
        }
    }

    pub(super) fn session(&self) -> Option<&'a str> {
        self.text(&SESSION)
    }

    pub(super) fn version(&self) -> Option<&'a str> {
        self.text(&VERSION)
    }

    /// The stream and the event to go on after; an error if it is none of ours.
    pub(super) fn last_event(&self) -> Option<Result<(u64, u64), ()>> {
        let id = self.0.get(&LAST_EVENT_ID)?;
        let parsed = id.to_str().ok().and_then(|id| {
            let (stream, event) = id.split_once('-')?;
            Some((stream.parse().ok()?, event.parse().ok()?))
        });
        Some(parsed.ok_or(()))
    }

    /// The key that came beside the message.
    pub(super) fn key(&self, rule: &KeyRule) -> Result<Option<String>, KeyError> {
        let mut lines = self.0.get_all(KEY).iter();
        let (Some(line), more) = (lines.next(), lines.count()) else {
            return Ok(None);
        };
        if more > 0 {
            return Err(KeyError::Several { lines: more + 1 });
        }
        let key = Key::parse(line.as_bytes(), rule)?;
        Ok(Some(key.expose().to_owned()))
    }

    /// What is wrong with what is repeated in the headers, as 2026-07-28 has it.
    pub(super) fn mismatch(&self, method: &str, params: Option<&RawValue>) -> Option<String> {
        let params = params.and_then(Members::of).unwrap_or_default();
        let in_body = version_of(&params);
        if self.version().is_none() || self.version() != in_body.as_deref() {
            return Some(format!(
                "MCP-Protocol-Version is not what {VERSION_MEMBER} says"
            ));
        }
        if self.text(&METHOD) != Some(method) {
            return Some("Mcp-Method is not the message's method".to_owned());
        }
        let member = match method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            _ => return None,
        };
        let name = self.0.get(&NAME).and_then(|it| decoded(it.as_bytes()));
        (name != params.text(member)).then(|| format!("Mcp-Name is not the message's {member}"))
    }

    /// What is wrong with the arguments that a tool wants repeated in headers.
    pub(super) fn mismatched_argument(
        &self,
        repeated: &[(String, String)],
        params: Option<&RawValue>,
    ) -> Option<String> {
        let params = params.and_then(Members::of)?;
        let arguments: Value = params.get("arguments").and_then(read).unwrap_or_default();
        repeated.iter().find_map(|(header, at)| {
            let expected = match arguments.pointer(at) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                Some(Value::Bool(flag)) => flag.to_string(),
                // Nothing of it is expected in a header.
                Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => return None,
            };
            let name = format!("{PARAMETER}{}", header.to_ascii_lowercase());
            let sent = self.0.get(&name).and_then(|it| decoded(it.as_bytes()));
            let is_it =
                sent.is_some_and(|sent| sent == expected || are_one_number(&sent, &expected));
            (!is_it).then(|| format!("Mcp-Param-{header} is not the argument"))
        })
    }

    fn text(&self, name: &HeaderName) -> Option<&'a str> {
        let mut values = self.0.get_all(name).iter();
        let value = values.next()?.to_str().ok()?;
        // Of several, none: another reader may take another one.
        values.next().is_none().then_some(value)
    }
}

/// The revision that a message names itself.
pub(super) fn version_in(params: Option<&RawValue>) -> Option<String> {
    version_of(&params.and_then(Members::of)?)
}

fn version_of(params: &Members) -> Option<String> {
    params.object("_meta")?.text(VERSION_MEMBER)
}

fn are_one_number(one: &str, other: &str) -> bool {
    let numbers = (one.parse::<f64>(), other.parse::<f64>());
    matches!(numbers, (Ok(one), Ok(other)) if one == other)
}

/// A header's value as text: as it is, or out of its encoding.
fn decoded(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let inside = text
        .strip_prefix("=?base64?")
        .and_then(|it| it.strip_suffix("?="));
    match inside {
        Some(inside) => String::from_utf8(STANDARD.decode(inside).ok()?).ok(),
        None => Some(text.to_owned()),
    }
}

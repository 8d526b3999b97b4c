//! The headers of a message: what it is, for whom, and what of it is repeated there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::state::{State, VERSION};
use crate::decide::TOOLS_CALL;
use crate::members::{Members, read};
use crate::message::{INITIALIZE, Message};
use crate::session::Session;

pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// What every request says since 2026-07-28.
pub(crate) const VERSION_MEMBER: &str = "io.modelcontextprotocol/protocolVersion";

/// Describes a message in the headers of its request.
pub(super) fn describe(line: &str, state: &State, session: &Session, headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let both = HeaderValue::from_static("application/json, text/event-stream");
    headers.insert(ACCEPT, both);
    let (method, params) = match Message::read(line) {
        Message::Request { method, params, .. } | Message::Notification { method, params } => {
            (method, params.and_then(Members::of))
        }
        Message::Response { .. } | Message::Other | Message::Unreadable => {
            return state.name_session(headers);
        }
    };
    if method != INITIALIZE {
        state.name_session(headers);
    }
    let Some(version) = params.as_ref().and_then(version_of) else {
        return;
    };
    put(headers, VERSION, &version);
    put(headers, METHOD, &method);
    let Some(params) = params else { return };
    let name = params.text("name").or_else(|| params.text("uri"));
    let Some(name) = name else { return };
    put(headers, NAME, &name);
    if method == TOOLS_CALL {
        let arguments = params.get("arguments").and_then(read::<Value>);
        let arguments = arguments.unwrap_or_default();
        for (header, at) in session.headers_of(&name) {
            repeat(headers, &header, arguments.pointer(&at));
        }
    }
}

/// The version that a message names, where it does.
pub(super) fn version_in(line: &str) -> Option<String> {
    match Message::read(line) {
        Message::Request { params, .. } => version_of(&params.and_then(Members::of)?),
        Message::Notification { .. }
        | Message::Response { .. }
        | Message::Other
        | Message::Unreadable => None,
    }
}

fn version_of(params: &Members) -> Option<String> {
    params.object("_meta")?.text(VERSION_MEMBER)
}

/// Repeats an argument in its header.
fn repeat(headers: &mut HeaderMap, header: &str, value: Option<&Value>) {
    let value = match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => return,
    };
    if let Ok(name) = HeaderName::from_bytes(format!("mcp-param-{header}").as_bytes()) {
        put(headers, name, &value);
    }
}

/// Text as a header's value: as it is, or encoded where a header cannot have it.
fn put(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    let is_plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) && text.trim() == text;
    let looks_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    let value = if is_plain && !looks_encoded {
        HeaderValue::from_str(text)
    } else {
        HeaderValue::from_str(&format!("=?base64?{}?=", STANDARD.encode(text)))
    };
    headers.insert(
        name,
        value.expect("visible characters are a header's value"),
    );
}

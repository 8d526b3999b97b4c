//! What is known of the server's tools: which of them are covered, and what their descriptions say to a model.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::members::{Members, raw, read};
use crate::message::Message;
use crate::rules::{KEY_BYTES_MAX, Tools};

/// The argument that carries the key; the member of `_meta` has the same name.
pub(crate) const KEY: &str = "idempotencyKey";

/// The notification that a server's tools have changed.
const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// No example of a key: a model would send that one.
const ABOUT_KEY: &str = "Makes retries safe. For each new action make a new random UUID and send it \
    with the first try. If the result is lost, timed out or unclear, call again with the same key \
    and exactly the same arguments: the action does not happen twice, and you get its first result. \
    Never use a key again for anything else, nor to do the same thing once more on purpose: make a \
    new key for that.";
const ABOUT_TOOL: &str = "Send an idempotencyKey (a new random UUID for each new action), and the \
    same key with the same arguments whenever you retry: a retry then returns the first result \
    instead of acting twice.";

/// The JSON Schema of the argument `idempotencyKey`, with what a model has to know of it: for tools
/// that take a key themselves.
pub fn key_schema() -> Value {
    json!({
        "type": "string",
        "minLength": 1,
        "maxLength": KEY_BYTES_MAX,
        "description": ABOUT_KEY,
    })
}

/// The tools seen so far, and whether each is covered.
#[derive(Debug, Default)]
pub struct Catalog {
    tools: BTreeMap<String, Known>,
}

#[derive(Debug)]
struct Known {
    is_covered: bool,
    /// The headers in which arguments are repeated over HTTP, and where each argument is.
    headers: Vec<(String, String)>,
}

impl Catalog {
    /// Whether a tool is covered; nothing if it is not known.
    pub fn covers(&self, tool: &str) -> Option<bool> {
        self.tools.get(tool).map(|known| known.is_covered)
    }

    /// The headers in which a tool's arguments are repeated, each with the pointer to its argument.
    pub(crate) fn headers_of(&self, tool: &str) -> Vec<(String, String)> {
        let known = self.tools.get(tool);
        known.map(|known| known.headers.clone()).unwrap_or_default()
    }

    /// Hears what the server says: it may be that its tools have changed.
    pub fn hear(&mut self, message: &str) {
        // Most of what a server says is something else, and not worth reading.
        if !message.contains("list_changed") {
            return;
        }
        if let Message::Notification { method, .. } = Message::read(message)
            && method == LIST_CHANGED
        {
            self.forget();
        }
    }

    /// Knows nothing any more: the server's tools have changed.
    pub fn forget(&mut self) {
        self.tools.clear();
    }

    /// Reads a result of `tools/list`; gives it as the client gets it. What is no such result stays
    /// as it is.
    pub fn learn(&mut self, result: Box<RawValue>, chosen: &Tools) -> Box<RawValue> {
        let list = Members::of(&result);
        let tools = list.as_ref().and_then(|list| list.get("tools"));
        let (Some(mut list), Some(mut tools)) =
            (list.clone(), tools.and_then(read::<Vec<Members>>))
        else {
            return result;
        };
        for tool in &mut tools {
            let Some(name) = tool.text("name") else {
                continue;
            };
            let headers = headers_in(tool);
            let is_covered = chosen.include(&name) && !is_read_only(tool) && offer_key(tool);
            let known = Known {
                is_covered,
                headers,
            };
            self.tools.insert(name, known);
        }
        list.set("tools", raw(&tools));
        list.to_raw()
    }
}

/// What a tool's schema says of arguments that are repeated in headers (2026-07-28): by `properties`
/// alone, so that there is one place for each.
fn headers_in(tool: &Members) -> Vec<(String, String)> {
    let schema = tool.get("inputSchema").and_then(read::<Value>);
    let mut found = Vec::new();
    collect_headers(&schema.unwrap_or_default(), "", &mut found);
    found
}

fn collect_headers(schema: &Value, at: &str, found: &mut Vec<(String, String)>) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (name, property) in properties {
        let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        if let Some(header) = property["x-mcp-header"].as_str() {
            found.push((header.to_owned(), at.clone()));
        }
        collect_headers(property, &at, found);
    }
}

fn is_read_only(tool: &Members) -> bool {
    let annotations = tool.object("annotations");
    annotations.is_some_and(|annotations| annotations.is_true("readOnlyHint"))
}

/// Adds the key to what a tool takes. A tool that has such an argument itself keeps it for itself.
fn offer_key(tool: &mut Members) -> bool {
    let mut schema = tool.object("inputSchema").unwrap_or_default();
    let mut properties = schema.object("properties").unwrap_or_default();
    if properties.get(KEY).is_some() {
        return false;
    }
    properties.set(KEY, raw(&key_schema()));
    if schema.get("type").is_none() {
        schema.set("type", raw("object"));
    }
    schema.set("properties", properties.to_raw());
    tool.set("inputSchema", schema.to_raw());
    let description = match tool.text("description") {
        Some(own) if !own.is_empty() => format!("{own}\n\n{ABOUT_TOOL}"),
        _ => ABOUT_TOOL.to_owned(),
    };
    tool.set("description", raw(&description));
    true
}

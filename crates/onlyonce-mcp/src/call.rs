//! One `tools/call`: which tool, under which key, meaning what; and what of it the server gets.

use onlyonce_core::fingerprint::{Part, canonical_json, derive_key};
use onlyonce_core::{Execution, Fingerprint, FingerprintBuilder};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::catalog::KEY;
use crate::decide::TOOLS_LIST;
use crate::members::{Members, raw, read};
use crate::message::{Id, request};

/// The member of `_meta` by which a client that serves several conversations tells them apart.
const CONVERSATION: &str = "onlyonce/conversation";
/// The same by the names that clients use on their own; the first that is there counts.
const CLIENTS_CONVERSATIONS: [&str; 2] = ["openai/session", "vscode.conversationId"];
/// The member of `_meta` by which a client names one tool call of its model: a retry has the same one.
pub(crate) const CALL_ID: &str = "onlyonce/callId";
/// Members of a call that differ from try to try, or are counted on their own: a progress token, the
/// user's answers to a question of the tool. Every other member is part of what the call means: as a
/// task (`task`), for example, it has another kind of answer.
const NOT_COUNTED: [&str; 5] = [
    "name",
    "arguments",
    "_meta",
    "requestState",
    "inputResponses",
];
/// The members of `_meta` that tell the server which operation a call is, and which attempt at it. A
/// client cannot say them.
const OPERATION: &str = "onlyonce/operation";
const ATTEMPT: &str = "onlyonce/attempt";
/// There since version 2026-07-28 of the protocol; from then on a result says that it is complete.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// One call of a tool, read.
#[derive(Clone, Debug)]
pub struct ToolCall {
    pub(crate) tool: String,
    pub(crate) key: SentKey,
    /// Which conversation it belongs to, if it says so.
    pub(crate) conversation: Option<String>,
    /// What the client calls this call of its model, in our own member of `_meta`.
    call_id: Option<String>,
    /// The message without what is ours.
    forwarded: Members,
    /// What the client says with every request, for a request of ours.
    pub(crate) meta: Option<Members>,
    arguments: Option<Box<RawValue>>,
    /// What else it asks for.
    others: Members,
}

/// What was sent as the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SentKey {
    Nothing,
    /// What a model writes for "none". The server must not see it either.
    Null,
    Text(String),
    /// A number or worse.
    NotText,
}

/// A call of which we cannot read every name, such as one with half a surrogate pair in it, or one of
/// another form than the protocol's, such as params in an array. A server may be less strict.
pub(crate) struct Ambiguous;

impl ToolCall {
    /// Nothing if this is no call that any server would understand.
    pub(crate) fn read(line: &str, params: &RawValue) -> Result<Option<Self>, Ambiguous> {
        let mut message = Members::parse(line).ok_or(Ambiguous)?.without_repeated();
        let Some(mut params) = object(params)?.map(Members::without_repeated) else {
            return Ok(None);
        };
        let tool = match params.get("name").map(read) {
            Some(Some(tool)) => tool,
            Some(None) | None => return Err(Ambiguous),
        };
        let mut arguments = params.get("arguments").map(object).transpose()?.flatten();
        let mut meta = params.get("_meta").map(object).transpose()?.flatten();
        let in_arguments = sent_key(arguments.as_mut());
        let in_meta = sent_key(meta.as_mut());
        let conversation = meta.as_mut().and_then(conversation);
        let call_id = meta.as_mut().and_then(|meta| meta.take(CALL_ID));
        if let Some(meta) = &mut meta {
            meta.take(OPERATION);
            meta.take(ATTEMPT);
        }

        if let Some(arguments) = &arguments {
            params.set("arguments", arguments.to_raw());
        }
        match &meta {
            Some(meta) if meta.is_empty() => drop(params.take("_meta")),
            Some(meta) => params.set("_meta", meta.to_raw()),
            None => {}
        }
        message.set("params", params.to_raw());
        Ok(Some(Self {
            tool,
            key: match (in_arguments, in_meta) {
                (SentKey::Null, SentKey::Nothing) => SentKey::Null,
                (SentKey::Nothing | SentKey::Null, in_meta) => in_meta,
                (in_arguments @ (SentKey::Text(_) | SentKey::NotText), _) => in_arguments,
            },
            conversation,
            call_id: call_id.and_then(|id| text_or_number(&id)),
            forwarded: message,
            others: params.except(&NOT_COUNTED),
            arguments: params.take("arguments"),
            meta,
        }))
    }

    /// The tool's name.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The message as the server gets it: without what is ours.
    pub fn message(&self) -> String {
        self.forwarded.to_raw().get().to_owned()
    }

    /// The same under another id.
    pub(crate) fn message_as(&self, id: &Id) -> String {
        let mut message = self.forwarded.clone();
        message.set("id", id.to_raw());
        message.to_raw().get().to_owned()
    }

    /// The same call for a server that will be asked about it: it learns in `_meta` which operation this is,
    /// by the id that it is asked for later.
    #[must_use]
    pub fn identified(&self, execution: &Execution) -> Self {
        let mut meta = self.meta.clone().unwrap_or_default();
        meta.set(OPERATION, raw(&execution.operation().to_string()));
        meta.set(ATTEMPT, raw(&execution.attempt()));
        let mut call = self.clone();
        if let Some(mut params) = call.forwarded.object("params") {
            params.set("_meta", meta.to_raw());
            call.forwarded.set("params", params.to_raw());
        }
        call
    }

    /// Whether its arguments have this text somewhere: then the server gets it too.
    pub(crate) fn says(&self, text: &str) -> bool {
        let arguments = serde_json::from_slice(self.arguments());
        arguments.is_ok_and(|arguments| has_text(&arguments, text))
    }

    /// What the client calls this call of its model, by the first of `names` that is there, or by our
    /// own.
    pub(crate) fn call_id(&self, names: &[String]) -> Option<String> {
        let meta = self.meta.as_ref();
        let of_client = || {
            let mut found = names.iter().filter_map(|name| meta?.get(name));
            found.find_map(text_or_number)
        };
        self.call_id.clone().or_else(of_client)
    }

    /// A key from the client's own name of this call: another try has the same one, whatever its
    /// arguments have become.
    pub(crate) fn key_of_id(&self, id: &str) -> Option<String> {
        let run = self.conversation.as_deref().unwrap_or_default();
        derive_key(run, raw(&[id]).get().as_bytes(), false)
    }

    /// A request for the list of tools, as the caller of this tool would send it.
    pub fn list_request(&self, id: &Id, cursor: Option<&str>) -> String {
        let mut params = Members::default();
        if let Some(mut meta) = self.meta.clone() {
            meta.take("progressToken");
            params.set("_meta", meta.to_raw());
        }
        if let Some(cursor) = cursor {
            params.set("cursor", raw(cursor));
        }
        request(id, TOOLS_LIST, &params)
    }

    /// What it means as one JSON object, without anything that differs from try to try.
    pub fn meaning(&self) -> String {
        let mut meaning = self.others.clone();
        meaning.set("name", raw(&self.tool));
        let arguments = String::from_utf8_lossy(self.arguments()).into_owned();
        let arguments = RawValue::from_string(arguments);
        meaning.set("arguments", arguments.expect("it was read as JSON"));
        meaning.to_raw().get().to_owned()
    }

    /// The value at a pointer into its arguments.
    pub(crate) fn argument(&self, pointer: &str) -> Option<Value> {
        let arguments: Value = serde_json::from_slice(self.arguments()).ok()?;
        arguments.pointer(pointer).cloned()
    }

    /// What it means, whatever the order and spelling: the tool, its arguments, and what else is
    /// asked for.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let arguments = self.arguments();
        let arguments = canonical_json(arguments).unwrap_or_else(|| arguments.to_vec());
        let mut fingerprint = FingerprintBuilder::new();
        fingerprint.part(Part::Operation, self.tool.as_bytes());
        fingerprint.part(Part::Input, &arguments);
        if !self.others.is_empty() {
            let others = self.others.to_raw();
            let others = others.get().as_bytes();
            let others = canonical_json(others).unwrap_or_else(|| others.to_vec());
            fingerprint.part(Part::Input, &others);
        }
        fingerprint.finish()
    }

    /// A key from what it means. Nothing if its arguments have more than one reading.
    pub(crate) fn derived_key(&self, conversation: &str) -> Option<String> {
        let name = raw(&self.tool);
        let mut content = [b"[", name.get().as_bytes(), b",", self.arguments()].concat();
        if !self.others.is_empty() {
            content.push(b',');
            content.extend_from_slice(self.others.to_raw().get().as_bytes());
        }
        content.push(b']');
        derive_key(conversation, &content, false)
    }

    /// Whether its version of the protocol wants results to say that they are complete.
    pub fn says_complete(&self) -> bool {
        let meta = self.meta.as_ref();
        meta.is_some_and(|meta| meta.get(VERSION).is_some())
    }

    fn arguments(&self) -> &[u8] {
        let arguments = self.arguments.as_ref();
        arguments.map_or(b"{}", |arguments| arguments.get().as_bytes())
    }
}

fn has_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(found) => found == text,
        Value::Array(items) => items.iter().any(|item| has_text(item, text)),
        Value::Object(members) => members.values().any(|member| has_text(member, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Nothing if there is nothing: `null`. What is neither that nor an object may hold a key where we do
/// not look for one.
fn object(raw: &RawValue) -> Result<Option<Members>, Ambiguous> {
    if raw.get() == "null" {
        return Ok(None);
    }
    Members::of(raw).map(Some).ok_or(Ambiguous)
}

fn sent_key(members: Option<&mut Members>) -> SentKey {
    match members.and_then(|members| members.take(KEY)) {
        None => SentKey::Nothing,
        Some(null) if null.get() == "null" => SentKey::Null,
        Some(value) => read(&value).map_or(SentKey::NotText, SentKey::Text),
    }
}

/// Takes the name of the conversation out, or reads the client's own.
fn conversation(meta: &mut Members) -> Option<String> {
    let ours = meta.take(CONVERSATION).and_then(|name| read(&name));
    let of_client = || CLIENTS_CONVERSATIONS.iter().find_map(|it| meta.text(it));
    ours.or_else(of_client)
}

/// A number by its digits: one with more of them than we can hold would be another one.
fn text_or_number(value: &RawValue) -> Option<String> {
    match read(value)? {
        Value::String(text) if !text.is_empty() => Some(text),
        Value::Number(_) => Some(value.get().to_owned()),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            None
        }
    }
}

//! Finding out whether a call happened, by another tool of the same server. Only a clear yes and a clear
//! no count; everything else cannot tell, and nothing runs.

use http::StatusCode;
use onlyonce_core::{Finding, Response};
use serde_json::{Value, json};
use thiserror::Error;

use crate::answer::{Said, add_text};
use crate::call::ToolCall;
use crate::decide::TOOLS_CALL;
use crate::members::{Members, raw, read};
use crate::message::{Id, Reply, request};

use self::template::{fill, places, visit};

mod template;
#[cfg(test)]
mod tests;

/// What may stand in the arguments besides pointers: the call's key, and the operation's id.
const KEY: &str = "key";
const OPERATION: &str = "operation";
/// What FastMCP and others put a result into that is no object.
const WRAPPED: &str = "result";
const FOUND: &str = "(onlyonce: an earlier try of this call took effect, and its answer was lost. This \
    is what the server says of it now; the tool did not run again.)";

/// How to find out whether calls of one tool happened: which tool to ask, with which arguments, and
/// what its answers mean.
///
/// ```
/// use onlyonce_mcp::Verify;
///
/// let verify: Verify = r#"create_payment=get_payment:{"reference":"{operation}"};absent=no such payment"#
///     .parse()
///     .unwrap();
/// assert_eq!(verify.tool(), "create_payment");
/// ```
#[derive(Clone, Debug)]
pub struct Verify {
    tool: String,
    asks: String,
    arguments: Value,
    /// Where in the answer it says so; the whole of it if nothing is said.
    at: String,
    /// What an error says that means "there is no such thing".
    absent: Option<String>,
}

/// Why this is no way to find out.
#[derive(Debug, Error)]
#[error("{why}; write it like create_payment=get_payment:{{\"reference\":\"{{operation}}\"}}")]
pub struct VerifyError {
    why: String,
}

impl std::str::FromStr for Verify {
    type Err = VerifyError;

    /// `TOOL=VERIFYING_TOOL:ARGUMENTS`, then `;at=POINTER` and `;absent=TEXT` as needed.
    fn from_str(text: &str) -> Result<Self, VerifyError> {
        let bad = |why: &str| VerifyError { why: why.into() };
        let (tool, rest) = text.split_once('=').ok_or_else(|| bad("there is no ="))?;
        let (asks, rest) = rest.split_once(':').ok_or_else(|| bad("there is no :"))?;
        if tool.is_empty() || asks.is_empty() {
            return Err(bad("a tool has no name"));
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let arguments = match values.next() {
            Some(Ok(arguments @ Value::Object(_))) => arguments,
            Some(_) | None => return Err(bad("the arguments are no JSON object")),
        };
        let options = &rest[values.byte_offset()..];
        let mut verify = Self {
            tool: tool.into(),
            asks: asks.into(),
            arguments,
            at: String::new(),
            absent: None,
        };
        for option in options
            .split(';')
            .filter(|option| !option.trim().is_empty())
        {
            match option.trim().split_once('=') {
                Some(("at", pointer)) if pointer.starts_with('/') => verify.at = pointer.into(),
                Some(("absent", said)) if !said.is_empty() => verify.absent = Some(said.into()),
                Some(_) | None => return Err(bad("only ;at=/POINTER and ;absent=TEXT may follow")),
            }
        }
        verify.check_places()?;
        Ok(verify)
    }
}

/// What the places in the arguments stand for.
pub struct About<'a> {
    /// The call that may have happened.
    pub call: &'a ToolCall,
    /// Its key.
    pub key: &'a str,
    /// The stable id of the operation.
    pub operation: &'a str,
}

impl Verify {
    /// The tool whose calls it is about.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The tool that is asked.
    pub fn asks(&self) -> &str {
        &self.asks
    }

    /// Whether a call has everything that the question would need. A key that the server does not get in
    /// the call's own arguments is nothing that it could find later.
    pub fn can_ask(&self, call: &ToolCall, key: &str) -> bool {
        let operation = "";
        let about = About {
            call,
            key,
            operation,
        };
        (!self.names(KEY) || call.says(key)) && self.filled(&about).is_some()
    }

    /// Whether it can be asked by what a record keeps: the operation's id alone.
    pub fn is_by_operation(&self) -> bool {
        let mut is_alone = true;
        self.each_place(|place| is_alone &= place == OPERATION);
        is_alone
    }

    /// The call of the verifying tool about an operation of which nothing is known but its id; nothing if
    /// that is not enough.
    pub(crate) fn question_of(&self, operation: &str, id: &Id) -> Option<String> {
        let arguments = fill(&self.arguments, &|place| {
            (place == OPERATION).then(|| json!(operation))
        })?;
        Some(self.request(arguments, None, id))
    }

    /// The call of the verifying tool; nothing if the call lacks an argument that it needs.
    pub fn question(&self, about: &About<'_>, id: &Id) -> Option<String> {
        let meta = about.call.meta.clone();
        Some(self.request(self.filled(about)?, meta, id))
    }

    fn filled(&self, about: &About<'_>) -> Option<Value> {
        fill(&self.arguments, &|place| match place {
            KEY => Some(json!(about.key)),
            OPERATION => Some(json!(about.operation)),
            pointer => about.call.argument(pointer).filter(|it| !it.is_null()),
        })
    }

    fn request(&self, arguments: Value, meta: Option<Members>, id: &Id) -> String {
        let mut params = Members::default();
        params.set("name", raw(&self.asks));
        params.set("arguments", raw(&arguments));
        if let Some(mut meta) = meta {
            meta.take("progressToken");
            params.set("_meta", meta.to_raw());
        }
        request(id, TOOLS_CALL, &params)
    }

    /// What an answer of the verifying tool means: its result, or nothing if there is none.
    pub fn read(&self, reply: Option<&Reply>) -> Finding {
        let Some(Reply::Result(result)) = reply else {
            return Finding::CannotTell;
        };
        let Some(members) = Members::of(result) else {
            return Finding::CannotTell;
        };
        match Said::by_result(&members) {
            Said::Result => {}
            Said::Error => return self.read_error(&members),
            Said::NotYet => return Finding::CannotTell,
        }
        match self.says(&subject(&members)) {
            Some(true) => Finding::happened(happened(members)),
            Some(false) => Finding::DidNot,
            None => Finding::CannotTell,
        }
    }

    /// An error says nothing, unless it is the one that was named.
    fn read_error(&self, result: &Members) -> Finding {
        let said = texts(result).join("\n");
        match &self.absent {
            Some(absent) if said.contains(absent.as_str()) => Finding::DidNot,
            Some(_) | None => Finding::CannotTell,
        }
    }

    /// Whether it happened, if the answer is clear.
    fn says(&self, subject: &Value) -> Option<bool> {
        let is_pointed = !self.at.is_empty();
        let Some(found) = subject.pointer(&self.at) else {
            return is_in_empty_list(subject, &self.at);
        };
        match found {
            Value::Null => Some(false),
            Value::Array(items) => Some(!items.is_empty()),
            Value::Object(members) if says_no(members) => None,
            Value::Object(_) => Some(true),
            Value::Bool(yes) if is_pointed => Some(*yes),
            Value::Number(_) if is_pointed => Some(true),
            Value::String(text) if is_pointed && !text.is_empty() => Some(true),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    /// An answer to a question that names no call in particular would be taken for every call's.
    fn check_places(&self) -> Result<(), VerifyError> {
        let (mut unknown, mut names_one) = (None, false);
        self.each_place(|place| {
            names_one = true;
            if !matches!(place, KEY | OPERATION) && !place.starts_with('/') {
                unknown = Some(place.to_owned());
            }
        });
        let why = match (unknown, names_one) {
            (Some(place), _) => {
                format!("{{{place}}} is none of {{key}}, {{operation}} and {{/POINTER}}")
            }
            (None, false) => {
                "the arguments ask the same about every call: name it by {operation}, \
                 {key} or {/POINTER}"
                    .to_owned()
            }
            (None, true) => return Ok(()),
        };
        Err(VerifyError { why })
    }

    fn names(&self, wanted: &str) -> bool {
        let mut is_there = false;
        self.each_place(|place| is_there |= place == wanted);
        is_there
    }

    fn each_place(&self, mut see: impl FnMut(&str)) {
        visit(&self.arguments, &mut |text| {
            places(text).into_iter().for_each(&mut see);
        });
    }
}

/// Whether an object speaks of something that is not there, in one of the ways in which tools say so. Which
/// of them is a clear no, only the one who knows the tool can say, by `at` or `absent`.
fn says_no(members: &serde_json::Map<String, Value>) -> bool {
    let is_nothing = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    };
    let is_told = |name: &&str| members.get(*name).is_some_and(|it| !is_nothing(it));
    let is_denied = |name: &&str| members.get(*name) == Some(&Value::Bool(false));
    members.values().all(is_nothing)
        || ["error", "errors"].iter().any(is_told)
        || ["found", "exists", "ok", "success"].iter().any(is_denied)
}

/// A clear no for a place that is missing because a list on the way to it is empty.
fn is_in_empty_list(subject: &Value, mut at: &str) -> Option<bool> {
    while let Some((parent, _)) = at.rsplit_once('/') {
        if let Some(found) = subject.pointer(parent) {
            let items = found.as_array()?;
            return items.is_empty().then_some(false);
        }
        at = parent;
    }
    None
}

/// What an answer speaks of: its structured part, or its text as JSON.
fn subject(result: &Members) -> Value {
    let structured = result.get("structuredContent").and_then(read::<Value>);
    let subject = structured.filter(|it| !it.is_null()).unwrap_or_else(|| {
        let texts = texts(result);
        match &texts[..] {
            // A tool that finds nothing often has nothing to say: that is not a clear no.
            [] => json!({}),
            [text] => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
            several => json!(several.join("\n")),
        }
    });
    match subject.get(WRAPPED) {
        Some(inside) if subject.as_object().is_some_and(|it| it.len() == 1) => inside.clone(),
        Some(_) | None => subject,
    }
}

fn texts(result: &Members) -> Vec<String> {
    let content: Vec<Value> = result.get("content").and_then(read).unwrap_or_default();
    let texts = content.iter().filter_map(|block| block["text"].as_str());
    texts.map(str::to_owned).collect()
}

/// The answer that is stored: what the verifying tool said, and a note.
fn happened(mut result: Members) -> Response {
    let mut meta = result.object("_meta").unwrap_or_default();
    meta.set("onlyonce/reconciled", raw(&true));
    result.set("_meta", meta.to_raw());
    add_text(&mut result, FOUND);
    Response::new(StatusCode::OK, Reply::Result(result.to_raw()).stored())
}

//! From the engine's answer to the client's: the tool's own words, or ours to the model. A refusal
//! is a tool error and not a protocol error, for a model reads only the first; and it says what to do.

use std::time::Duration;

use http::StatusCode;
use onlyonce_core::policy::Limits;
use onlyonce_core::{Execution, OnLapse, Outcome, Reason, Refusal, Response};
use serde_json::json;
use serde_json::value::RawValue;

use crate::catalog::KEY;
use crate::keys::KeyOrigin;
use crate::members::{Members, raw, read};
use crate::message::{Id, Reply};
use crate::rules::Errors;

#[cfg(test)]
mod tests;

/// JSON-RPC's code for a message that is not JSON.
const PARSE_ERROR: i32 = -32700;
/// JSON-RPC's code for "something went wrong in between".
const UNDELIVERED: i32 = -32603;

const REPEATED_ERROR: &str = "(onlyonce: this is the error of the first call with this \
    idempotencyKey; the tool did not run again. If nothing was done and it should be tried again, \
    call it with a new idempotencyKey.)";
const REPEATED_CALL: &str = "(onlyonce: the same call was made a short while ago; this is its result, \
    and the tool did not run again. If it is really meant to run once more, call it with a new \
    idempotencyKey.)";

/// What the server's reply means for the record.
pub(crate) fn outcome(
    reply: &Reply,
    errors: Errors,
    limits: &Limits,
    execution: &Execution,
) -> Outcome {
    let status = outcome_of(reply, errors, execution);
    let body = reply.stored();
    if body.len() > limits.response_bytes_max {
        return Response::too_large().into();
    }
    Response::new(status, body).into()
}

/// The status that a reply is stored under; tells the execution where it is not to be stored.
pub fn outcome_of(reply: &Reply, errors: Errors, execution: &Execution) -> StatusCode {
    let said = Said::by(reply);
    match said {
        Said::Result => {}
        Said::Error if errors == Errors::Replay => {}
        Said::Error | Said::NotYet => execution.do_not_store(),
    }
    match said {
        Said::Result | Said::NotYet => StatusCode::OK,
        Said::Error => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Whether a reply is an error, of the tool or of the protocol.
pub fn is_failure(reply: &Reply) -> bool {
    matches!(Said::by(reply), Said::Error)
}

pub(crate) enum Said {
    Result,
    /// The tool or the server failed; what it did until then, it does not say. No code proves that
    /// nothing ran: SDKs report "invalid params" also when a tool's result is not what its schema
    /// promised, after the tool ran.
    Error,
    /// The server asks the user something first, and is called again with the answer.
    NotYet,
}

impl Said {
    fn by(reply: &Reply) -> Self {
        match reply {
            Reply::Error(_) => Self::Error,
            Reply::Result(result) => {
                Members::of(result).map_or(Self::Result, |it| Self::by_result(&it))
            }
        }
    }

    pub(crate) fn by_result(result: &Members) -> Self {
        if result.is_true("isError") {
            Self::Error
        } else if result.text("resultType").as_deref() == Some("input_required") {
            Self::NotYet
        } else {
            Self::Result
        }
    }
}

/// A stored answer as a retry gets it: the same, marked in its `_meta`. Two kinds get a note for the
/// model, which would otherwise draw a wrong conclusion: an error, and what nobody asked to repeat.
pub fn repeated(response: &Response, origin: KeyOrigin) -> Reply {
    let reply = Reply::restored(&response.body).unwrap_or_else(|| by_hand(response));
    let note = match (origin, response.is_failure()) {
        (KeyOrigin::Derived, _) => Some(REPEATED_CALL),
        (KeyOrigin::Sent | KeyOrigin::CallId, true) => Some(REPEATED_ERROR),
        (KeyOrigin::Sent | KeyOrigin::CallId, false) => None,
    };
    match reply {
        Reply::Error(error) => Reply::Error(match (Members::of(&error), note) {
            (Some(mut error), Some(note)) => {
                let message = error.text("message").unwrap_or_default();
                error.set("message", raw(&format!("{message} {note}")));
                error.to_raw()
            }
            (Some(_) | None, _) => error,
        }),
        Reply::Result(result) => Reply::Result(match Members::of(&result) {
            Some(mut members) => {
                let mut meta = members.object("_meta").unwrap_or_default();
                meta.set("onlyonce/replayed", raw(&true));
                members.set("_meta", meta.to_raw());
                if let Some(note) = note {
                    add_text(&mut members, note);
                }
                members.to_raw()
            }
            None => result,
        }),
    }
}

pub(crate) fn add_text(result: &mut Members, text: &str) {
    let content = result.get("content");
    let mut content: Vec<Box<RawValue>> = content.and_then(read).unwrap_or_default();
    content.push(raw(&json!({"type": "text", "text": text})));
    result.set("content", raw(&content));
}

/// An answer that an operator wrote: its text is what the tool says.
fn by_hand(response: &Response) -> Reply {
    let text = String::from_utf8_lossy(&response.body);
    Reply::Result(tool_result(&text, response.is_failure(), &json!({}), false))
}

/// Who gets a refusal, and under which rules.
pub struct Audience {
    /// Where the key comes from.
    pub origin: KeyOrigin,
    /// Whether the protocol's version wants results to say that they are complete.
    pub says_complete: bool,
    /// What becomes of a call whose outcome is unknown.
    pub on_lapse: OnLapse,
}

/// A refusal, as a tool error that tells a model what to do.
pub fn refused(refusal: &Refusal, audience: &Audience) -> Reply {
    let advice = advice(refusal.reason, audience);
    let text = if refusal.reason == Reason::BadKey {
        // What is wrong with this key is in the detail.
        format!("onlyonce: {refusal}. {advice}")
    } else {
        format!("onlyonce: {advice}")
    };
    let mut mark = json!({"reason": refusal.reason.name()});
    if let Some(after) = refusal.retry_after {
        mark["retryAfterMs"] = json!(millis(after));
    }
    let meta = json!({"onlyonce/refused": mark});
    let says_complete = audience.says_complete;
    Reply::Result(tool_result(&text, true, &meta, says_complete))
}

/// The answer to a call of which nobody could find out later whether it happened.
pub fn not_verifiable(verifying: &str, says_complete: bool) -> Reply {
    let text = format!(
        "onlyonce: this call was not run. If its answer were lost, {verifying} would be asked whether \
         it took effect, and an argument that is needed for that is missing, or does not have the call's key in it where it \
         should. Send it."
    );
    let meta = json!({"onlyonce/refused": {"reason": "not-verifiable"}});
    Reply::Result(tool_result(&text, true, &meta, says_complete))
}

/// The answer to a request that did not reach the server, or whose answer was lost.
pub(crate) fn undelivered(id: &Id, why: &str) -> String {
    let error = raw(&json!({"code": UNDELIVERED, "message": format!("onlyonce: {why}")}));
    Reply::Error(error).message(id)
}

/// The refusal of a call beyond the most that a session may have.
pub(crate) fn busy(calls_max: usize, audience: &Audience) -> Reply {
    let text = format!(
        "onlyonce: {calls_max} calls are running or waiting, and this one was not started. {LATER}"
    );
    let meta = json!({"onlyonce/refused": {"reason": "too-many-calls"}});
    Reply::Result(tool_result(&text, true, &meta, audience.says_complete))
}

/// The answer to a line that may be a call with a key, and cannot be read.
pub(crate) fn unreadable(id: &Id) -> String {
    let message = format!(
        "onlyonce: a message that names {KEY} or a tool call cannot be read, and was not passed on. \
         Send each message as one line of valid JSON (NaN, Infinity and half surrogate pairs are not), \
         and params, arguments and _meta of a tool call as objects."
    );
    let error = raw(&json!({"code": PARSE_ERROR, "message": message}));
    Reply::Error(error).message(id)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn tool_result(
    text: &str,
    is_error: bool,
    meta: &serde_json::Value,
    says_complete: bool,
) -> Box<RawValue> {
    let mut result = Members::default();
    if says_complete {
        result.set("resultType", raw("complete"));
    }
    result.set("content", raw(&json!([{"type": "text", "text": text}])));
    result.set("isError", raw(&is_error));
    result.set("_meta", raw(meta));
    result.to_raw()
}

/// What is true of every call that this try did not start.
const LATER: &str = "Whether an earlier try with the same idempotencyKey ran is not known here. Call \
    again in a moment with the same idempotencyKey and the same arguments.";
const FIND_OUT: &str = "It was not run again. First find out whether it took effect, with a tool that \
    only reads. If it did, go on. If it did not, call again with a new idempotencyKey. If you cannot \
    find out, ask the user.";

/// What happened and what to do about it, for a model. "Nothing was run" is said only where no try
/// with this key can have run.
fn advice(reason: Reason, audience: &Audience) -> String {
    match reason {
        Reason::BadKey | Reason::MissingKey | Reason::BadTtl | Reason::Unscoped => {
            "Nothing was run. Send a new random UUID as idempotencyKey, or leave it out.".to_owned()
        }
        Reason::KeyOutOfTime => {
            format!("The idempotencyKey is too old, or from the future. {FIND_OUT}")
        }
        Reason::Mismatch if audience.origin == KeyOrigin::CallId => {
            "This call was not run: the same call was made before, with other arguments. First find \
             out what that one did, with a tool that only reads. If it did what is wanted, go on. If \
             this is meant as well, call it with a new random UUID as idempotencyKey."
                .to_owned()
        }
        Reason::Mismatch | Reason::OtherCredential => {
            "This call was not run: its idempotencyKey was already used for another call. To retry \
             that call, send exactly its arguments. For a new action, or changed arguments, make a \
             new random UUID."
                .to_owned()
        }
        Reason::InProgress | Reason::TooManyWaiters => {
            "This call is still running and was not started again. Wait a moment, then call again \
             with the same idempotencyKey and the same arguments to get its result."
                .to_owned()
        }
        Reason::OutcomeUnknown | Reason::TimedOut | Reason::Panicked => unknown(audience),
        Reason::RequestTooLarge
        | Reason::RequestUnreadable
        | Reason::RequestEncoded
        | Reason::Unverified
        | Reason::NotRun
        | Reason::ShuttingDown
        | Reason::StoreDown
        | Reason::TooManyRunning
        | Reason::TooMuchBuffered
        | Reason::OverQuota
        | Reason::TooManyBadRequests => format!("This try did not run the tool. {LATER}"),
        Reason::NotStored => {
            "The tool ran, but its result is not stored yet. Call again in a moment with the same \
             idempotencyKey and the same arguments to learn its outcome. Do not make a new key."
                .to_owned()
        }
        Reason::ResponseTooLarge => {
            "The tool ran, but its result was too large to keep for a retry. It was not run again. \
             Find out what it did with a tool that only reads."
                .to_owned()
        }
    }
}

fn unknown(audience: &Audience) -> String {
    let lost = match audience.origin {
        KeyOrigin::Derived => {
            "The same call was made before, and it is not known whether it took effect: its answer \
             was lost."
        }
        KeyOrigin::Sent | KeyOrigin::CallId => {
            "It is not known whether this call took effect: its answer was lost."
        }
    };
    let same_key = match audience.on_lapse {
        OnLapse::Hold => "",
        OnLapse::Rerun => " With the same idempotencyKey and arguments it may run again.",
    };
    format!("{lost} {FIND_OUT}{same_key}")
}

//! From the engine's answer to the client's: the tool's own words, or ours to the model. A refusal
//! is a tool error and not a protocol error, for a model reads only the first; and it says what to do.

use std::time::Duration;

use http::StatusCode;
use onlyonce_core::policy::Limits;
use onlyonce_core::{Execution, Outcome, Reason, Refusal, Response};
use serde_json::json;
use serde_json::value::RawValue;

use crate::members::{Members, raw, read};
use crate::message::Reply;
use crate::rules::Errors;

/// Codes of JSON-RPC for requests that were turned away: nothing ran.
const TURNED_AWAY: [i64; 4] = [-32700, -32600, -32601, -32602];

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
    let said = Said::by(reply);
    match said {
        Said::Result => {}
        Said::Error if errors == Errors::Replay => {}
        Said::Error | Said::NotYet | Said::TurnedAway => execution.do_not_store(),
    }
    let status = match said {
        Said::Result | Said::NotYet => StatusCode::OK,
        Said::Error => StatusCode::INTERNAL_SERVER_ERROR,
        Said::TurnedAway => StatusCode::BAD_REQUEST,
    };
    let body = reply.stored();
    if body.len() > limits.response_bytes_max {
        return Response::too_large().into();
    }
    Response::new(status, body).into()
}

enum Said {
    Result,
    /// The tool failed; what it did until then, it does not say.
    Error,
    /// The server asks the user something first, and is called again with the answer.
    NotYet,
    /// The call was not understood, so nothing ran.
    TurnedAway,
}

impl Said {
    fn by(reply: &Reply) -> Self {
        match reply {
            Reply::Error(error) => match code(error) {
                Some(code) if TURNED_AWAY.contains(&code) => Self::TurnedAway,
                Some(_) | None => Self::Error,
            },
            Reply::Result(result) => match Members::of(result) {
                Some(result) if result.is_true("isError") => Self::Error,
                Some(result) if result.text("resultType").as_deref() == Some("input_required") => {
                    Self::NotYet
                }
                Some(_) | None => Self::Result,
            },
        }
    }
}

fn code(error: &RawValue) -> Option<i64> {
    read(Members::of(error)?.get("code")?)
}

/// A stored answer as a retry gets it: the same, marked in its `_meta`. Two kinds get a note for the
/// model, which would otherwise draw a wrong conclusion: an error, and what nobody asked to repeat.
pub(crate) fn repeated(response: &Response, is_derived: bool) -> Reply {
    let reply = Reply::restored(&response.body).unwrap_or_else(|| by_hand(response));
    let note = match (is_derived, response.is_failure()) {
        (true, _) => Some(REPEATED_CALL),
        (false, true) => Some(REPEATED_ERROR),
        (false, false) => None,
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

fn add_text(result: &mut Members, text: &str) {
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

/// A refusal, as a tool error that tells a model what to do.
pub(crate) fn refused(refusal: &Refusal, is_derived: bool, says_complete: bool) -> Reply {
    let advice = advice(refusal.reason, is_derived);
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
    Reply::Result(tool_result(&text, true, &meta, says_complete))
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

/// What happened and what to do about it, for a model.
fn advice(reason: Reason, is_derived: bool) -> &'static str {
    match reason {
        Reason::BadKey | Reason::MissingKey | Reason::BadTtl | Reason::Unscoped => {
            "Nothing was run. Send a new random UUID as idempotencyKey, or leave it out."
        }
        Reason::RequestTooLarge | Reason::RequestUnreadable => {
            "Nothing was run: the call could not be read."
        }
        Reason::Mismatch | Reason::OtherCredential => {
            "Nothing was run: this idempotencyKey was already used for another call. To retry that \
             call, send exactly its arguments. For a new action, or changed arguments, make a new \
             random UUID."
        }
        Reason::InProgress | Reason::TooManyWaiters => {
            "This call is still running and was not started again. Wait a moment, then call again \
             with the same idempotencyKey and the same arguments to get its result."
        }
        Reason::OutcomeUnknown | Reason::TimedOut if is_derived => {
            "The same call was made before, and it is not known whether it took effect: its answer \
             was lost. It was not run again. First find out whether it took effect, with a tool that \
             only reads. If it did, go on. If it did not, call again with a new idempotencyKey. If \
             you cannot find out, ask the user."
        }
        Reason::OutcomeUnknown | Reason::TimedOut => {
            "It is not known whether this call took effect: its answer was lost. It was not run \
             again. First find out whether it took effect, with a tool that only reads. If it did, \
             go on. If it did not, call again with a new idempotencyKey. If you cannot find out, ask \
             the user."
        }
        Reason::NotRun
        | Reason::ShuttingDown
        | Reason::StoreDown
        | Reason::TooManyRunning
        | Reason::OverQuota
        | Reason::TooManyBadRequests => {
            "Nothing was run. Call again in a moment with the same idempotencyKey and the same \
             arguments."
        }
        Reason::NotStored => {
            "The tool ran, but its result is not stored yet. Call again in a moment with the same \
             idempotencyKey and the same arguments to get it. Do not make a new key."
        }
        Reason::Panicked | Reason::ResponseTooLarge => {
            "The tool ran, but its result was too large to keep for a retry. It was not run again. \
             Find out what it did with a tool that only reads."
        }
    }
}

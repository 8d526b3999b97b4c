//! Whether an answer is the refusal that the profile promises: its status, and the shape of its
//! body.

use onlyonce_core::Reason;
use onlyonce_core::policy::{Envelope, Policy, RefusalRow};
use serde_json::Value;

use super::answer::Answer;

/// Holds `answer` against the policy's row for `reason`; says what is wrong with it.
pub(crate) fn check_refusal(
    policy: &Policy,
    answer: &Answer,
    reason: Reason,
) -> Result<(), String> {
    let row = policy.http.refusals.row(reason);
    if answer.status != row.status {
        let (got, expected, name) = (answer.status, row.status, reason.name());
        return Err(format!(
            "answered {got}, the profile says {expected} ({name})"
        ));
    }
    check_envelope(policy.http.envelope, answer, row)
}

/// Holds the body of a refusal against the profile's shape, whatever its status.
pub(crate) fn check_envelope(
    envelope: Envelope,
    answer: &Answer,
    row: &RefusalRow,
) -> Result<(), String> {
    let expected = match envelope {
        Envelope::Problem => "application/problem+json",
        Envelope::OkError
        | Envelope::SuccessError
        | Envelope::CodeError
        | Envelope::TypeError
        | Envelope::FlatError
        | Envelope::ErrorList
        | Envelope::NamedError
        | Envelope::StatusError => "application/json",
    };
    let content_type = answer.content_type();
    if content_type != expected {
        let got = if content_type.is_empty() {
            "nothing"
        } else {
            &content_type
        };
        return Err(format!(
            "the error's content type is {got}, the profile says {expected}"
        ));
    }
    let body: Value = serde_json::from_slice(&answer.body)
        .map_err(|error| format!("the error's body is no JSON: {error}"))?;
    let wrong = match envelope {
        Envelope::Problem => problem(&body, answer.status, row),
        Envelope::OkError => (body["ok"] != false)
            .then_some("`ok` is not false")
            .or_else(|| worded(&body["error"], "type", row))
            .or_else(|| retryable(&body["error"], row, true))
            .or_else(|| retry_after_ms(&body["error"])),
        Envelope::SuccessError => (body["success"] != false)
            .then_some("`success` is not false")
            .or_else(|| worded(&body["error"], "code", row))
            .or_else(|| retryable(&body["error"], row, false)),
        Envelope::CodeError => worded(&body["error"], "code", row),
        Envelope::TypeError => worded(&body["error"], "type", row),
        Envelope::FlatError => members(
            &body,
            [("type", kind(row)), ("code", &*row.code)],
            "message",
        ),
        Envelope::ErrorList => {
            let wanted = [("category", kind(row)), ("code", &*row.code)];
            members(&body["errors"][0], wanted, "detail")
        }
        Envelope::NamedError => members(&body, [("name", kind(row))], "message").or_else(|| {
            let details = &body["details"][0];
            members(details, [("issue", &*row.code)], "description")
        }),
        Envelope::StatusError => {
            let error = &body["error"];
            (error["code"] != answer.status)
                .then_some("`error.code` is not the answer's status")
                .or_else(|| members(error, [("status", &*row.code)], "message"))
        }
    };
    match wrong {
        Some(wrong) => Err(format!("the error's body: {wrong}")),
        None => Ok(()),
    }
}

/// RFC 9457: every member is optional, but one that is there must be right.
fn problem(body: &Value, status: u16, row: &RefusalRow) -> Option<&'static str> {
    let texts = ["type", "title", "detail"].map(|name| &body[name]);
    if !texts.iter().all(|text| text.is_null() || text.is_string()) {
        return Some("`type`, `title` and `detail` must be text");
    }
    if !texts.iter().any(|text| text.is_string()) {
        return Some("none of `type`, `title` and `detail` says what the problem is");
    }
    if !body["status"].is_null() && body["status"] != status {
        return Some("`status` is not the answer's status");
    }
    retryable(body, row, false)
}

/// The error's word in `member`, and a message for people.
fn worded(error: &Value, member: &str, row: &RefusalRow) -> Option<&'static str> {
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    // Where the document names no word, ours is the reason's name, and any other will do.
    let is_ours = row.code == row.reason.name();
    if !is_text(&error[member]) {
        return Some(match member {
            "code" => "`error.code` is missing",
            _ => "`error.type` is missing",
        });
    }
    if !is_ours && error[member] != row.code {
        return Some(match member {
            "code" => "`error.code` is not the profile's",
            _ => "`error.type` is not the profile's",
        });
    }
    (!is_text(&error["message"])).then_some("`error.message` is missing")
}

/// Members of `error` with what they must be, and one with a text for people.
fn members<const N: usize>(
    error: &Value,
    wanted: [(&str, &str); N],
    message: &str,
) -> Option<&'static str> {
    if wanted
        .iter()
        .any(|(name, text)| error[*name].as_str() != Some(*text))
    {
        return Some("what kind of error it is, or its code, is not the profile's");
    }
    let said = error[message].as_str().unwrap_or_default();
    said.is_empty().then_some("it does not say what is wrong")
}

/// The kind of error that a refusal is.
fn kind(row: &RefusalRow) -> &str {
    row.kind.as_deref().unwrap_or(&row.code)
}

fn retryable(error: &Value, row: &RefusalRow, is_needed: bool) -> Option<&'static str> {
    let said = &error["retryable"];
    if said.is_null() {
        return is_needed.then_some("`retryable` is missing");
    }
    (*said != row.retryable).then_some("`retryable` is not the profile's")
}

fn retry_after_ms(error: &Value) -> Option<&'static str> {
    let said = &error["retryAfterMs"];
    (!said.is_null() && !said.as_f64().is_some_and(|millis| millis >= 1.0))
        .then_some("`retryAfterMs` is not a number of at least 1")
}

#[cfg(test)]
mod tests;

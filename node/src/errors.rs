//! Errors as JavaScript sees them: the code is the first word of the message, and the wrapper makes
//! classes of them.

use std::error::Error;
use std::fmt::Display;

use napi::Status;
use onlyonce_bridge::RunFailure;
use onlyonce_core::Refusal;

/// An error with everything behind it, on one line.
pub(crate) fn whole(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// `KIND|detail`.
pub(crate) fn told(kind: &str, detail: impl Display) -> napi::Error {
    napi::Error::new(Status::GenericFailure, format!("{kind}|{detail}"))
}

/// Why a call has no value; nothing if its own function failed, whose error JavaScript has.
pub(crate) fn running(failure: &RunFailure) -> Option<napi::Error> {
    Some(match failure {
        RunFailure::Failed(_) => return None,
        RunFailure::Key(error) => told("key", whole(error)),
        RunFailure::FailedElsewhere(_) => told("failed-elsewhere", failure),
        RunFailure::NotKept(_) => told("not-kept", failure),
        RunFailure::Step(_) => told("setting", failure),
        RunFailure::Json(_) => told("json", whole(failure)),
        RunFailure::Refused(refusal) => refused(refusal),
    })
}

/// `refused|REASON|RETRY-AFTER-SECONDS|RETRYABLE|detail`, where an empty part is not known.
fn refused(refusal: &Refusal) -> napi::Error {
    let after = refusal
        .retry_after
        .map(|after| after.as_secs_f64().to_string());
    let retryable = refusal.retryable.map(|it| it.to_string());
    let reason = refusal.reason.name();
    let parts = [
        reason.to_owned(),
        after.unwrap_or_default(),
        retryable.unwrap_or_default(),
        refusal.detail.to_string(),
    ];
    told("refused", parts.join("|"))
}

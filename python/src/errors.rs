//! The exceptions of the package.

use std::error::Error;

use onlyonce_bridge::{CloseError, OpenFailure, RunFailure};
use onlyonce_core::{Reason, Refusal};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;

create_exception!(
    onlyonce,
    OnlyonceError,
    PyException,
    "Anything that this package raises by itself."
);
create_exception!(
    onlyonce,
    OpenError,
    OnlyonceError,
    "The store cannot be opened, or a setting is wrong."
);
create_exception!(
    onlyonce,
    Forked,
    OnlyonceError,
    "The engine was opened before a fork: open one in each process."
);
create_exception!(
    onlyonce,
    KeyInvalid,
    OnlyonceError,
    "The key is not one that can be used."
);
create_exception!(
    onlyonce,
    FailedElsewhere,
    OnlyonceError,
    "The function failed in a concurrent call with the same key; nothing is stored."
);
create_exception!(
    onlyonce,
    Refused,
    OnlyonceError,
    "The function was not run for this call. `reason`, `retry_after` and `retryable` say more."
);
create_exception!(
    onlyonce,
    Mismatch,
    Refused,
    "The key was used with another input: use a new key."
);
create_exception!(
    onlyonce,
    InProgress,
    Refused,
    "The function still runs in another call: retry later with the same key."
);
create_exception!(
    onlyonce,
    OutcomeUnknown,
    Refused,
    "It is not known whether the function took effect."
);
create_exception!(
    onlyonce,
    Unavailable,
    Refused,
    "It cannot be run or stored now: retry later with the same key."
);

/// An error with everything behind it, on one line.
fn whole(error: &dyn Error) -> String {
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

pub(crate) fn opening(failure: &OpenFailure) -> PyErr {
    OpenError::new_err(whole(failure))
}

pub(crate) fn setting(error: &dyn Error) -> PyErr {
    OpenError::new_err(whole(error))
}

pub(crate) fn unusable(error: CloseError) -> PyErr {
    match error {
        CloseError::Forked { .. } => Forked::new_err(error.to_string()),
        CloseError::Closed => OnlyonceError::new_err(error.to_string()),
    }
}

/// Why a call has no value; `None` if its own function failed, whose exception Python has.
pub(crate) fn running(py: Python<'_>, failure: &RunFailure) -> PyResult<Option<PyErr>> {
    Ok(Some(match failure {
        RunFailure::Failed(_) => return Ok(None),
        RunFailure::Key(error) => KeyInvalid::new_err(whole(error)),
        RunFailure::FailedElsewhere(_) => FailedElsewhere::new_err(failure.to_string()),
        RunFailure::Json(_) => PyTypeError::new_err(whole(failure)),
        RunFailure::Refused(refusal) => refused(py, refusal)?,
    }))
}

fn refused(py: Python<'_>, refusal: &Refusal) -> PyResult<PyErr> {
    let text = refusal.detail.to_string();
    let error = match refusal.reason {
        Reason::Mismatch | Reason::OtherCredential => Mismatch::new_err(text),
        Reason::InProgress | Reason::TooManyWaiters => InProgress::new_err(text),
        Reason::OutcomeUnknown | Reason::TimedOut => OutcomeUnknown::new_err(text),
        Reason::TooManyRunning
        | Reason::OverQuota
        | Reason::TooMuchBuffered
        | Reason::TooManyBadRequests
        | Reason::NotRun
        | Reason::NotStored
        | Reason::StoreDown
        | Reason::ShuttingDown => Unavailable::new_err(text),
        Reason::MissingKey
        | Reason::BadKey
        | Reason::KeyOutOfTime
        | Reason::BadTtl
        | Reason::Unscoped
        | Reason::Unverified
        | Reason::RequestTooLarge
        | Reason::RequestUnreadable
        | Reason::Panicked
        | Reason::ResponseTooLarge => Refused::new_err(text),
    };
    let value = error.value(py);
    value.setattr("reason", refusal.reason.name())?;
    let retry_after = refusal.retry_after.map(|after| after.as_secs_f64());
    value.setattr("retry_after", retry_after)?;
    value.setattr("retryable", refusal.retryable)?;
    Ok(error)
}

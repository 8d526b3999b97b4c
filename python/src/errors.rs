//! The exceptions of the package.

use std::error::Error;

use onlyonce_bridge::{
    ClientFailure, CloseError, OpenFailure, OutboxFailure, RunFailure, WantedError,
};
use onlyonce_client::{Failure, QueueError};
use onlyonce_core::{Reason, Refusal};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
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
    "It was opened before a fork: open one in each process."
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
    NotKept,
    OnlyonceError,
    "The function ran, but its value could not be written; it is not run again under this key."
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

create_exception!(
    onlyonce,
    SendFailed,
    OnlyonceError,
    "A request is not done. `cause`, `detail`, `attempts`, `retryable`, `may_have_run`, `retry_after` and `answer` say more."
);
create_exception!(
    onlyonce,
    QueueFailed,
    OnlyonceError,
    "The queue could not do what it was asked."
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
    match failure {
        OpenFailure::OpenInParent(error) => Forked::new_err(error.to_string()),
        OpenFailure::Threads(_) | OpenFailure::Store(_) | OpenFailure::Engine(_) => {
            OpenError::new_err(whole(failure))
        }
    }
}

pub(crate) fn setting(error: &dyn Error) -> PyErr {
    OpenError::new_err(whole(error))
}

pub(crate) fn unusable(error: CloseError) -> PyErr {
    match error {
        CloseError::Forked { .. } => Forked::new_err(error.to_string()),
        CloseError::Closed { .. } => OnlyonceError::new_err(error.to_string()),
    }
}

/// Why a call has no value; `None` if its own function failed, whose exception Python has.
pub(crate) fn running(py: Python<'_>, failure: &RunFailure) -> PyResult<Option<PyErr>> {
    Ok(Some(match failure {
        RunFailure::Failed(_) => return Ok(None),
        RunFailure::Key(error) => KeyInvalid::new_err(whole(error)),
        RunFailure::FailedElsewhere(_) => FailedElsewhere::new_err(failure.to_string()),
        RunFailure::NotKept(_) => NotKept::new_err(failure.to_string()),
        RunFailure::Step(_) => PyValueError::new_err(failure.to_string()),
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
        | Reason::RequestEncoded
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

pub(crate) fn wanted(error: &WantedError) -> PyErr {
    match error {
        WantedError::Key(_) | WantedError::KeyNotSendable(_) => {
            KeyInvalid::new_err(error.to_string())
        }
        WantedError::Method(_)
        | WantedError::HeaderName(_)
        | WantedError::HeaderValue(_)
        | WantedError::Credential { .. }
        | WantedError::Operation(_) => PyValueError::new_err(whole(error)),
    }
}

pub(crate) fn client(failure: &ClientFailure) -> PyErr {
    OpenError::new_err(whole(failure))
}

pub(crate) fn outbox(failure: OutboxFailure) -> PyErr {
    match failure {
        OutboxFailure::Client(error) => unusable(error),
        OutboxFailure::OpenInParent(error) => Forked::new_err(error.to_string()),
        OutboxFailure::Queue(error) => queue(&error),
    }
}

pub(crate) fn queue(error: &QueueError) -> PyErr {
    QueueFailed::new_err(whole(error))
}

/// The task went away with its runtime.
pub(crate) fn stopped() -> PyErr {
    OnlyonceError::new_err("it was closed while this call waited")
}

/// A request that is not done; `answer` is the service's, if there was one.
pub(crate) fn sending(
    py: Python<'_>,
    failure: &Failure,
    answer: Option<Bound<'_, PyAny>>,
) -> PyResult<PyErr> {
    let error = SendFailed::new_err(whole(failure));
    let value = error.value(py);
    value.setattr("cause", failure.cause.name())?;
    value.setattr("detail", &failure.detail)?;
    value.setattr("attempts", failure.attempts)?;
    value.setattr("retryable", failure.cause.is_retryable())?;
    value.setattr("may_have_run", failure.may_have_run())?;
    let retry_after = failure.retry_after.map(|after| after.as_secs_f64());
    value.setattr("retry_after", retry_after)?;
    value.setattr("answer", answer)?;
    Ok(error)
}

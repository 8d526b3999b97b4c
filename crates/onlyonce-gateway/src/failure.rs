//! What a client is told in place of an upstream's answer: one text for each thing that is known. That
//! something did not happen is said only of what was not sent, and of no other attempt.

use http::{Request, StatusCode};
use onlyonce_core::{OnLapse, Release};
use onlyonce_tower::{BrokenOff, Execution};
use thiserror::Error;

use crate::upstream::UpstreamError;

#[cfg(test)]
mod tests;

/// A request that the upstream did not answer.
#[derive(Debug, Error)]
#[error("{error}")]
pub(crate) struct Failure {
    #[source]
    pub(crate) error: UpstreamError,
    pub(crate) sent: Sent,
}

/// Under which promise a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// None: it has no key, or none that counts here.
    Plain { is_idempotent: bool },
    /// It runs once.
    Once { on_lapse: OnLapse, attempt: u32 },
    /// It runs once, and if its outcome stays unknown that is found out before it runs again.
    Reconciled { attempt: u32 },
    /// It would, but the store is down and the policy is to run it all the same.
    Unrecorded,
}

/// A problem (RFC 9457) about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) title: &'static str,
    pub(crate) detail: String,
    pub(crate) retryable: bool,
}

impl Sent {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let Some(execution) = request.extensions().get::<Execution>() else {
            let is_idempotent = request.method().is_idempotent();
            return Self::Plain { is_idempotent };
        };
        match execution.on_lapse() {
            Some(_) if execution.is_reconciled() => Self::Reconciled {
                attempt: execution.attempt(),
            },
            Some(on_lapse) => Self::Once {
                on_lapse,
                attempt: execution.attempt(),
            },
            None => Self::Unrecorded,
        }
    }

    /// Of one whose answer began: which attempt it was does not matter, for it has arrived.
    fn and_broken_off(is_recorded: bool, is_reconciled: bool, may_run_again: bool) -> Self {
        let attempt = 1;
        let once = |on_lapse| Self::Once { on_lapse, attempt };
        match (is_recorded, is_reconciled, may_run_again) {
            (false, ..) => Self::Unrecorded,
            (true, true, _) => Self::Reconciled { attempt },
            (true, false, true) => once(OnLapse::Rerun),
            (true, false, false) => once(OnLapse::Hold),
        }
    }
}

impl Failure {
    /// The upstream was lost in the middle of an answer that was read to be stored. What came of it
    /// is no answer: a client would take the end of the connection for that of the body.
    pub(crate) fn broken_off(broken: BrokenOff) -> Self {
        Self {
            error: UpstreamError::BrokenOff,
            sent: Sent::and_broken_off(
                broken.is_recorded,
                broken.is_reconciled,
                broken.may_run_again,
            ),
        }
    }

    pub(crate) fn release(&self) -> Release {
        self.error.release()
    }

    pub(crate) fn problem(&self) -> Problem {
        let (status, kind, title, what) = match &self.error {
            UpstreamError::Unreachable(_) => (
                StatusCode::BAD_GATEWAY,
                "upstream-unreachable",
                "Bad gateway",
                "The service behind this gateway could not be reached.",
            ),
            UpstreamError::Lost(_) => (
                StatusCode::BAD_GATEWAY,
                "upstream-lost",
                "Bad gateway",
                "The service behind this gateway was lost before it answered.",
            ),
            UpstreamError::Unreadable(_) => (
                StatusCode::BAD_GATEWAY,
                "upstream-unreadable",
                "Bad gateway",
                "The service behind this gateway gave an answer whose head cannot be read.",
            ),
            UpstreamError::BrokenOff => (
                StatusCode::BAD_GATEWAY,
                "upstream-lost",
                "Bad gateway",
                "The service behind this gateway was lost in the middle of its answer.",
            ),
            UpstreamError::Slow => (
                StatusCode::GATEWAY_TIMEOUT,
                "upstream-slow",
                "Gateway timeout",
                "The service behind this gateway did not answer in time.",
            ),
            UpstreamError::Switched => (
                StatusCode::BAD_GATEWAY,
                "upstream-switched",
                "Bad gateway",
                "The service behind this gateway changed to a protocol that it was not asked for.",
            ),
            UpstreamError::NoPlace(why) => return no_place(why),
            UpstreamError::NotAskable(why) => return not_askable(why),
            UpstreamError::Unsent(_) => (
                StatusCode::REQUEST_TIMEOUT,
                "request-stopped",
                "Request timeout",
                "The request stopped in the middle of its body.",
            ),
        };
        let (follows, retryable) = match self.error.release() {
            Release::NotRun => not_sent(self.sent),
            Release::Unknown => may_have_run(self.sent),
        };
        Problem {
            status,
            kind,
            title,
            detail: format!("{what} {follows}"),
            retryable,
        }
    }
}

/// A request that cannot carry its operation's id to the upstream, and so was not sent. It never will
/// be: the request is what it is.
fn no_place(why: &str) -> Problem {
    Problem {
        status: StatusCode::UNPROCESSABLE_ENTITY,
        kind: "no-place-for-key",
        title: "No place for a key",
        detail: format!(
            "The service behind this gateway takes a key in the request's body, and this request \
             cannot have one: {why}. It was not sent to it."
        ),
        retryable: false,
    }
}

/// A request of which nobody could find out whether it happened, and so was not sent.
fn not_askable(why: &str) -> Problem {
    Problem {
        status: StatusCode::UNPROCESSABLE_ENTITY,
        kind: "not-askable",
        title: "Cannot be looked up",
        detail: format!(
            "This gateway must be able to ask the service behind it whether a request happened, and \
             cannot ask for this one: {why}. It was not sent to it."
        ),
        retryable: false,
    }
}

/// What follows if no byte of this attempt was sent, and whether a retry can help.
fn not_sent(sent: Sent) -> (&'static str, bool) {
    match sent {
        Sent::Plain { .. } => (
            "The request was not sent to it, and can be sent again.",
            true,
        ),
        Sent::Unrecorded
        | Sent::Once { attempt: 0..=1, .. }
        | Sent::Reconciled { attempt: 0..=1 } => (
            "The request was not sent to it. Retry with the same key.",
            true,
        ),
        Sent::Reconciled { .. } => (
            "This attempt was not sent to it, but an earlier one under this key may have taken effect. \
             A retry with the same key finds that out first.",
            true,
        ),
        Sent::Once {
            on_lapse: OnLapse::Rerun,
            ..
        } => (
            "This attempt was not sent to it, but an earlier one under this key may have taken effect. \
             A retry with the same key may run it again.",
            true,
        ),
        Sent::Once {
            on_lapse: OnLapse::Hold,
            ..
        } => (
            "This attempt was not sent to it, but an earlier one under this key may have taken effect. \
             It is not run again under this key, and must not be repeated under a new one: an \
             operator must find out and resolve it.",
            false,
        ),
    }
}

/// What follows if it was sent, or a part of it, and whether a retry can help.
fn may_have_run(sent: Sent) -> (&'static str, bool) {
    match sent {
        Sent::Plain {
            is_idempotent: true,
        } => (
            "The request may have taken effect, and its method may be repeated.",
            true,
        ),
        Sent::Plain {
            is_idempotent: false,
        } => (
            "The request may have taken effect, and no idempotency key protects it: find out before \
             sending it again.",
            false,
        ),
        Sent::Unrecorded => (
            "The request may have taken effect, and its key could not be recorded: find out before \
             sending it again.",
            false,
        ),
        Sent::Reconciled { .. } => (
            "The request may have taken effect. A retry with the same key finds that out first, and \
             runs it only if it did not.",
            true,
        ),
        Sent::Once {
            on_lapse: OnLapse::Rerun,
            ..
        } => (
            "The request may have taken effect. A retry with the same key may run it again.",
            true,
        ),
        Sent::Once {
            on_lapse: OnLapse::Hold,
            ..
        } => (
            "The request may have taken effect. It is not run again under this key, and must not be \
             repeated under a new one: an operator must find out and resolve it.",
            false,
        ),
    }
}

//! How each profile answers each refusal: status, code, and whether to retry.

use crate::refusal::Reason;

/// Status, code and whether to retry: the table all others start from.
pub(super) fn problem_row(reason: Reason) -> (u16, &'static str, bool) {
    let code = reason.name();
    match reason {
        Reason::MissingKey | Reason::BadKey | Reason::BadTtl | Reason::Unscoped => {
            (400, code, false)
        }
        Reason::Unverified => (401, code, false),
        Reason::RequestUnreadable => (400, code, true),
        Reason::RequestTooLarge => (413, code, false),
        Reason::Mismatch => (422, code, false),
        Reason::OtherCredential | Reason::OutcomeUnknown => (409, code, false),
        Reason::InProgress => (409, code, true),
        Reason::TooManyWaiters | Reason::OverQuota | Reason::TooManyBadRequests => {
            (429, code, true)
        }
        Reason::TimedOut => (504, code, true),
        Reason::TooManyRunning
        | Reason::NotRun
        | Reason::NotStored
        | Reason::StoreDown
        | Reason::ShuttingDown => (503, code, true),
        Reason::Panicked => (500, code, false),
        Reason::ResponseTooLarge => (507, code, false),
    }
}

pub(super) fn formbridge_row(reason: Reason) -> (u16, &'static str, bool) {
    let (status, _, retryable) = problem_row(reason);
    match reason {
        Reason::Mismatch | Reason::OtherCredential | Reason::OutcomeUnknown => {
            (409, "conflict", false)
        }
        Reason::InProgress | Reason::TooManyWaiters => (503, "service_unavailable", true),
        Reason::TooManyRunning
        | Reason::NotRun
        | Reason::NotStored
        | Reason::StoreDown
        | Reason::ShuttingDown => (status, "service_unavailable", retryable),
        Reason::MissingKey
        | Reason::BadKey
        | Reason::BadTtl
        | Reason::Unscoped
        | Reason::RequestTooLarge
        | Reason::RequestUnreadable => (status, "invalid_request", retryable),
        Reason::Unverified => (status, "unauthorized", retryable),
        Reason::OverQuota | Reason::TooManyBadRequests => (status, "rate_limited", retryable),
        Reason::TimedOut => (status, "timeout", retryable),
        Reason::Panicked => (status, "internal_error", retryable),
        Reason::ResponseTooLarge => (status, "response_too_large", retryable),
    }
}

pub(super) fn formbridge_008_row(reason: Reason) -> (u16, &'static str, bool) {
    let (status, code, retryable) = formbridge_row(reason);
    if reason == Reason::Mismatch {
        (422, code, retryable)
    } else if reason == Reason::InProgress {
        (409, "in_progress", true)
    } else {
        (status, code, retryable)
    }
}

pub(super) fn broker_row(reason: Reason) -> (u16, &'static str, bool) {
    let (status, code, retryable) = problem_row(reason);
    if reason == Reason::TooManyWaiters {
        (503, code, true)
    } else {
        (status, code, retryable)
    }
}

pub(super) fn guardian_row(reason: Reason) -> (u16, &'static str, bool) {
    let (status, _, retryable) = problem_row(reason);
    let code = match reason {
        Reason::MissingKey => "MISSING_IDEMPOTENCY_KEY",
        Reason::BadKey => "INVALID_IDEMPOTENCY_KEY",
        Reason::BadTtl => "INVALID_TTL",
        Reason::Unscoped => "CALLER_UNKNOWN",
        Reason::Unverified => "TOKEN_INVALID",
        Reason::RequestTooLarge => "PAYLOAD_TOO_LARGE",
        Reason::RequestUnreadable => "REQUEST_INCOMPLETE",
        Reason::Mismatch => "IDEMPOTENCY_KEY_REUSED",
        Reason::OtherCredential => "CREDENTIAL_CHANGED",
        Reason::InProgress | Reason::TooManyWaiters => "CONCURRENT_REQUEST",
        Reason::OverQuota => "QUOTA_EXCEEDED",
        Reason::TooManyBadRequests => "TOO_MANY_REQUESTS",
        Reason::OutcomeUnknown => "OUTCOME_UNKNOWN",
        Reason::TimedOut => "TIMEOUT",
        Reason::TooManyRunning | Reason::NotRun | Reason::StoreDown | Reason::ShuttingDown => {
            "SERVICE_UNAVAILABLE"
        }
        Reason::NotStored => "RESULT_NOT_STORED",
        Reason::Panicked => "INTERNAL_ERROR",
        Reason::ResponseTooLarge => "RESPONSE_TOO_LARGE",
    };
    if reason == Reason::TooManyWaiters {
        (409, code, true)
    } else {
        (status, code, retryable)
    }
}

pub(super) fn middleware_row(reason: Reason) -> (u16, &'static str, bool) {
    let (status, code, retryable) = problem_row(reason);
    if reason == Reason::BadKey {
        (422, code, false)
    } else if reason == Reason::Mismatch {
        (409, code, false)
    } else {
        (status, code, retryable)
    }
}

pub(super) fn stripe_row(reason: Reason) -> (u16, &'static str, bool) {
    let (status, _, retryable) = problem_row(reason);
    match reason {
        Reason::Mismatch => (400, "idempotency_error", false),
        Reason::InProgress | Reason::OtherCredential | Reason::OutcomeUnknown => {
            (status, "idempotency_error", retryable)
        }
        Reason::MissingKey
        | Reason::BadKey
        | Reason::BadTtl
        | Reason::Unscoped
        | Reason::RequestTooLarge
        | Reason::RequestUnreadable => (status, "invalid_request_error", retryable),
        Reason::Unverified => (status, "authentication_error", retryable),
        Reason::TooManyWaiters | Reason::OverQuota | Reason::TooManyBadRequests => {
            (status, "rate_limit_error", retryable)
        }
        Reason::TimedOut
        | Reason::TooManyRunning
        | Reason::NotRun
        | Reason::NotStored
        | Reason::StoreDown
        | Reason::ShuttingDown
        | Reason::Panicked
        | Reason::ResponseTooLarge => (status, "api_error", retryable),
    }
}

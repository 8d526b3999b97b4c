//! The one place that turns a refusal into HTTP: status, code and shape are the policy's table.

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use onlyonce_core::policy::{Envelope, Policy, RefusalRow};
use onlyonce_core::{Reason, Refusal};
use serde_json::{Value, json};

use crate::body::Whole;
use crate::grpc;
use crate::marks::{Told, mark};

/// What a client's token library understands (RFC 6750).
const INVALID_TOKEN: HeaderValue = HeaderValue::from_static("Bearer error=\"invalid_token\"");

/// In the extensions of every response that is a refusal of the layer: which one, for whoever says it in
/// other words.
#[derive(Clone, Debug)]
pub struct Refused(pub Refusal);

/// A refusal as this policy words it, marked with what is known of it.
pub(crate) fn refuse(
    refusal: &Refusal,
    policy: &Policy,
    told: &Told,
    is_grpc: bool,
) -> Response<Whole> {
    let row = policy.http.refusals.row(refusal.reason);
    // A row may say when to try again where trying again makes sense, not whether it does.
    let after = refusal
        .retry_after
        .map(|usual| row.retry_after.unwrap_or(usual));
    let mut response = if is_grpc {
        grpc::refuse(refusal)
    } else {
        in_http(refusal, row, after, policy.http.envelope)
    };
    let marks = row.marks.as_ref().unwrap_or(&policy.http.refusal_marks);
    mark(response.headers_mut(), marks, told);
    if let Some(after) = after {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
    }
    if refusal.reason == Reason::Unverified {
        response
            .headers_mut()
            .insert(WWW_AUTHENTICATE, INVALID_TOKEN);
    }
    response.extensions_mut().insert(Refused(refusal.clone()));
    response
}

fn in_http(
    refusal: &Refusal,
    row: &RefusalRow,
    after: Option<Duration>,
    envelope: Envelope,
) -> Response<Whole> {
    let (media_type, body) = match envelope {
        Envelope::Problem => ("application/problem+json", problem(refusal, row, after)),
        Envelope::OkError => ("application/json", ok_error(refusal, row, after)),
        Envelope::SuccessError => ("application/json", success_error(refusal, row)),
        Envelope::CodeError => (
            "application/json",
            json!({"error": {"code": row.code, "message": refusal.detail}}),
        ),
        Envelope::TypeError => (
            "application/json",
            json!({"error": {"type": row.code, "message": refusal.detail}}),
        ),
        Envelope::FlatError => (
            "application/json",
            json!({"type": kind(row), "code": row.code, "message": refusal.detail}),
        ),
        Envelope::ErrorList => (
            "application/json",
            json!({"errors": [
                {"category": kind(row), "code": row.code, "detail": refusal.detail},
            ]}),
        ),
        Envelope::NamedError => ("application/json", named_error(refusal, row)),
        Envelope::StatusError => (
            "application/json",
            json!({"error": {"code": row.status, "message": refusal.detail, "status": row.code}}),
        ),
    };
    let mut response = Response::new(Whole {
        data: body.to_string().into(),
        trailers: None,
    });
    *response.status_mut() =
        StatusCode::from_u16(row.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// RFC 9457.
fn problem(refusal: &Refusal, row: &RefusalRow, after: Option<Duration>) -> Value {
    let mut problem = json!({
        "type": format!("urn:onlyonce:problem:{}", row.code),
        "title": title(refusal.reason),
        "status": row.status,
        "detail": refusal.detail,
        "retryable": retryable(refusal, row),
    });
    if let Some(after) = after {
        problem["retryAfter"] = json!(whole_seconds(after));
    }
    problem
}

fn ok_error(refusal: &Refusal, row: &RefusalRow, after: Option<Duration>) -> Value {
    let mut error = json!({
        "type": row.code,
        "message": refusal.detail,
        "retryable": retryable(refusal, row),
    });
    if let Some(after) = after {
        error["retryAfterMs"] = json!(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    }
    json!({"ok": false, "error": error})
}

fn success_error(refusal: &Refusal, row: &RefusalRow) -> Value {
    json!({
        "success": false,
        "error": {
            "code": row.code,
            "message": refusal.detail,
            "retryable": retryable(refusal, row),
        },
    })
}

fn named_error(refusal: &Refusal, row: &RefusalRow) -> Value {
    json!({
        "name": kind(row),
        "message": title(refusal.reason),
        "details": [{"issue": row.code, "description": refusal.detail}],
    })
}

/// The kind of error: its own, or what its code says.
fn kind(row: &RefusalRow) -> &str {
    row.kind.as_deref().unwrap_or(&row.code)
}

/// Whether to repeat the request: the reason's, unless more is known.
fn retryable(refusal: &Refusal, row: &RefusalRow) -> bool {
    refusal.retryable.unwrap_or(row.retryable)
}

/// `Retry-After` counts whole seconds; 0 would be a retry storm.
fn whole_seconds(after: Duration) -> u64 {
    after
        .as_millis()
        .div_ceil(1000)
        .clamp(1, u128::from(u32::MAX)) as u64
}

fn title(reason: Reason) -> &'static str {
    match reason {
        Reason::MissingKey => "Idempotency key missing",
        Reason::BadKey => "Idempotency key not valid",
        Reason::KeyOutOfTime => "Idempotency key out of its time",
        Reason::BadTtl => "Time to live not valid",
        Reason::Unscoped => "Caller not known",
        Reason::Unverified => "Token not valid",
        Reason::RequestTooLarge => "Request body too large",
        Reason::RequestUnreadable => "Request body not readable",
        Reason::RequestEncoded => "Request body encoded",
        Reason::Mismatch => "Idempotency key used for another request",
        Reason::OtherCredential => "Idempotency key used with another credential",
        Reason::InProgress => "Request still in progress",
        Reason::TooManyWaiters => "Too many waiting requests",
        Reason::TooManyRunning => "Too many running requests",
        Reason::TooMuchBuffered => "Too many request bodies in memory",
        Reason::OverQuota => "Too many idempotency keys",
        Reason::TooManyBadRequests => "Too many bad requests",
        Reason::OutcomeUnknown => "Outcome unknown",
        Reason::TimedOut => "Operation timed out",
        Reason::NotRun => "Operation not started",
        Reason::NotStored => "Result not stored yet",
        Reason::StoreDown => "Idempotency store unavailable",
        Reason::ShuttingDown => "Server shutting down",
        Reason::Panicked => "Operation failed unexpectedly",
        Reason::ResponseTooLarge => "Response too large to store",
    }
}

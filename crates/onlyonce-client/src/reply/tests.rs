use http::HeaderValue;
use onlyonce_core::Profile;
use onlyonce_core::policy::Envelope;
use serde_json::json;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn reply(status: u16, body: &Value) -> Reply {
    Reply::new(
        StatusCode::from_u16(status).unwrap(),
        HeaderMap::new(),
        body.to_string().into(),
    )
}

fn cause(status: u16, body: &Value) -> Cause {
    reply(status, body).into_failure(NOW).cause
}

fn with(mut reply: Reply, name: &'static str, value: &str) -> Reply {
    let value = HeaderValue::from_str(value).unwrap();
    reply.headers.insert(name, value);
    reply
}

/// A refusal as the envelopes have it, in fewer words.
fn refused(profile: Profile, reason: Reason, message: &str) -> (u16, Value) {
    let http = profile.policy().http;
    let row = http.refusals.row(reason);
    let body = match http.envelope {
        Envelope::Problem => {
            json!({"type": format!("{URN}{}", row.code), "detail": message, "retryable": row.retryable})
        }
        Envelope::OkError => {
            json!({"ok": false, "error": {"type": row.code, "message": message, "retryable": row.retryable}})
        }
        Envelope::SuccessError => {
            json!({"success": false, "error": {"code": row.code, "message": message, "retryable": row.retryable}})
        }
        Envelope::CodeError => json!({"error": {"code": row.code, "message": message}}),
        Envelope::TypeError => json!({"error": {"type": row.code, "message": message}}),
        Envelope::FlatError => json!({"type": row.kind, "code": row.code, "message": message}),
        Envelope::ErrorList => {
            json!({"errors": [{"category": row.kind, "code": row.code, "detail": message}]})
        }
        Envelope::NamedError => {
            let details = json!([{"issue": row.code, "description": message}]);
            json!({"name": row.kind, "message": "a title", "details": details})
        }
        Envelope::StatusError => {
            json!({"error": {"code": row.status, "message": message, "status": row.code}})
        }
    };
    (row.status, body)
}

#[test]
fn every_refusal_of_every_profile_is_understood() {
    for profile in Profile::ALL {
        for reason in Reason::ALL {
            let (status, body) = refused(profile, reason, reason.explanation());

            assert_eq!(
                cause(status, &body),
                reason.into(),
                "{profile} {}",
                reason.name()
            );
        }
    }
}

#[test]
fn a_refusal_with_more_to_say_is_understood_too() {
    let message = format!("{}: at most 9 bytes", Reason::RequestTooLarge.explanation());
    let (status, body) = refused(Profile::Formbridge, Reason::RequestTooLarge, &message);

    assert_eq!(cause(status, &body), Cause::RequestTooLarge);
}

#[test]
fn a_mismatch_is_a_conflict_and_never_retried_even_in_other_words() {
    for profile in Profile::ALL {
        let (status, body) = refused(profile, Reason::Mismatch, "another wording");

        let cause = cause(status, &body);

        assert_eq!(cause, Cause::Conflict, "{profile}");
        assert!(!cause.is_retryable());
    }
}

#[test]
fn in_progress_is_retried_even_in_other_words() {
    for profile in Profile::ALL {
        let (status, body) = refused(profile, Reason::InProgress, "another wording");

        assert!(cause(status, &body).is_retryable(), "{profile}");
    }
    let documented = json!({"error": {"code": "CONCURRENT_REQUEST",
        "message": "Request with this idempotency key is already processing"}});
    assert_eq!(cause(409, &documented), Cause::InProgress);
}

#[test]
fn answers_of_other_services_are_judged_by_status_and_hints() {
    let none = json!("?");
    let says = |retryable: bool| json!({"error": {"message": "m", "retryable": retryable}});

    assert_eq!(cause(400, &none), Cause::Rejected);
    assert_eq!(cause(409, &none), Cause::Rejected);
    assert_eq!(cause(413, &none), Cause::RequestTooLarge);
    assert_eq!(cause(401, &none), Cause::Unauthorised);
    assert_eq!(cause(429, &none), Cause::Unavailable);
    assert_eq!(cause(503, &none), Cause::Unavailable);
    assert_eq!(cause(500, &none), Cause::Failed);
    assert_eq!(cause(400, &says(true)), Cause::Unavailable);
    assert_eq!(cause(503, &says(false)), Cause::FailedForGood);
    assert_eq!(cause(307, &none), Cause::Rejected);
    let busy = with(reply(409, &none), "retry-after", "3");
    assert_eq!(busy.into_failure(NOW).cause, Cause::InProgress);
}

#[test]
fn a_failure_that_is_replayed_is_for_good() {
    let replayed = with(reply(500, &json!({})), "idempotent-replayed", "true");

    assert_eq!(replayed.into_failure(NOW).cause, Cause::FailedForGood);
}

#[test]
fn a_replay_is_seen_by_any_profile_s_mark() {
    for name in [
        "idempotent-replayed",
        "x-idempotent-replayed",
        "idempotent-replay",
    ] {
        assert!(
            with(reply(200, &json!({})), name, "true").is_replayed(),
            "{name}"
        );
        assert!(
            !with(reply(200, &json!({})), name, "false").is_replayed(),
            "{name}"
        );
    }
    assert!(reply(200, &json!({"idempotent": true})).is_replayed());
    assert!(!reply(200, &json!({"idempotent": "true"})).is_replayed());
}

#[test]
fn retry_after_is_read_in_seconds_and_as_a_date() {
    let after = |reply: Reply| reply.into_failure(NOW).retry_after;
    let busy = || reply(503, &json!({}));

    assert_eq!(after(busy()), None);
    assert_eq!(
        after(with(busy(), "retry-after", "120")),
        Some(Duration::from_secs(120))
    );
    // Our clock says 22:13:20.
    let date = "Tue, 14 Nov 2023 22:14:20 GMT";
    assert_eq!(
        after(with(busy(), "retry-after", date)),
        Some(Duration::from_secs(60))
    );
    let past = "Tue, 14 Nov 2023 22:00:00 GMT";
    assert_eq!(
        after(with(busy(), "retry-after", past)),
        Some(Duration::ZERO)
    );
    assert_eq!(after(with(busy(), "retry-after", "soon")), None);
}

#[test]
fn a_date_counts_from_the_service_s_own_clock() {
    let busy = with(
        reply(503, &json!({})),
        "date",
        "Mon, 01 Jan 2035 00:00:00 GMT",
    );
    let busy = with(busy, "retry-after", "Mon, 01 Jan 2035 00:00:07 GMT");

    assert_eq!(
        busy.into_failure(NOW).retry_after,
        Some(Duration::from_secs(7))
    );
}

#[test]
fn the_body_may_say_when_to_come_back() {
    let body = json!({"ok": false, "error": {"type": "service_unavailable", "retryAfterMs": 1500}});

    assert_eq!(
        reply(503, &body).into_failure(NOW).retry_after,
        Some(Duration::from_millis(1500))
    );
}

#[test]
fn what_is_said_is_cut_short_and_harmless() {
    let body = json!({"error": {"message": format!("a\n{}", "x".repeat(10_000))}});

    let failure = reply(400, &body).into_failure(NOW);

    assert!(failure.detail.len() < 400);
    assert!(!failure.detail.contains('\n'));
}

#[test]
fn a_body_that_is_no_json_is_no_trouble() {
    for body in [
        "",
        "<html>",
        "[1]",
        "{\"error\": 7}",
        "{\"error\": {\"code\": 4}}",
        "null",
    ] {
        let reply = Reply::new(StatusCode::BAD_REQUEST, HeaderMap::new(), body.into());

        assert_eq!(reply.into_failure(NOW).cause, Cause::Rejected, "{body}");
    }
}

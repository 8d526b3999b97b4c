//! What passes for a refusal, envelope by envelope.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use onlyonce_core::{Profile, Reason};
use serde_json::{Value, json};

use super::check_refusal;
use crate::verify::answer::Answer;

fn answer(status: u16, content_type: &'static str, body: &Value) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static(content_type));
    Answer {
        status,
        headers,
        body: Bytes::from(body.to_string()),
        took: std::time::Duration::ZERO,
    }
}

fn check(profile: Profile, reason: Reason, answer: &Answer) -> Result<(), String> {
    check_refusal(&profile.policy(), answer, reason)
}

#[test]
fn a_problem_may_leave_members_out_but_not_contradict_itself() {
    let is_problem = |body: Value| {
        let answer = answer(422, "application/problem+json", &body);
        check(Profile::Standard, Reason::Mismatch, &answer).is_ok()
    };

    assert!(is_problem(json!({"title": "no"})));
    assert!(is_problem(
        json!({"type": "https://example.org/reused", "status": 422})
    ));
    assert!(is_problem(
        json!({"detail": "no", "retryable": false, "more": [1]})
    ));
    assert!(!is_problem(json!({})));
    assert!(!is_problem(json!([])));
    assert!(!is_problem(json!({"title": 7})));
    assert!(!is_problem(json!({"title": "no", "status": 400})));
    assert!(!is_problem(json!({"title": "no", "retryable": true})));
}

#[test]
fn status_and_content_type_are_the_profile_s() {
    let body = json!({"title": "no"});
    let check = |status, content_type| {
        let answer = answer(status, content_type, &body);
        check(Profile::Standard, Reason::Mismatch, &answer)
    };

    assert!(check(422, "application/problem+json; charset=utf-8").is_ok());
    assert!(
        check(409, "application/problem+json")
            .unwrap_err()
            .contains("422")
    );
    assert!(check(422, "text/plain").unwrap_err().contains("text/plain"));
}

#[test]
fn a_document_s_word_is_required_and_our_own_is_not() {
    let json_answer = |status, body| answer(status, "application/json", &body);

    let conflict = |word: &str| {
        let error = json!({"type": word, "message": "no", "retryable": false});
        let answer = json_answer(409, json!({"ok": false, "error": error}));
        check(Profile::Formbridge, Reason::Mismatch, &answer)
    };
    assert!(conflict("conflict").is_ok());
    assert!(conflict("mismatch").is_err());

    let bad_key = |code: Value| {
        let error = json!({"code": code, "message": "no"});
        let answer = json_answer(400, json!({"success": false, "error": error}));
        check(Profile::Broker, Reason::BadKey, &answer)
    };
    assert!(bad_key(json!("INVALID_KEY")).is_ok());
    assert!(bad_key(json!(7)).is_err());

    let reused = |code: &str| {
        let answer = json_answer(422, json!({"error": {"code": code, "message": "no"}}));
        check(Profile::Guardian, Reason::Mismatch, &answer)
    };
    assert!(reused("IDEMPOTENCY_KEY_REUSED").is_ok());
    assert!(reused("CONFLICT").is_err());

    let stripe = |error: Value| {
        let answer = json_answer(400, json!({"error": error}));
        check(Profile::Stripe, Reason::Mismatch, &answer)
    };
    assert!(stripe(json!({"type": "idempotency_error", "message": "no"})).is_ok());
    assert!(stripe(json!({"type": "idempotency_error"})).is_err());
}

#[test]
fn an_error_says_whether_to_retry_where_the_document_says_so() {
    let check = |error: Value| {
        let body = json!({"ok": false, "error": error});
        let answer = answer(503, "application/json", &body);
        check(Profile::Formbridge, Reason::InProgress, &answer)
    };
    let word = "service_unavailable";

    assert!(
        check(json!({"type": word, "message": "no", "retryable": true, "retryAfterMs": 5000}))
            .is_ok()
    );
    assert!(check(json!({"type": word, "message": "no", "retryable": true})).is_ok());
    assert!(check(json!({"type": word, "message": "no"})).is_err());
    assert!(check(json!({"type": word, "message": "no", "retryable": false})).is_err());
    assert!(
        check(json!({"type": word, "message": "no", "retryable": true, "retryAfterMs": 0}))
            .is_err()
    );
}

//! Keys that are not in the header: derived from a form, or given in a JSON body; and the marks
//! that a replayed JSON object carries.

use axum::body::Body;
use http::{HeaderName, HeaderValue, Response};
use onlyonce_core::policy::{DeriveRule, KeyNeed};
use onlyonce_core::{Event, Policy, Profile};

use crate::support::{App, Ask, Gate, numbered, post};

const FORM: &str = "/api/forms/test-form/submit";
const SUBMISSION: &str = r#"{"contextId":"test-form:1","formData":{"name":"John Doe","email":"john@example.com","tags":[1,2]}}"#;

/// Sends each body without a key and says which run answered it.
async fn runs_of<const N: usize>(app: &App, bodies: [&str; N]) -> [u64; N] {
    let mut runs = [0; N];
    for (run, body) in runs.iter_mut().zip(bodies) {
        *run = app.send(&post(FORM).json(body)).await.run();
    }
    runs
}

#[tokio::test]
async fn the_same_form_data_in_any_order_and_spacing_is_one_submission() {
    let app = App::under(Profile::Broker).open().await;

    let runs = runs_of(
        &app,
        [
            SUBMISSION,
            SUBMISSION,
            r#"{"formData":{"tags":[1,2],"email":"john@example.com","name":"John Doe"},"contextId":"test-form:1"}"#,
            "{\n  \"contextId\" : \"test-form:1\",\n\t\"formData\": { \"name\":\"John Doe\", \"tags\": [ 1, 2 ], \"email\":\"john@example.com\" } }\n",
            r#"{"contextId":"test-form:1","formData":{"name":"\u004aohn Doe","email":"john@example.com","tags":[1,2]}}"#,
        ],
    )
    .await;

    assert_eq!((runs, app.runs()), ([1, 1, 1, 1, 1], 1));
}

#[tokio::test]
async fn other_data_another_session_and_another_form_are_new_submissions() {
    let app = App::under(Profile::Broker).open().await;

    let runs = runs_of(
        &app,
        [
            SUBMISSION,
            &SUBMISSION.replace("john@", "john2@"),
            &SUBMISSION.replace("test-form:1", "test-form:2"),
            &SUBMISSION.replace("[1,2]", "[2,1]"),
            &SUBMISSION.replace("[1,2]", "[1,2.0]"),
            &SUBMISSION.replace("\"test-form:1\"", "null"),
            &SUBMISSION.replace("\"contextId\":\"test-form:1\",", ""),
            SUBMISSION,
        ],
    )
    .await;
    let other_form = post("/api/forms/other/submit").json(SUBMISSION);

    assert_eq!(runs, [1, 2, 3, 4, 5, 6, 7, 1]);
    assert_eq!(app.send(&other_form).await.run(), 8);
}

#[tokio::test]
async fn white_space_around_values_counts_unless_the_policy_trims_it() {
    let padded = SUBMISSION.replace("John Doe", "  John Doe ");
    for (trim, expected) in [(false, [1, 2]), (true, [1, 1])] {
        let app = App::under(Profile::Broker)
            .but(|policy| {
                policy.http.derive = Some(DeriveRule {
                    context_field: "contextId".into(),
                    data_field: "formData".into(),
                    trim,
                });
            })
            .open()
            .await;

        assert_eq!(runs_of(&app, [SUBMISSION, &padded]).await, expected);
    }
}

#[tokio::test]
async fn a_custom_key_replays_whatever_the_form_says_now() {
    let app = App::under(Profile::Broker).open().await;
    let keyed = |body: &str| post(FORM).key("my-custom-key-12345").json(body);

    let first = app.send(&keyed(SUBMISSION)).await;
    let changed = keyed(&SUBMISSION.replace("John Doe", "DIFFERENT NAME"));
    let second = app.send(&changed).await;
    let unkeyed = app.send(&post(FORM).json(SUBMISSION)).await;

    assert_eq!((first.run(), second.run()), (1, 1));
    assert_eq!(second.json()["idempotent"], true);
    assert_eq!(unkeyed.run(), 2, "a derived key is not the custom one");
}

#[tokio::test]
async fn a_request_there_is_no_key_to_derive_from_passes_through() {
    let app = App::under(Profile::Broker).open().await;
    let (json, form) = ("application/json", "application/x-www-form-urlencoded");
    let bodies = [
        (json, r#"{"contextId":"test-form:1"}"#),
        (json, r#"[{"contextId":"test-form:1","formData":{}}]"#),
        (form, "name=John"),
        (json, ""),
    ];

    for (index, (media_type, body)) in bodies.into_iter().enumerate() {
        let request = post(FORM).body(media_type, body);
        app.send(&request).await;
        let again = app.send(&request).await;

        assert_eq!(app.runs(), 2 * (index + 1), "{body}");
        assert!(!again.text().contains("idempotent"), "{body}");
    }
    assert!(app.records().await.is_empty());
}

/// A broker whose handler answers each submission with this body, type and headers.
async fn answering(
    body: &'static str,
    media_type: &'static str,
    headers: &'static [(&'static str, &'static str)],
) -> App {
    App::under(Profile::Broker)
        .answer(move |_| {
            let mut response = Response::new(Body::from(body));
            let media_type = ("content-type", media_type);
            for (name, value) in headers.iter().copied().chain([media_type]) {
                let name = HeaderName::from_static(name);
                let value = HeaderValue::from_static(value);
                response.headers_mut().append(name, value);
            }
            response
        })
        .open()
        .await
}

#[tokio::test]
async fn a_replayed_object_says_that_it_is_one_and_from_when() {
    let app = answering(
        r#"{"success":true,"recordId":"a0B","businessRecordIds":[{"id":"00Q"}],"message":"Form submitted successfully"}"#,
        "application/json",
        &[],
    )
    .await;
    let request = post(FORM).json(SUBMISSION);

    let first = app.send(&request).await;
    let replay = app.send(&request).await;

    assert_eq!(first.json()["message"], "Form submitted successfully");
    assert_eq!(first.json().get("idempotent"), None);
    let submitted_at = app.record().await.created_at.to_string();
    assert_eq!(
        replay.json(),
        serde_json::json!({
            "success": true,
            "recordId": "a0B",
            "businessRecordIds": [{"id": "00Q"}],
            "message": "This submission was already processed. Returning original response.",
            "idempotent": true,
            "originalSubmittedAt": submitted_at,
        })
    );
    assert_eq!((replay.status, app.runs()), (200, 1));
}

#[tokio::test]
async fn members_that_look_like_marks_are_replaced_and_not_doubled() {
    let app = answering(
        r#"{"message":"a","idempotent":false,"message":"b","originalSubmittedAt":"never","kept":1}"#,
        "application/json",
        &[],
    )
    .await;
    let request = post(FORM).json(SUBMISSION);
    app.send(&request).await;

    let replay = app.send(&request).await;

    for name in ["\"message\"", "\"idempotent\"", "\"originalSubmittedAt\""] {
        assert_eq!(replay.text().matches(name).count(), 1, "{}", replay.text());
    }
    assert_eq!(replay.json()["idempotent"], true);
    assert_eq!(replay.json()["kept"], 1);
}

#[tokio::test]
async fn numbers_in_a_marked_body_keep_their_digits() {
    const MEMBERS: &str =
        r#""id":9007199254740993,"price":1.10,"big":1E400,"small":-0.0,"text":"\u00e9""#;
    let app = answering(
        r#"{"id":9007199254740993,"price":1.10,"big":1E400,"small":-0.0,"text":"\u00e9"}"#,
        "application/json",
        &[],
    )
    .await;
    let request = post(FORM).json(SUBMISSION);
    app.send(&request).await;

    let replay = app.send(&request).await;

    assert!(replay.text().contains(MEMBERS), "{}", replay.text());
}

#[tokio::test]
async fn anything_but_a_plain_json_object_comes_back_untouched() {
    for (body, media_type, headers) in [
        (r#"[{"idempotent":false}]"#, "application/json", &[][..]),
        (r#""a text""#, "application/json", &[]),
        ("null", "application/json", &[]),
        (r#"{"broken":"#, "application/json", &[]),
        ("", "application/json", &[]),
        (r#"{"a":1}"#, "text/plain", &[]),
        (r#"{"a":1}"#, "application/jsonlines", &[]),
        (
            "not really gzip",
            "application/json",
            &[("content-encoding", "gzip")],
        ),
    ] {
        let app = answering(body, media_type, headers).await;
        let request = post(FORM).json(SUBMISSION);
        app.send(&request).await;

        let replay = app.send(&request).await;

        assert_eq!((replay.text(), app.runs()), (body, 1));
    }
}

#[tokio::test]
async fn every_json_type_is_marked() {
    for media_type in [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/hal+json",
    ] {
        let app = answering(r#"{"a":1}"#, media_type, &[]).await;
        let request = post(FORM).json(SUBMISSION);
        app.send(&request).await;

        let replay = app.send(&request).await;

        assert_eq!(replay.json()["idempotent"], true, "{media_type}");
        assert_eq!(replay.header("content-type"), Some(media_type));
    }
}

#[tokio::test]
async fn headers_tied_to_the_bytes_go_only_when_the_bytes_have_changed() {
    const TIED: [(&str, &str); 4] = [
        ("content-length", "7"),
        ("etag", "\"v1\""),
        ("content-digest", "sha-256=:abc=:"),
        ("signature", "sig1=:abc=:"),
    ];
    for (body, is_changed) in [(r#"{"a":1}"#, true), (r#"[{"a":]"#, false)] {
        let app = answering(body, "application/json", &TIED).await;
        let request = post(FORM).json(SUBMISSION);
        let first = app.send(&request).await;

        let replay = app.send(&request).await;

        for (name, value) in TIED {
            assert_eq!(first.header(name), Some(value));
            let kept = (!is_changed).then_some(value);
            assert_eq!(replay.header(name), kept, "{body}: {name}");
        }
    }
}

#[tokio::test]
async fn the_handler_is_asked_for_a_body_that_can_be_marked() {
    for profile in Profile::ALL {
        let app = App::under(profile)
            .handler(|_, request| {
                let accepted = request.headers().get_all("accept-encoding").iter();
                let accepted: Vec<_> = accepted.map(HeaderValue::as_bytes).collect();
                let accepted = accepted.join(&b"; "[..]);
                async move { Ok(Response::new(Body::from(accepted))) }
            })
            .open()
            .await;
        let request = post(FORM)
            .key(crate::support::uuid(1))
            .header("accept-encoding", "gzip")
            .header("accept-encoding", "br");

        let answer = app.send(&request).await;

        let marks_bodies = profile.policy().http.body_marks.is_some();
        let expected = if marks_bodies { "identity" } else { "gzip; br" };
        assert_eq!(answer.text(), expected, "{profile}");
    }
}

/// A failed submission was not "already processed", whoever waited for it.
#[tokio::test(start_paused = true)]
async fn a_shared_failure_keeps_its_own_message() {
    let gate = Gate::new();
    let app = App::under(Profile::Broker)
        .answer(|_| {
            let mut response = numbered(422, 1);
            *response.body_mut() = Body::from(r#"{"success":false,"message":"email is missing"}"#);
            response
        })
        .gate(&gate)
        .open()
        .await;
    let request = post(FORM).json(SUBMISSION);
    let original = app.spawn(&request);
    gate.entered().await;
    let duplicate = app.spawn(&request);
    app.until(|event| matches!(event, Event::Attached { .. }))
        .await;

    gate.open();

    for answer in [original.await.unwrap(), duplicate.await.unwrap()] {
        assert_eq!(answer.status, 422);
        assert_eq!(answer.json()["message"], "email is missing");
    }
    assert_eq!(app.runs(), 1);
}

fn key_in_body(policy: &mut Policy) {
    policy.http.key_member = "idempotencyKey".parse().ok();
}

fn with_field(value: &str) -> Ask {
    post("/tools/submit").json(&format!(r#"{{"amount":5,"idempotencyKey":{value}}}"#))
}

#[tokio::test]
async fn a_key_may_be_a_member_of_the_json_body() {
    let app = App::under(Profile::Standard).but(key_in_body).open().await;

    let first = app.send(&with_field("\"abc\"")).await;
    let replay = app.send(&with_field("\"\\u0061bc\"")).await;
    let other = app.send(&with_field("\"abd\"")).await;

    assert_eq!((first.run(), replay.run(), other.run()), (1, 1, 2));
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn a_key_in_the_header_goes_before_one_in_the_body() {
    let app = App::under(Profile::Standard).but(key_in_body).open().await;

    let by_header = app.send(&with_field("\"body\"").key("header")).await;
    let by_body = app.send(&with_field("\"body\"")).await;
    let again = app.send(&with_field("\"body\"").key("header")).await;

    assert_eq!((by_header.run(), by_body.run(), again.run()), (1, 2, 1));
}

#[tokio::test]
async fn a_bad_key_in_the_body_is_refused() {
    for body in [
        r#"{"idempotencyKey":"a","idempotencyKey":"a"}"#,
        r#"{"idempotencyKey":"a","idempotency\u004bey":"b"}"#,
        r#"{"idempotencyKey":7}"#,
        r#"{"idempotencyKey":["a"]}"#,
        r#"{"idempotencyKey":""}"#,
        r#"{"idempotencyKey":"two words"}"#,
        r#"{"idempotencyKey":"line\nbreak"}"#,
        &format!(r#"{{"idempotencyKey":"{}"}}"#, "k".repeat(256)),
    ] {
        let app = App::under(Profile::Standard).but(key_in_body).open().await;

        let answer = app.send(&post("/tools/submit").json(body)).await;

        assert_eq!((answer.status, app.runs()), (400, 0), "{body}");
        assert_eq!(answer.json()["type"], "urn:onlyonce:problem:bad-key");
    }
}

#[tokio::test]
async fn a_key_missing_from_header_and_body_is_missing() {
    let optional = App::under(Profile::Standard).but(key_in_body).open().await;
    let required = App::under(Profile::Standard)
        .but(|policy| {
            key_in_body(policy);
            policy.http.methods = policy.http.methods.clone().all_need(KeyNeed::Required);
        })
        .open()
        .await;

    for (media_type, body) in [
        ("application/json", r#"{"amount":5}"#),
        ("application/json", r#"[{"idempotencyKey":"a"}]"#),
        ("text/plain", "text"),
    ] {
        let request = post("/tools/submit").body(media_type, body);

        assert_eq!(optional.send(&request).await.status, 200, "{body}");
        let refused = required.send(&request).await;
        assert_eq!((refused.status, required.runs()), (400, 0), "{body}");
        assert_eq!(refused.json()["type"], "urn:onlyonce:problem:missing-key");
    }
    assert!(optional.records().await.is_empty());
}

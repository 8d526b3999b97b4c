//! Bad input gets a clear answer before anything runs; nothing is lost, nothing panics.

use std::sync::Arc;

use http::{Request, Response};
use onlyonce_core::policy::StoreDown;
use onlyonce_core::{Event, MemoryStore, OnLapse, Profile, Reason, StoreErrorKind};

use crate::support::{Answer, App, Ask, Faulty, Frames, PATH, numbered, post, uuid};

/// Asserts a problem document of this kind.
fn assert_problem(answer: &Answer, status: u16, kind: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    let problem = answer.json();
    assert_eq!(problem["type"], format!("urn:onlyonce:problem:{kind}"));
    assert_eq!(problem["status"], status);
}

#[tokio::test]
async fn a_bad_key_is_refused_with_what_is_wrong_and_where() {
    let long = "k".repeat(300);
    let table: [(&[&[u8]], &str); 14] = [
        (&[b""], "empty"),
        (&[b"   "], "empty"),
        (&[b"\t"], "empty"),
        (&[b"\"\""], "empty"),
        (&[b"\"   \""], "empty"),
        (&[long.as_bytes()], "300 bytes; at most 255"),
        (&[b"tab\there"], "position 4"),
        (&[b"two words"], "position 4"),
        (&[b"caf\xe9"], "UTF-8"),
        (&[b"gr\xc3\xbcn"], "position 3"),
        (&[b"\"never closed"], "quote"),
        (&[b"\"closed\"too early"], "quote"),
        (&[b"one", b"two"], "2 times"),
        (&[b"same", b"same", b"same"], "3 times"),
    ];
    for (lines, why) in table {
        let app = App::under(Profile::Standard).open().await;
        let request = lines.iter().fold(post(PATH), Ask::key);

        let answer = app.send(&request).await;

        assert_problem(&answer, 400, "bad-key");
        let detail = answer.json()["detail"].to_string();
        assert!(detail.contains(why), "{detail}");
        assert_eq!(answer.json()["retryable"], false);
        assert_eq!(app.runs(), 0, "{why}");
        assert!(app.records().await.is_empty());
    }
}

#[tokio::test]
async fn a_refusal_of_a_key_does_not_repeat_the_key() {
    for profile in Profile::ALL {
        let app = App::under(profile).open().await;

        let answer = app.send(&post(PATH).key("Secret\tKey-4711")).await;

        assert!(matches!(answer.status, 400 | 422), "{profile}");
        assert!(!answer.text().contains("Secret"), "{profile}");
        assert!(!answer.text().contains("4711"), "{profile}");
    }
}

#[tokio::test]
async fn a_time_to_live_that_is_no_whole_number_is_refused() {
    for (profile, header) in [
        (Profile::Formbridge, "x-idempotency-ttl"),
        (Profile::Middleware, "idempotency-ttl"),
    ] {
        let bad: [&[&[u8]]; 13] = [
            &[b"-1"],
            &[b"-0"],
            &[b"+5"],
            &[b"12.5"],
            &[b"1e3"],
            &[b"0x10"],
            &[b"an hour"],
            &[b"1 000"],
            &[b"60, 60"],
            &[b""],
            &[b"6\xb2"],
            &[b"60", b"60"],
            &[b"60", b"an hour"],
        ];
        for lines in bad {
            let app = App::under(profile).open().await;
            let request = lines
                .iter()
                .fold(post(PATH).key("k"), |ask, line| ask.header(header, line));

            let answer = app.send(&request).await;

            assert_eq!(answer.status, 400, "{profile}: {lines:?}");
            assert!(answer.text().contains(header), "{}", answer.text());
            assert_eq!(app.runs(), 0, "{profile}: {lines:?}");
        }
    }
}

#[tokio::test]
async fn a_time_to_live_may_have_white_space_around_it_and_be_huge() {
    for (profile, header) in [
        (Profile::Formbridge, "x-idempotency-ttl"),
        (Profile::Middleware, "idempotency-ttl"),
    ] {
        for text in [" 60 ", "0060", "340282366920938463463374607431768211456"] {
            let app = App::under(profile).open().await;

            let answer = app.send(&post(PATH).key("k").header(header, text)).await;

            assert_eq!((answer.status, app.runs()), (200, 1), "{profile}: {text}");
        }
    }
}

#[tokio::test]
async fn a_request_without_a_key_is_none_of_our_business_whatever_else_is_wrong() {
    let app = App::under(Profile::Middleware).open().await;
    let request = post(PATH)
        .header("idempotency-ttl", "soon")
        .header("authorization", "one")
        .header("authorization", "two")
        .body("application/json", vec![b'x'; 3 << 20]);

    assert_eq!(app.send(&request).await.status, 200);
}

#[tokio::test]
async fn a_body_over_the_bound_is_refused_whether_it_says_its_length_or_not() {
    for said in [true, false] {
        let app = App::under(Profile::Standard)
            .but(|policy| policy.limits.request_bytes_max = 10)
            .open()
            .await;
        let request = |key: &str, bytes: usize| -> Request<_> {
            let ask = post(PATH).key(key).body("text/plain", vec![b'x'; bytes]);
            let mut request = ask.request();
            if !said {
                let each = |frames: Frames, _| frames.data("x");
                *request.body_mut() = (0..bytes).fold(Frames::default(), each).body();
            }
            request
        };

        let fits = app.call(request("a", 10)).await.unwrap();
        let over = app.call(request("b", 11)).await.unwrap();

        assert_eq!((fits.status, app.runs()), (200, 1));
        assert_problem(&over, 413, "request-too-large");
        assert!(over.text().contains("at most 10 bytes"));
        assert_eq!(app.records().await.len(), 1);
    }
}

#[tokio::test]
async fn malformed_json_counts_by_its_bytes_and_reaches_the_handler() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for body in [
        r#"{"amount":"#,
        r#"{"amount":5,}"#,
        r#"{'amount':5}"#,
        r#"{"amount":05}"#,
        r#"{"amount":NaN}"#,
        r#"{"text":"\ud800"}"#,
        "{\"text\":\"tab\there\"}",
        "not json at all",
        "",
        &deep,
    ] {
        let app = App::under(Profile::Standard).open().await;
        let request = post(PATH).key("k").json(body);

        let first = app.send(&request).await;
        let replay = app.send(&request).await;
        let spaced = app.send(&request.clone().json(&format!(" {body}"))).await;

        assert_eq!((first.status, replay.status), (200, 200), "{body}");
        assert_problem(&spaced, 422, "mismatch");
        assert_eq!((replay.run(), app.runs()), (1, 1), "{body}");
    }
}

#[tokio::test]
async fn repeated_members_count_in_their_order() {
    let app = App::under(Profile::Standard).open().await;
    let request = post(PATH).key("k").json(r#"{"a":1,"a":2}"#);
    app.send(&request).await;

    let swapped = app.send(&request.clone().json(r#"{"a":2,"a":1}"#)).await;
    let last_only = app.send(&request.clone().json(r#"{"a":2}"#)).await;

    assert_problem(&swapped, 422, "mismatch");
    assert_problem(&last_only, 422, "mismatch");
    assert_eq!(app.send(&request).await.run(), 1);
}

#[tokio::test]
async fn a_request_body_that_breaks_off_runs_nothing_and_can_be_sent_again() {
    for profile in Profile::ALL {
        let app = App::under(profile).open().await;
        let ask = post(PATH).key(uuid(1)).json(r#"{"half":"a body"}"#);
        let mut broken = ask.request();
        *broken.body_mut() = Frames::default().data(r#"{"half""#).broken("reset").body();

        let answer = app.call(broken).await.unwrap();

        assert_eq!((answer.status, app.runs()), (400, 0), "{profile}");
        assert!(app.records().await.is_empty());
        let retry = app.send(&ask).await;
        assert_eq!((retry.status, retry.run()), (200, 1), "{profile}");
    }
}

#[tokio::test]
async fn a_response_body_that_breaks_off_shows_the_caller_what_there_is_and_the_error() {
    for profile in Profile::ALL {
        for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
            let app = App::under(profile)
                .but(|policy| policy.on_lapse = on_lapse)
                .answer(|run| match run {
                    1 => {
                        let half = Frames::default().data("half").broken("upstream reset");
                        let mut response = Response::new(half.body());
                        let tag = http::HeaderValue::from_static("kept");
                        response.headers_mut().insert("x-tag", tag);
                        response
                    }
                    _ => numbered(200, run),
                })
                .open()
                .await;
            let request = post(PATH).key(uuid(1));

            let first = app.send(&request).await;
            let retry = app.send(&request).await;

            assert_eq!((first.status, first.text()), (200, "half"), "{profile}");
            assert_eq!(first.header("x-tag"), Some("kept"));
            assert_eq!(first.broke_off.as_deref(), Some("upstream reset"));
            let unknown = |event: &Event| *event == Event::OutcomeUnknown;
            assert_eq!(app.events.count(unknown), 1, "{profile}");
            match on_lapse {
                OnLapse::Rerun => assert_eq!((retry.status, retry.run()), (200, 2)),
                OnLapse::Hold => {
                    let refusals = profile.policy().http.refusals;
                    let told = refusals.row(Reason::OutcomeUnknown).status;
                    assert_eq!((retry.status, app.runs()), (told, 1), "{profile}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_read_a_record_runs_nothing_even_where_the_policy_is_open() {
    for profile in Profile::ALL {
        for store_down in [StoreDown::Closed, StoreDown::Open] {
            let app = App::under(profile)
                .but(|policy| policy.store_down = store_down)
                .store(Faulty::always(StoreErrorKind::Corrupt))
                .open()
                .await;

            let answer = app.send(&post(PATH).key(uuid(1))).await;

            assert_eq!((answer.status, app.runs()), (503, 0), "{profile}");
            assert_eq!(answer.header("retry-after"), Some("5"), "{profile}");
        }
    }
}

#[tokio::test]
async fn a_full_store_takes_no_new_key_and_still_answers_the_old_ones() {
    let store = Arc::new(MemoryStore::new().records_max(1));
    let app = App::under(Profile::Standard).store(store).open().await;
    let known = post(PATH).key("known");
    app.send(&known).await;

    let new = app.send(&post(PATH).key("new")).await;

    assert_problem(&new, 503, "store-down");
    assert_eq!(new.header("retry-after"), Some("5"));
    assert_eq!((app.send(&known).await.run(), app.runs()), (1, 1));
}

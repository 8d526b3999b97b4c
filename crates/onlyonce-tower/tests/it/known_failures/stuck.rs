//! What stayed stuck elsewhere, and must not.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Response};
use http_body_util::BodyExt;
use onlyonce_core::policy::Duplicate;
use onlyonce_core::{Clock, Event, MemoryStore, Profile, Release, StoreErrorKind, SystemClock};

use crate::support::{App, Broken, Faulty, Frames, Gate, PATH, numbered, post, uuid};

/// 12.
#[tokio::test(start_paused = true)]
async fn a_crash_holds_the_key_for_one_lease_and_not_for_the_whole_retention() {
    for profile in Profile::ALL {
        let (store, gate) = (Arc::new(MemoryStore::new()), Gate::new());
        let way = Faulty::to(&store);
        let crashed = App::under(profile)
            .store(way.clone())
            .gate(&gate)
            .open()
            .await;
        let app = App::under(profile).store(store).open().await;
        let request = post(PATH).key(uuid(1));
        let _lost = crashed.spawn(&request);
        gate.entered().await;
        way.fail(Some(StoreErrorKind::Unavailable));
        let clock = SystemClock::new();

        let mut retry = app.send(&request).await;
        while retry.status != 200 {
            tokio::time::advance(Duration::from_secs(1)).await;
            retry = app.send(&request).await;
        }

        let held = clock.now();
        assert!(held >= Duration::from_secs(29), "{profile}: {held:?}");
        assert!(held <= Duration::from_secs(32), "{profile}: {held:?}");
        assert_eq!((retry.run(), app.runs()), (1, 1));
        let took_over = |event: &Event| matches!(event, Event::TookOver { .. });
        assert_eq!(app.events.count(took_over), 1, "{profile}");
    }
}

/// 14.
#[tokio::test]
async fn a_handler_that_changes_its_request_completes_the_record_it_was_given() {
    for profile in Profile::ALL {
        let app = App::under(profile)
            .handler(|run, request| async move {
                let (mut parts, body) = request.into_parts();
                parts.uri = "/somewhere/else?changed=1".parse().unwrap();
                parts.method = http::Method::DELETE;
                parts.extensions.clear();
                let other = HeaderValue::from_static("other");
                parts.headers.insert("idempotency-key", other.clone());
                parts.headers.insert("authorization", other.clone());
                parts.headers.insert("content-type", other);
                let mut body = body.collect().await.unwrap().to_bytes().to_vec();
                body.reverse();
                Ok(numbered(200, run + usize::from(body.is_empty())))
            })
            .open()
            .await;
        let request = post(PATH).key(uuid(1)).bearer("alice");

        app.send(&request).await;
        let retry = app.send(&request).await;

        assert_eq!((retry.run(), app.runs()), (1, 1), "{profile}");
        assert_eq!(app.records().await.len(), 1);
    }
}

/// 15. Under `rerun`, the default.
#[tokio::test(start_paused = true)]
async fn an_error_of_the_inner_service_lets_go_of_the_key_at_once() {
    for profile in Profile::ALL {
        for meaning in [Release::Unknown, Release::NotRun] {
            let app = App::under(profile)
                .classify(match meaning {
                    Release::Unknown => |_| Release::Unknown,
                    Release::NotRun => |_| Release::NotRun,
                })
                .handler(|run, _| async move {
                    match run {
                        1 => Err(Broken("connection refused")),
                        _ => Ok(numbered(200, run)),
                    }
                })
                .open()
                .await;
            let request = post(PATH).key(uuid(1));
            let clock = SystemClock::new();

            let first = app.try_send(&request).await;
            let retry = app.send(&request).await;

            assert_eq!(first.unwrap_err(), Broken("connection refused"));
            assert_eq!((retry.status, retry.run()), (200, 2), "{profile}");
            assert!(clock.now() < Duration::from_millis(10));
            assert_eq!(app.send(&request).await.run(), 2);
        }
    }
}

/// 15.
#[tokio::test(start_paused = true)]
async fn a_panic_leaves_no_key_in_progress() {
    for profile in Profile::ALL {
        for in_future in [false, true] {
            let app = App::under(profile)
                .handler(move |_, _| {
                    assert!(in_future, "on purpose, before there is a future");
                    async { panic!("on purpose, in the future") }
                })
                .open()
                .await;
            let request = post(PATH).key(uuid(1));
            let clock = SystemClock::new();

            let answers = [app.send(&request).await, app.send(&request).await];

            assert!(answers.iter().all(|it| it.status == 500), "{profile}");
            assert_eq!((clock.now(), app.engine.in_flight()), (Duration::ZERO, 0));
        }
    }
}

/// 15.
#[tokio::test]
async fn a_handler_that_returns_early_without_reading_its_body_is_done() {
    for profile in Profile::ALL {
        let app = App::under(profile)
            .handler(|run, request| {
                drop(request);
                async move { Ok(numbered(200, run)) }
            })
            .open()
            .await;
        let text = "x".repeat(500_000);
        let request = post(PATH)
            .key(uuid(1))
            .json(&format!(r#"{{"text":"{text}"}}"#));

        app.send(&request).await;
        let retry = app.send(&request).await;

        assert_eq!((retry.run(), app.runs()), (1, 1), "{profile}");
    }
}

/// 16.
#[tokio::test(start_paused = true)]
async fn a_large_response_nobody_has_read_yet_is_settled_all_the_same() {
    for profile in Profile::ALL {
        let app = App::under(profile)
            .but(|policy| policy.duplicate = Duplicate::Refuse)
            .answer(|_| {
                let chunks = (0..200).fold(Frames::default(), |frames, _| {
                    frames.data(vec![b'x'; 16 * 1024])
                });
                Response::new(chunks.body())
            })
            .open()
            .await;
        let request = post(PATH).key(uuid(1));

        let unread: Response<Body> = app.respond(&request).await;
        let retry = app.send(&request).await;
        let read = unread.into_body().collect().await.unwrap().to_bytes();

        assert_eq!(retry.status, 507, "{profile}");
        assert_eq!(read.len(), 200 * 16 * 1024);
        assert_eq!((app.runs(), app.engine.in_flight()), (1, 0));
    }
}

/// 16.
#[tokio::test(start_paused = true)]
async fn a_streamed_response_within_the_bound_replays_once_it_is_sent() {
    for profile in Profile::ALL {
        let app = App::under(profile)
            .but(|policy| policy.duplicate = Duplicate::Refuse)
            .answer(|_| Response::new(Frames::default().data("one ").data("two").body()))
            .open()
            .await;
        let request = post(PATH).key(uuid(1));

        let unread = app.respond(&request).await;
        let retry = app.send(&request).await;

        assert_eq!((retry.status, retry.text()), (200, "one two"), "{profile}");
        let read = unread.into_body().collect().await.unwrap().to_bytes();
        assert_eq!((&*read, app.runs()), (&b"one two"[..], 1));
    }
}

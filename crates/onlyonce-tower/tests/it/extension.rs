//! What a handler gets to know and to say: the `Execution` in its request's extensions, and the
//! response header by which an answer opts out of being stored.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use http::header::ETAG;
use http::{HeaderValue, Response, StatusCode};
use onlyonce_core::{self as core, Execution, MemoryStore, Profile, Store, StoreErrorKind};

use crate::support::{App, Broken, Builder, Faulty, PATH, ask, execution, numbered, post, uuid};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Shows every execution to `see` before it answers 200 with the run's number.
fn seeing(builder: Builder, see: impl Fn(&Execution) + Send + Sync + 'static) -> Builder {
    builder.handler(move |run, request| {
        see(&execution(&request));
        async move { Ok(numbered(200, run)) }
    })
}

#[tokio::test]
async fn a_handler_sees_its_key_its_lease_and_its_attempt() {
    for profile in Profile::ALL {
        let seen = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&seen);
        let app = seeing(App::under(profile), move |execution| {
            *kept.lock().unwrap() = Some(execution.clone());
        })
        .open()
        .await;

        app.send(&post(PATH).key(format!("\"{}\"", uuid(1)))).await;

        let execution = seen.lock().unwrap().take().unwrap();
        let lease = execution.lease().unwrap();
        assert_eq!(execution.key().expose(), uuid(1), "{profile}");
        assert_eq!((execution.attempt(), lease.attempt), (1, 1));
        assert!(!execution.is_lost());
        assert_eq!(app.record().await.token, lease.token);
        let operate = app.engine.store().operate().unwrap();
        assert!(operate.get(&lease.slot).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_handler_that_runs_again_after_a_lapse_knows_it() {
    let app = App::under(Profile::Standard)
        .handler(|run, request| {
            let attempt = execution(&request).attempt();
            async move {
                match run {
                    1 => Err(Broken("gone half-way")),
                    _ => Ok(Response::new(Body::from(attempt.to_string()))),
                }
            }
        })
        .open()
        .await;
    let request = post(PATH).key("k");

    assert!(app.try_send(&request).await.is_err());
    let second = app.send(&request).await;

    assert_eq!(second.text(), "2");
    assert_eq!(app.record().await.attempt, 2);
}

#[tokio::test]
async fn a_request_that_passes_through_has_no_execution() {
    let app = App::under(Profile::Standard)
        .handler(|_, request| {
            let is_there = request.extensions().get::<Execution>().is_some();
            async move { Ok(Response::new(Body::from(is_there.to_string()))) }
        })
        .open()
        .await;

    assert_eq!(app.send(&post(PATH)).await.text(), "false");
    assert_eq!(app.send(&ask("GET", PATH).key("k")).await.text(), "false");
    assert_eq!(app.send(&post(PATH).key("k")).await.text(), "true");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_runs_without_protection_has_no_lease() {
    let app = App::under(Profile::Formbridge008)
        .store(Faulty::always(StoreErrorKind::Unavailable))
        .handler(|_, request| {
            let execution = execution(&request);
            let told = format!("{} {}", execution.lease().is_some(), execution.attempt());
            async move { Ok(Response::new(Body::from(told))) }
        })
        .open()
        .await;

    assert_eq!(app.send(&post(PATH).key("k")).await.text(), "false 1");
}

#[tokio::test]
async fn an_answer_the_handler_does_not_want_stored_is_not() {
    for profile in Profile::ALL {
        let app = seeing(App::under(profile), Execution::do_not_store)
            .open()
            .await;
        let request = post(PATH).key(uuid(1));

        let answers = [app.send(&request).await, app.send(&request).await];

        assert_eq!(answers.map(|answer| answer.run()), [1, 2], "{profile}");
        assert!(app.records().await.is_empty(), "{profile}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_as_long_as_the_handler_says() {
    for profile in Profile::ALL {
        let app = seeing(App::under(profile), |execution| execution.keep_for(HOUR))
            .open()
            .await;
        let request = post(PATH).key(uuid(1));
        app.send(&request).await;

        tokio::time::advance(HOUR - Duration::from_millis(2)).await;
        assert_eq!(app.send(&request).await.run(), 1, "{profile}");
        tokio::time::advance(Duration::from_millis(2)).await;
        assert_eq!(app.send(&request).await.run(), 2, "{profile}");
    }
}

#[tokio::test]
async fn what_the_handler_made_is_named_in_the_record() {
    for profile in Profile::ALL {
        let app = seeing(App::under(profile), |execution| execution.made("order-7"))
            .open()
            .await;

        app.send(&post(PATH).key(uuid(1))).await;

        let record = app.record().await;
        let resource = record.response().unwrap().resource.as_deref();
        assert_eq!(resource, Some("order-7"), "{profile}");
    }
}

#[tokio::test]
async fn a_response_opts_out_by_a_header_that_no_client_sees() {
    for profile in Profile::ALL {
        for value in ["no", "No", "false", ""] {
            let app = App::under(profile)
                .answer(move |run| {
                    let mut response = numbered(200, run);
                    let opt_out = HeaderValue::from_static(value);
                    response.headers_mut().insert("idempotency-store", opt_out);
                    response
                })
                .open()
                .await;
            let request = post(PATH).key(uuid(1));

            let answers = [app.send(&request).await, app.send(&request).await];

            for (run, answer) in (1..).zip(answers) {
                assert_eq!(answer.run(), run, "{profile}: {value}");
                assert_eq!(answer.header("idempotency-store"), None, "{profile}");
            }
            assert!(app.records().await.is_empty(), "{profile}: {value}");
        }
    }
}

#[tokio::test]
async fn the_opt_out_header_is_stripped_from_stored_answers_and_replays_too() {
    for profile in Profile::ALL {
        let app = App::under(profile)
            .answer(|run| {
                let mut response = numbered(200, run);
                let yes = HeaderValue::from_static("yes");
                response.headers_mut().insert("idempotency-store", yes);
                response
            })
            .open()
            .await;
        let request = post(PATH).key(uuid(1));

        for _ in 0..2 {
            let answer = app.send(&request).await;

            assert_eq!(answer.run(), 1, "{profile}");
            assert_eq!(answer.header("idempotency-store"), None, "{profile}");
        }
    }
}

#[tokio::test]
async fn the_opt_out_header_is_stripped_where_there_was_no_key_either() {
    for profile in Profile::ALL {
        let app = App::under(profile)
            .answer(|run| {
                let mut response = numbered(200, run);
                let no = HeaderValue::from_static("no");
                response.headers_mut().insert("idempotency-store", no);
                response
            })
            .open()
            .await;

        for request in [ask("GET", PATH), post(PATH)] {
            let answer = app.send(&request).await;

            assert_eq!(answer.header("idempotency-store"), None, "{profile}");
        }
    }
}

/// A handler that stores `stored` by itself and then answers `said`.
async fn committing(profile: Profile, stored: core::Response, said: fn() -> Response<Body>) -> App {
    let store = Arc::new(MemoryStore::new());
    let (own, stored) = (Arc::clone(&store), Arc::new(stored));
    App::under(profile)
        .store(store)
        .handler(move |_, request| {
            let execution = execution(&request);
            let (store, stored) = (Arc::clone(&own), Arc::clone(&stored));
            async move {
                let lease = execution.lease().expect("a lease");
                let completed = store.complete(lease, &stored, HOUR).await;
                completed.expect("the memory store completes");
                Ok(said())
            }
        })
        .open()
        .await
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_completes_in_its_own_transaction_answers_with_what_it_stored() {
    for profile in Profile::ALL {
        let mut stored = core::Response::new(StatusCode::CREATED, "stored");
        stored
            .headers
            .insert(ETAG, HeaderValue::from_static("\"s\""));
        let app = committing(profile, stored, || numbered(200, 1)).await;
        let request = post(PATH).key(uuid(1));

        let first = app.send(&request).await;
        let replay = app.send(&request).await;

        assert_eq!((first.status, first.text()), (201, "stored"), "{profile}");
        assert_eq!(replay.text(), "stored", "{profile}");
        for answer in [first, replay] {
            assert_eq!(answer.header("etag"), Some("\"s\""), "{profile}");
        }
        tokio::time::advance(HOUR).await;
        app.send(&request).await;
        assert_eq!(app.runs(), 2, "{profile}");
    }
}

#[tokio::test]
async fn headers_too_are_those_of_the_stored_answer() {
    for profile in Profile::ALL {
        let mut stored = core::Response::new(StatusCode::OK, "same");
        stored
            .headers
            .insert(ETAG, HeaderValue::from_static("\"stored\""));
        let app = committing(profile, stored, || {
            let mut said = Response::new(Body::from("same"));
            let other = HeaderValue::from_static("\"said\"");
            said.headers_mut().insert(ETAG, other);
            said
        })
        .await;
        let request = post(PATH).key(uuid(1));

        let first = app.send(&request).await;
        let replay = app.send(&request).await;

        assert_eq!(replay.header("etag"), Some("\"stored\""), "{profile}");
        assert_eq!(first.header("etag"), Some("\"stored\""), "{profile}");
    }
}

#[tokio::test]
async fn an_answer_too_large_to_store_does_not_stand_in_for_the_stored_one() {
    for profile in Profile::ALL {
        let stored = core::Response::new(StatusCode::OK, "stored");
        let app = committing(profile, stored, || {
            Response::new(vec![b'x'; 2 << 20].into())
        })
        .await;
        let request = post(PATH).key(uuid(1));

        let first = app.send(&request).await;
        let replay = app.send(&request).await;

        assert_eq!((replay.status, replay.text()), (200, "stored"), "{profile}");
        assert_eq!(first.body.len(), "stored".len(), "{profile}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_was_overtaken_can_know_it_and_its_caller_gets_the_stored_answer() {
    let store = Arc::new(MemoryStore::new());
    let way = Faulty::to(&store);
    let cut_off = Arc::clone(&way);
    let slow = App::under(Profile::Standard)
        .but(|policy| policy.execution_max = 10 * HOUR)
        .store(way)
        .handler(move |_, request| {
            let (execution, way) = (execution(&request), Arc::clone(&cut_off));
            async move {
                way.fail(Some(StoreErrorKind::Unavailable));
                tokio::time::sleep(HOUR).await;
                way.fail(None);
                tokio::time::sleep(HOUR).await;
                assert!(execution.is_lost());
                Ok(Response::new(Body::from("too late")))
            }
        })
        .open()
        .await;
    let other = App::under(Profile::Standard).store(store).open().await;
    let request = post(PATH).key("k");
    let overtaken = slow.spawn(&request);
    slow.until(|event| matches!(event, core::Event::Claimed { .. }))
        .await;
    tokio::time::advance(Duration::from_secs(60)).await;

    let second = other.send(&request).await;

    assert_eq!((second.status, second.run()), (200, 1));
    let overtaken = overtaken.await.unwrap();
    assert_eq!((overtaken.status, overtaken.text()), (200, r#"{"run":1}"#));
    assert_eq!((slow.runs(), other.runs()), (1, 1));
}

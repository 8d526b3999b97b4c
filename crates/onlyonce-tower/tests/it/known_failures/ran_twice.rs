//! What ran twice elsewhere, and must run once.

use std::sync::Arc;
use std::time::Duration;

use http::header::LOCATION;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use onlyonce_core::{self as core, Event, Execution, MemoryStore, Profile, Store};
use onlyonce_tower::ScopePart;

use crate::support::{App, Broken, Frames, Gate, PATH, execution, numbered, post, uuid};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// 6.
#[tokio::test]
async fn an_operation_whose_response_is_too_large_to_store_does_not_run_again() {
    let app = App::under(Profile::Standard)
        .answer(|_| {
            let megabytes = (0..3).fold(Frames::default(), |frames, _| {
                frames.data(vec![b'x'; 1 << 20])
            });
            Response::new(megabytes.body())
        })
        .open()
        .await;
    let request = post(PATH).key("large");

    let first = app.send(&request).await;
    let retries = [app.send(&request).await, app.send(&request).await];

    assert_eq!((first.status, first.body.len()), (200, 3 << 20));
    for retry in retries {
        assert_eq!(retry.status, 507);
        assert_eq!(retry.header("idempotent-replayed"), Some("true"));
        assert_eq!(
            retry.json()["type"],
            "urn:onlyonce:problem:response-too-large"
        );
    }
    assert_eq!(app.runs(), 1);
}

/// Completes the record as a handler does inside its own transaction.
async fn commit(store: &MemoryStore, execution: &Execution) {
    let lease = execution.lease().expect("a lease");
    let mut made = core::Response::new(StatusCode::CREATED, r#"{"order":7}"#);
    let location = HeaderValue::from_static("/orders/7");
    made.headers.insert(LOCATION, location);
    let completed = store.complete(lease, &Arc::new(made), DAY).await;
    completed.expect("the memory store completes");
}

/// 7.
#[tokio::test]
async fn a_record_committed_by_the_handler_outlives_the_handler_s_error() {
    for profile in Profile::ALL {
        let store = Arc::new(MemoryStore::new());
        let own = Arc::clone(&store);
        let app = App::under(profile)
            .store(store)
            .handler(move |_, request| {
                let (store, execution) = (Arc::clone(&own), execution(&request));
                async move {
                    commit(&store, &execution).await;
                    Err(Broken("lost after the commit"))
                }
            })
            .open()
            .await;
        let request = post(PATH).key(uuid(1));

        let first = app.send(&request).await;
        let retry = app.send(&request).await;

        for answer in [first, retry] {
            assert!(matches!(answer.status, 200 | 201), "{profile}");
            assert_eq!(answer.header("location"), Some("/orders/7"));
            assert!(answer.text().starts_with(r#"{"order":7"#));
        }
        assert_eq!(app.runs(), 1, "{profile}");
    }
}

/// 7. The caller hears what was committed: a 500 would send it away to try under a new key.
#[tokio::test]
async fn a_handler_that_panics_or_fails_after_its_commit_answers_with_what_it_committed() {
    for profile in Profile::ALL {
        for panics in [true, false] {
            let store = Arc::new(MemoryStore::new());
            let own = Arc::clone(&store);
            let app = App::under(profile)
                .store(store)
                .handler(move |run, request| {
                    let (store, execution) = (Arc::clone(&own), execution(&request));
                    async move {
                        commit(&store, &execution).await;
                        assert!(!panics, "on purpose, after the commit");
                        Ok(numbered(503, run))
                    }
                })
                .open()
                .await;
            let request = post(PATH).key(uuid(1));

            let first = app.send(&request).await;
            let retry = app.send(&request).await;

            assert_eq!(app.runs(), 1, "{profile}");
            assert!(matches!(retry.status, 200 | 201), "{profile}");
            assert_eq!(retry.header("location"), Some("/orders/7"));
            assert_eq!(first.status, 201, "{profile}, panics: {panics}");
            assert_eq!(first.text(), r#"{"order":7}"#, "{profile}");
        }
    }
}

/// 8.
#[tokio::test]
async fn quoted_and_bare_spellings_of_a_key_reach_the_same_record() {
    let app = App::under(Profile::Standard).open().await;

    let bare = app.send(&post(PATH).key("abc")).await;
    let quoted = app.send(&post(PATH).key("\"abc\"")).await;

    assert_eq!((bare.run(), quoted.run(), app.runs()), (1, 1, 1));
    assert_eq!(bare.header("idempotency-key"), Some("abc"));
    assert_eq!(quoted.header("idempotency-key"), Some("\"abc\""));
}

/// 10.
#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_does_not_stop_the_handler() {
    for profile in Profile::ALL {
        let gate = Gate::new();
        let app = App::under(profile).gate(&gate).open().await;
        let request = post(PATH).key(uuid(1));
        {
            let waiting = app.send(&request);
            tokio::pin!(waiting);
            tokio::select! {
                biased;
                answer = &mut waiting => panic!("answered before it ran: {answer:?}"),
                () = gate.entered() => {}
            }
        }

        gate.open();
        app.until(|event| matches!(event, Event::Stored { .. }))
            .await;
        let retry = app.send(&request).await;

        assert_eq!((retry.run(), app.runs()), (1, 1), "{profile}");
    }
}

/// 10. Wherever the client goes away, the retry gets one answer of one run.
#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_at_any_moment_leaves_nothing_half_done() {
    for polls in 0..20 {
        let app = App::under(Profile::Standard)
            .handler(|run, _| async move {
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                Ok(numbered(201, run))
            })
            .open()
            .await;
        let request = post(PATH).key("k");
        {
            let waiting = app.send(&request);
            tokio::pin!(waiting);
            for _ in 0..polls {
                tokio::select! {
                    biased;
                    _ = &mut waiting => break,
                    () = tokio::task::yield_now() => {}
                }
            }
        }

        let retry = app.send(&request).await;

        assert_eq!((retry.status, retry.run()), (201, 1), "{polls}");
        assert_eq!(app.runs(), 1, "{polls}");
    }
}

fn trusted(name: &'static str) -> ScopePart {
    ScopePart::Header {
        name: HeaderName::from_static(name),
        trusted: true,
    }
}

/// 11.
#[tokio::test]
async fn parts_of_a_scope_never_run_into_each_other() {
    let app = App::under(Profile::Standard)
        .scope([trusted("x-tenant"), trusted("x-user")])
        .open()
        .await;
    let tuples = [
        ("a:b", "c", "k"),
        ("a", "b:c", "k"),
        ("a", "b", "c:k"),
        ("ab", "c", "k"),
        ("a", "bc", "k"),
        ("a", "b", "ck"),
        ("a:b:c", "", "k"),
        ("", "a:b:c", "k"),
        ("a,b", "c", "k"),
        ("a b", "c", "k"),
    ];

    for (tenant, user, key) in tuples {
        let request = post(PATH)
            .header("x-tenant", tenant)
            .header("x-user", user)
            .key(key);
        app.send(&request).await;
    }

    assert_eq!(app.runs(), tuples.len());
}

/// 11.
#[tokio::test]
async fn an_absent_part_of_a_scope_is_not_an_empty_one() {
    let app = App::under(Profile::Standard)
        .scope([trusted("x-tenant"), trusted("x-user")])
        .open()
        .await;
    let request = post(PATH).key("k");

    app.send(&request).await;
    app.send(&request.clone().header("x-tenant", "")).await;
    app.send(&request.clone().header("x-user", "")).await;
    app.send(&request.header("x-tenant", "").header("x-user", ""))
        .await;

    assert_eq!(app.runs(), 4);
}

//! Rows "store down" and "too large to store"; and the handler that does not come back.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Response};
use onlyonce_core::{Clock, Event, MemoryStore, OnLapse, StoreErrorKind, SystemClock};

use super::{CONTRACTS, Refused, StoreDown};
use crate::support::{App, Faulty, Gate, PATH, post, uuid};

const MEBIBYTE: usize = 1024 * 1024;

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_gets_a_503_or_a_run_with_a_warning() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile)
            .store(Faulty::always(StoreErrorKind::Unavailable))
            .open()
            .await;
        let request = post(PATH).key(uuid(1));

        let answer = app.send(&request).await;

        let unprotected = app.events.count(|event| *event == Event::Unprotected);
        match contract.store_down {
            StoreDown::Refused(refused) => {
                contract.assert_refused(&answer, refused);
                assert_eq!((app.runs(), unprotected), (0, 0), "{}", contract.profile);
            }
            StoreDown::Runs => {
                assert_eq!((answer.status, answer.run()), (200, 1));
                assert_eq!((app.runs(), unprotected), (1, 1));
                assert_eq!(answer.header("idempotency-key"), Some(&*uuid(1)));
                assert_eq!(answer.header("x-idempotent-expires"), None);
            }
        }
        let failed = |event: &Event| matches!(event, Event::StoreFailed { .. });
        assert!(app.events.count(failed) > 0, "{}", contract.profile);
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_key_runs_once_the_store_is_back() {
    for contract in &CONTRACTS {
        let StoreDown::Refused(refused) = contract.store_down else {
            continue;
        };
        let way = Faulty::to(&Arc::new(MemoryStore::new()));
        let app = App::under(contract.profile).store(way.clone()).open().await;
        let request = post(PATH).key(uuid(1));
        way.fail(Some(StoreErrorKind::Unavailable));
        contract.assert_refused(&app.send(&request).await, refused);

        way.fail(None);
        tokio::time::advance(Duration::from_secs(5)).await;

        assert_eq!(app.send(&request).await.run(), 1, "{}", contract.profile);
        assert_eq!(app.send(&request).await.run(), 1, "{}", contract.profile);
        assert_eq!(app.runs(), 1);
    }
}

#[tokio::test]
async fn a_response_over_the_bound_is_sent_whole_and_the_retry_gets_a_marker() {
    for contract in &CONTRACTS {
        for bytes in [MEBIBYTE, MEBIBYTE + 1, 3 * MEBIBYTE] {
            let app = App::under(contract.profile)
                .answer(move |_| Response::new(Body::from(vec![b'x'; bytes])))
                .open()
                .await;
            let request = post(PATH).key(uuid(1));

            let first = app.send(&request).await;
            let retry = app.send(&request).await;

            assert_eq!((first.status, first.body.len()), (200, bytes));
            assert_eq!(app.runs(), 1, "{}: {bytes}", contract.profile);
            if bytes <= MEBIBYTE {
                assert_eq!((retry.status, retry.body.len()), (200, bytes));
            } else if contract.profile.name() == "broker" {
                // Marked in its body, like every replay here.
                let body = retry.json();
                assert_eq!((retry.status, &body["success"]), (507, &false.into()));
                assert_eq!(body["error"]["code"], contract.response_too_large.code);
            } else {
                contract.assert_worded(&retry, contract.response_too_large);
            }
        }
    }
}

#[tokio::test]
async fn response_headers_over_their_bound_are_too_large_as_well() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile)
            .answer(|_| {
                let mut response = Response::new(Body::from("small"));
                let large = HeaderValue::try_from("x".repeat(65 * 1024)).unwrap();
                response.headers_mut().insert("x-large", large);
                response
            })
            .open()
            .await;
        let request = post(PATH).key(uuid(1));

        let first = app.send(&request).await;
        let retry = app.send(&request).await;

        assert_eq!(first.header("x-large").unwrap().len(), 65 * 1024);
        assert_eq!((first.text(), retry.status), ("small", 507));
        assert_eq!(app.runs(), 1, "{}", contract.profile);
    }
}

#[tokio::test]
async fn a_request_over_the_bound_is_refused_and_nothing_runs() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;
        let sized = |n: u64, bytes: usize| {
            let text = "x".repeat(bytes - r#"{"text":""}"#.len());
            post(PATH)
                .key(uuid(n))
                .json(&format!(r#"{{"text":"{text}"}}"#))
        };

        let fits = app.send(&sized(1, MEBIBYTE)).await;
        let over = app.send(&sized(2, MEBIBYTE + 1)).await;

        assert_eq!((fits.status, app.runs()), (200, 1), "{}", contract.profile);
        contract.assert_refused(&over, contract.request_too_large);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_past_its_30_seconds_ends_unknown() {
    for contract in &CONTRACTS {
        for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
            let gate = Gate::new();
            let app = App::under(contract.profile)
                .but(|policy| policy.on_lapse = on_lapse)
                .gate(&gate)
                .open()
                .await;
            let request = post(PATH).key(uuid(1));
            let clock = SystemClock::new();

            let first = app.send(&request).await;

            let took = clock.now().as_secs();
            let told = match on_lapse {
                OnLapse::Rerun => contract.timed_out,
                // A retry would only hear that an operator must resolve it.
                OnLapse::Hold => Refused {
                    retryable: false,
                    retry_after: None,
                    ..contract.timed_out
                },
            };
            contract.assert_refused(&first, told);
            assert_eq!(took, 30, "{}", contract.profile);
            gate.open();
            let retry = app.send(&request).await;
            match on_lapse {
                OnLapse::Rerun => assert_eq!((retry.status, retry.run()), (200, 2)),
                OnLapse::Hold => contract.assert_refused(&retry, contract.outcome_unknown),
            }
        }
    }
}

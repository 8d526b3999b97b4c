//! Rows "same key, other payload" and "outcome unknown".

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::operate::{Filter, Page, Resolved};
use onlyonce_core::{Event, MemoryStore, OnLapse, Response, StoreErrorKind};

use super::{CONTRACTS, OtherPayload};
use crate::support::{App, Broken, Faulty, Gate, PATH, ask, post, uuid};

const HOUR: Duration = Duration::from_secs(60 * 60);

#[tokio::test]
async fn another_payload_under_the_same_key_gets_what_the_profile_says() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;
        let request = post(PATH).key(uuid(1));
        app.send(&request).await;

        let other = app.send(&request.clone().json(r#"{"amount":6}"#)).await;

        match contract.mismatch {
            OtherPayload::Refused(refused) => {
                contract.assert_refused(&other, refused);
                let echo = other.header("idempotency-key").map(str::to_owned);
                let promised = contract.echoes_key_on_refusal.then(|| uuid(1));
                assert_eq!(echo, promised, "{}", contract.profile);
            }
            OtherPayload::Replayed => assert_eq!((other.status, other.run()), (200, 1)),
        }
        let again = app.send(&request).await;
        assert_eq!((again.run(), app.runs()), (1, 1), "{}", contract.profile);
    }
}

#[tokio::test(start_paused = true)]
async fn another_payload_is_refused_at_once_while_the_original_runs() {
    for contract in &CONTRACTS {
        let OtherPayload::Refused(refused) = contract.mismatch else {
            continue;
        };
        let gate = Gate::new();
        let app = App::under(contract.profile).gate(&gate).open().await;
        let request = post(PATH).key(uuid(1));
        let original = app.spawn(&request);
        gate.entered().await;

        let other = app.send(&request.clone().json(r#"{"amount":6}"#)).await;

        contract.assert_refused(&other, refused);
        let waited = |event: &Event| matches!(event, Event::Attached { .. });
        assert_eq!(app.events.count(waited), 0, "{}", contract.profile);
        gate.open();
        assert_eq!(original.await.unwrap().run(), 1);
    }
}

#[tokio::test]
async fn another_method_on_the_same_path_is_another_payload() {
    for contract in &CONTRACTS {
        for method in contract.covered.iter().filter(|method| **method != "POST") {
            let app = App::under(contract.profile).open().await;
            app.send(&post(PATH).key(uuid(1))).await;

            let other = app.send(&ask(method, PATH).key(uuid(1))).await;

            contract.assert_refused(&other, contract.other_operation);
            assert_eq!(app.runs(), 1, "{}: {method}", contract.profile);
        }
    }
}

#[tokio::test]
async fn no_profile_replays_across_paths() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;
        app.send(&post("/orders/1").key(uuid(1))).await;

        let other = app.send(&post("/orders/2").key(uuid(1))).await;

        if contract.route_in_scope {
            assert_eq!((other.run(), app.runs()), (2, 2), "{}", contract.profile);
            assert!(!other.text().contains("idempotent"));
        } else {
            contract.assert_refused(&other, contract.other_operation);
        }
    }
}

/// A pattern names the operation; the path addresses the record. Two intakes, orders or forms of
/// one route are as far apart as two routes.
#[tokio::test]
async fn the_paths_of_one_route_are_as_far_apart_as_two_routes() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile)
            .route("/orders/{order}")
            .open()
            .await;
        app.send(&post("/orders/1").key(uuid(1))).await;

        let other = app.send(&post("/orders/2").key(uuid(1))).await;

        if contract.route_in_scope {
            assert_eq!((other.run(), app.runs()), (2, 2), "{}", contract.profile);
        } else {
            contract.assert_refused(&other, contract.other_operation);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_held_until_an_operator_resolves_it() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile)
            .but(|policy| policy.on_lapse = OnLapse::Hold)
            .handler(|_, _| async { Err(Broken("connection reset half-way")) })
            .open()
            .await;
        let request = post(PATH).key(uuid(1));
        let first = app.try_send(&request).await;
        assert_eq!(first.unwrap_err(), Broken("connection reset half-way"));

        for _ in 0..3 {
            let retry = app.send(&request).await;
            contract.assert_refused(&retry, contract.outcome_unknown);
            tokio::time::advance(7 * HOUR).await;
        }
        assert_eq!(app.runs(), 1, "{}", contract.profile);

        let operate = app.engine.store().operate().unwrap();
        let page = Page {
            after: None,
            records_max: 1,
        };
        let (slot, _) = operate.list(&Filter::default(), &page).await.unwrap()[0];
        let answer = Arc::new(Response::new(StatusCode::OK, r#"{"resolved":true}"#));
        let resolved = operate.resolve(&slot, &answer, 24 * HOUR).await.unwrap();
        assert!(matches!(resolved, Resolved::Stored));
        let retry = app.send(&request).await;
        assert_eq!((retry.status, app.runs()), (200, 1), "{}", contract.profile);
        assert_eq!(retry.text(), r#"{"resolved":true}"#);
    }
}

#[tokio::test(start_paused = true)]
async fn a_crashed_holder_under_hold_leaves_the_outcome_unknown() {
    for contract in &CONTRACTS {
        let (store, gate) = (Arc::new(MemoryStore::new()), Gate::new());
        let way = Faulty::to(&store);
        let crashed = App::under(contract.profile)
            .but(|policy| policy.on_lapse = OnLapse::Hold)
            .store(way.clone())
            .gate(&gate)
            .open()
            .await;
        let app = App::under(contract.profile).store(store).open().await;
        let request = post(PATH).key(uuid(1));
        let _lost = crashed.spawn(&request);
        gate.entered().await;
        way.fail(Some(StoreErrorKind::Unavailable));
        tokio::time::advance(Duration::from_secs(31)).await;

        let retry = app.send(&request).await;

        contract.assert_refused(&retry, contract.outcome_unknown);
        assert_eq!(app.runs(), 0, "{}", contract.profile);
    }
}

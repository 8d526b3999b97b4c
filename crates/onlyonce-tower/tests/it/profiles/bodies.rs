//! Rows "key in the body" and "what is compared", of the contracts that have them.

use super::CONTRACTS;
use crate::support::{App, Ask, PATH, post, uuid};

/// A body with `key` where the contract has its key, and this amount.
fn keyed(place: &str, key: &str, amount: &str) -> Ask {
    let name = place.trim_start_matches('/');
    post(PATH).json(&format!(r#"{{"{name}":{key},"amount":{amount}}}"#))
}

fn quoted(n: u64) -> String {
    format!("\"{}\"", uuid(n))
}

/// The contracts whose key is in the body, and where.
fn in_body() -> impl Iterator<Item = (&'static super::Contract, String)> {
    CONTRACTS.iter().filter_map(|contract| {
        let place = contract.profile.policy().http.key_member?;
        Some((contract, place.to_string()))
    })
}

#[test]
fn two_contracts_have_their_key_in_the_body() {
    let names: Vec<_> = in_body()
        .map(|(it, place)| format!("{}{place}", it.profile))
        .collect();

    assert_eq!(names, ["aip-155/request_id", "square/idempotency_key"]);
}

#[tokio::test]
async fn a_key_in_the_body_replays_and_another_payload_is_refused() {
    for (contract, place) in in_body() {
        let app = App::under(contract.profile).open().await;

        let first = app.send(&keyed(&place, &quoted(1), "5")).await;
        let replay = app.send(&keyed(&place, &quoted(1), "5")).await;
        let other = app.send(&keyed(&place, &quoted(1), "6")).await;
        let another_key = app.send(&keyed(&place, &quoted(2), "5")).await;

        let profile = contract.profile;
        assert_eq!((first.run(), replay.run()), (1, 1), "{profile}");
        let super::OtherPayload::Refused(refused) = contract.mismatch else {
            panic!("{profile} compares payloads");
        };
        contract.assert_refused(&other, refused);
        assert_eq!(another_key.run(), 2, "{profile}");
    }
}

#[tokio::test]
async fn a_bad_key_in_the_body_is_refused_and_a_missing_one_passes() {
    for (contract, place) in in_body() {
        let app = App::under(contract.profile).open().await;
        let name = place.trim_start_matches('/');
        let long = format!("\"{}\"", "k".repeat(256));
        let twice = post(PATH).json(&format!(r#"{{"{name}":"a","{name}":"a"}}"#));

        let bad = ["\"\"", "7", "null", "[\"a\"]", "\"a\\tb\"", &long];
        let bad = bad.map(|key| keyed(&place, key, "5"));
        for ask in bad.iter().chain([&twice]) {
            contract.assert_refused(&app.send(ask).await, contract.bad_key);
        }
        assert_eq!(app.runs(), 0, "{}", contract.profile);

        let passes = [app.send(&post(PATH)).await, app.send(&post(PATH)).await];
        assert_eq!(passes.map(|it| it.run()), [1, 2], "{}", contract.profile);
        assert!(app.records().await.is_empty());
    }
}

/// A header of another kind, perhaps of a client that sends a new one with every attempt, must not
/// make a second request of a retry.
#[tokio::test]
async fn the_key_in_the_body_goes_before_one_in_the_header() {
    for (contract, place) in in_body() {
        let app = App::under(contract.profile).open().await;
        let ask = keyed(&place, &quoted(1), "5");

        let first = app.send(&ask.clone().key(uuid(7))).await;
        let retry = app.send(&ask.clone().key(uuid(8))).await;
        let by_header = app.send(&post(PATH).key(uuid(1))).await;

        let runs = [first.run(), retry.run(), by_header.run()];
        // In the header alone it is the same key, and the same request.
        assert_eq!(runs, [1, 1, 1], "{}", contract.profile);
    }
}

#[tokio::test]
async fn numbers_are_compared_by_value_only_where_the_contract_says_so() {
    for contract in &CONTRACTS {
        let super::OtherPayload::Refused(refused) = contract.mismatch else {
            continue;
        };
        let app = App::under(contract.profile).open().await;
        let ask = post(PATH).key(uuid(1));
        app.send(&ask.clone().json(r#"{"amount":5,"to":null}"#))
            .await;

        let respelled = app
            .send(&ask.clone().json(r#"{"to":null,"amount":5.0}"#))
            .await;
        let absent = app.send(&ask.json(r#"{"amount":5}"#)).await;

        if contract.profile.name() == "acp" {
            assert_eq!(respelled.run(), 1);
        } else {
            contract.assert_refused(&respelled, refused);
        }
        contract.assert_refused(&absent, refused);
        assert_eq!(app.runs(), 1, "{}", contract.profile);
    }
}

/// "Headers are excluded", and the path is in the scope.
#[tokio::test]
async fn acp_compares_nothing_but_the_body() {
    let contract = CONTRACTS.iter().find(|it| it.profile.name() == "acp");
    let app = App::under(contract.expect("a contract").profile)
        .open()
        .await;
    let ask = post("/checkout_sessions").key(uuid(1));
    app.send(&ask).await;

    let with_charset = ask
        .clone()
        .body("application/json; charset=utf-8", r#"{"amount":5}"#);
    let retry = app
        .send(&with_charset.header("api-version", "2026-01-16"))
        .await;
    let elsewhere = app.send(&ask.to("/checkout_sessions/7")).await;

    assert_eq!((retry.run(), elsewhere.run()), (1, 2));
}

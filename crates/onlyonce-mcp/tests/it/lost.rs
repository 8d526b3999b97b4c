//! Servers that go, clients that go, and clients that change their mind.

use std::sync::Arc;

use http::StatusCode;
use onlyonce_core::operate::{Filter, Page};
use onlyonce_core::{MemoryStore, OnLapse, Response, Store};
use onlyonce_mcp::{Ended, OnCancel, Rules};
use serde_json::json;

use crate::support::{
    KEY, call, engine, is_replayed, on, order, refused, rules, said, shop, start, text,
};

#[tokio::test]
async fn a_server_that_goes_without_a_word_leaves_the_outcome_unknown_and_is_not_asked_again() {
    let engine = engine().await;
    let mut first = shop(&engine, rules()).await;
    first.client.say(order(1, KEY, "tea")).await;
    assert_eq!(first.server.hear().await["method"], "tools/call");
    drop(first.server);

    let lost = first.client.hear().await;
    let ended = first.running.await.unwrap().unwrap();
    let mut next = shop(&engine, rules()).await;
    next.client.say(order(2, KEY, "tea")).await;
    let retry = next.client.hear().await;

    assert_eq!(ended, Ended::Server);
    for answer in [&lost, &retry] {
        assert_eq!(refused(answer), "outcome-unknown");
        let said = said(answer);
        assert!(
            said.contains("not known whether this call took effect"),
            "{said}"
        );
        assert!(
            said.contains("find out") && said.contains("ask the user"),
            "{said}"
        );
    }
    next.server_heard_no_more().await;
}

#[tokio::test]
async fn a_call_with_an_unknown_outcome_runs_again_where_the_rules_say_so() {
    let engine = engine().await;
    let rerun = || Rules {
        on_lapse: OnLapse::Rerun,
        ..rules()
    };
    let mut first = shop(&engine, rerun()).await;
    first.client.say(order(1, KEY, "tea")).await;
    first.server.hear().await;
    drop(first.server);
    first.client.hear().await;

    let mut next = shop(&engine, rerun()).await;
    next.client.say(order(2, KEY, "tea")).await;
    next.serve("order", text("order 17")).await;

    assert_eq!(said(&next.client.hear().await), "order 17");
}

#[tokio::test]
async fn an_operator_s_word_is_what_a_retry_gets() {
    let store = Arc::new(MemoryStore::new());
    let engine = on(&store).await;
    let mut first = shop(&engine, rules()).await;
    first.client.say(order(1, KEY, "tea")).await;
    first.server.hear().await;
    drop(first.server);
    first.client.hear().await;

    let operate = store.operate().unwrap();
    let page = Page {
        after: None,
        records_max: 2,
    };
    let records = operate.list(&Filter::default(), &page).await.unwrap();
    let answer = Response::new(StatusCode::OK, "order 17 was placed");
    operate
        .resolve(&records[0].0, &Arc::new(answer), rules().keep_for)
        .await
        .unwrap();
    let mut next = shop(&engine, rules()).await;
    next.client.say(order(2, KEY, "tea")).await;
    let retry = next.client.hear().await;

    assert_eq!(records.len(), 1);
    assert_eq!(
        (said(&retry), &retry["result"]["isError"]),
        ("order 17 was placed", &json!(false))
    );
}

#[tokio::test]
async fn where_a_cancellation_is_no_more_than_that_nobody_waits_the_result_is_found_later() {
    let rules = Rules {
        on_cancel: OnCancel::Leave,
        ..rules()
    };
    let mut shop = shop(&engine().await, rules).await;
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});

    shop.client.say(order(1, KEY, "tea")).await;
    let asked = shop.server.hear().await;
    shop.client.say(&cancelled).await;
    shop.server_heard_no_more().await;
    shop.server
        .say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": text("order 17")}))
        .await;
    shop.client_heard_no_more().await;
    shop.client.say(order(2, KEY, "tea")).await;
    let retry = shop.client.hear().await;

    assert_eq!((said(&retry), is_replayed(&retry)), ("order 17", true));
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_cancelled_at_the_server_and_what_it_answers_counts() {
    let mut shop = shop(&engine().await, rules()).await;
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});

    shop.client.say(order(1, KEY, "tea")).await;
    let asked = shop.server.hear().await;
    shop.client.say(&cancelled).await;
    let told = shop.server.hear().await;
    shop.server
        .say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": text("order 17")}))
        .await;
    shop.client_heard_no_more().await;
    shop.client.say(order(2, KEY, "tea")).await;
    let retry = shop.client.hear().await;

    assert_eq!(told["method"], "notifications/cancelled", "{told}");
    assert_eq!(told["params"]["requestId"], asked["id"], "{told}");
    assert_eq!((said(&retry), is_replayed(&retry)), ("order 17", true));
    shop.server_heard_no_more().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_and_not_answered_is_in_doubt() {
    let mut shop = shop(&engine().await, rules()).await;
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});

    shop.client.say(order(1, KEY, "tea")).await;
    shop.server.hear().await;
    shop.client.say(&cancelled).await;
    assert_eq!(
        shop.server.hear().await["method"],
        "notifications/cancelled"
    );
    shop.client.say(order(2, KEY, "tea")).await;
    let retry = shop.client.hear().await;

    assert_eq!(refused(&retry), "outcome-unknown", "{retry}");
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_cancelled_call_without_a_key_is_cancelled_at_the_server() {
    let mut shop = shop(&engine().await, rules()).await;
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});

    shop.client.say(call(1, json!({"item": "tea"}))).await;
    shop.server.hear().await;
    shop.client.say(&cancelled).await;

    assert_eq!(shop.server.hear().await, cancelled);
}

#[tokio::test]
async fn a_client_that_hangs_up_does_not_lose_the_result() {
    let store = Arc::new(MemoryStore::new());
    let mut first = shop(&on(&store).await, rules()).await;
    first.client.say(order(1, KEY, "tea")).await;
    let asked = first.server.hear().await;
    drop(first.client);

    first
        .server
        .say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": text("order 17")}))
        .await;
    let closed = first.server.line().await;
    drop(first.server);
    let ended = first.running.await.unwrap().unwrap();
    let mut next = shop(&on(&store).await, rules()).await;
    next.client.say(order(1, KEY, "tea")).await;
    let retry = next.client.hear().await;

    assert_eq!((closed, ended), (None, Ended::Client));
    assert_eq!((said(&retry), is_replayed(&retry)), ("order 17", true));
    next.server_heard_no_more().await;
}

#[tokio::test]
async fn a_client_that_says_no_more_still_hears_its_answers() {
    let mut shop = shop(&engine().await, rules()).await;
    shop.client.say(order(1, KEY, "tea")).await;
    let asked = shop.server.hear().await;
    shop.client.hang_up().await;

    shop.server
        .say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": text("order 17")}))
        .await;

    assert_eq!(said(&shop.client.hear().await), "order 17");
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_is_told_to_stop_does_not_wait_for_a_tool_for_ever() {
    let engine = engine().await;
    let mut shop = shop(&engine, rules()).await;
    shop.client.say(order(1, KEY, "tea")).await;
    shop.server.hear().await;

    shop.stop.send(()).unwrap();
    let closed = shop.server.line().await;
    let lost = shop.client.hear().await;

    assert_eq!(closed, None);
    assert_eq!(refused(&lost), "outcome-unknown");
    drop(shop.server);
    assert_eq!(shop.running.await.unwrap().unwrap(), Ended::Client);
}

#[tokio::test]
async fn both_sides_are_closed_when_one_is() {
    let mut idle = start(&engine().await, rules());
    idle.client.hang_up().await;
    assert_eq!(idle.server.line().await, None);
    drop(idle.server);
    assert_eq!(idle.running.await.unwrap().unwrap(), Ended::Client);

    let mut idle = start(&engine().await, rules());
    drop(idle.server);
    assert_eq!(idle.client.line().await, None);
    assert_eq!(idle.running.await.unwrap().unwrap(), Ended::Server);
}

//! Calls whose answers were lost, and whose clients never come back: settled by what the server says of
//! them, without a retry.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Filter, Page, StateName};
use onlyonce_core::{MemoryStore, OnLapse, Store as _};
use onlyonce_mcp::{Background, Derive, Rules};
use serde_json::{Value, json};

use crate::support::{
    Between, KEY, call, is_replayed, on, order, refused, rules, said, shop, start, text,
};

const EVERY: Duration = Duration::from_secs(1);

pub(crate) fn settling() -> Rules {
    Rules {
        reconcile: vec![r#"order=find_order:{"of":"{operation}"}"#.parse().unwrap()],
        background: Some(Background {
            every: EVERY,
            failed: |error| panic!("{error}"),
        }),
        ..rules()
    }
}

fn begun() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

/// Orders tea at a server that dies before it answers; returns the operation that the server heard of.
async fn lost(store: &Arc<MemoryStore>, rules: Rules) -> String {
    let mut lost = shop(&on(store).await, rules).await;
    lost.client.say(order(1, KEY, "tea")).await;
    let heard = lost.server.hear().await;
    drop(lost.server);
    drop(lost.client.line().await);
    lost.running.await.unwrap().unwrap();
    operation(&heard)
}

fn operation(heard: &Value) -> String {
    let operation = heard["params"]["_meta"]["onlyonce/operation"].as_str();
    operation.unwrap().to_owned()
}

/// Where the only record stands.
pub(crate) async fn state(store: &MemoryStore) -> StateName {
    let page = Page {
        after: None,
        records_max: 2,
    };
    let operate = store.operate().unwrap();
    let listed = operate.list(&Filter::default(), &page).await.unwrap();
    let [(_, record)] = &listed[..] else {
        panic!("{listed:?}");
    };
    StateName::of(record)
}

pub(crate) async fn until_done(store: &MemoryStore) {
    until(store, StateName::Done).await;
}

async fn until(store: &MemoryStore, wanted: StateName) {
    while state(store).await != wanted {
        tokio::time::sleep(EVERY / 10).await;
    }
}

/// A new proxy with a new server, whose session begins.
async fn again(store: &Arc<MemoryStore>, rules: Rules) -> Between {
    let mut shop = start(&on(store).await, rules);
    shop.client.say(begun()).await;
    assert_eq!(shop.server.hear().await, begun());
    shop
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_server_died_is_settled_though_nobody_retries() {
    let store = Arc::new(MemoryStore::new());
    let operation = lost(&store, settling()).await;

    let mut shop = again(&store, settling()).await;
    let asked = shop.serve("find_order", text(r#"{"order": 17}"#)).await;
    until_done(&store).await;

    assert_eq!(asked["params"]["arguments"], json!({"of": operation}));
    shop.client_heard_no_more().await;
    shop.client.say(order(2, KEY, "tea")).await;
    let retry = shop.client.hear().await;
    assert_eq!(said(&retry), r#"{"order": 17}"#, "{retry}");
    assert!(is_replayed(&retry), "{retry}");
}

#[tokio::test(start_paused = true)]
async fn what_did_not_happen_or_cannot_be_told_is_not_run_without_a_retry() {
    let error = json!({"isError": true, "content": [{"type": "text", "text": "down"}]});
    for (found, runs) in [
        (text("null"), true),
        (text("no idea"), false),
        (error, false),
    ] {
        let store = Arc::new(MemoryStore::new());
        lost(&store, settling()).await;
        let mut shop = again(&store, settling()).await;

        for _ in 0..3 {
            shop.serve("find_order", found.clone()).await;
        }

        until(&store, StateName::Lapsed).await;
        shop.client.say(order(2, KEY, "tea")).await;
        let mut has_run = false;
        let answer = loop {
            tokio::select! {
                answer = shop.client.hear() => break answer,
                asked = shop.server.hear() => {
                    let name = &asked["params"]["name"];
                    has_run |= name == "order";
                    let result = match (&asked["method"], name == "find_order") {
                        (method, _) if method == "tools/list" => json!({"tools": []}),
                        (_, true) => found.clone(),
                        (_, false) => text("ran"),
                    };
                    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
                    shop.server.say(answer).await;
                }
            }
        };
        assert_eq!(has_run, runs, "{found} {answer}");
        if !runs {
            assert_eq!(refused(&answer), "outcome-unknown", "{found}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_at_the_question_leaves_the_call_in_doubt() {
    let store = Arc::new(MemoryStore::new());
    lost(&store, settling()).await;
    let mut first = again(&store, settling()).await;

    assert_eq!(first.server.hear().await["params"]["name"], "find_order");
    drop(first.server);
    first.running.await.unwrap().unwrap();

    // Given back at once, and not after a lease.
    assert_eq!(state(&store).await, StateName::Lapsed);
    let mut second = again(&store, settling()).await;
    second.serve("find_order", text(r#"{"order": 17}"#)).await;
    until_done(&store).await;
}

#[tokio::test(start_paused = true)]
async fn before_the_session_has_begun_and_without_being_told_nothing_is_asked() {
    let store = Arc::new(MemoryStore::new());
    lost(&store, settling()).await;
    let by_argument = Rules {
        reconcile: vec![r#"order=find_order:{"item":"{/item}"}"#.parse().unwrap()],
        ..settling()
    };
    let not_told = Rules {
        background: None,
        ..settling()
    };

    let mut early = start(&on(&store).await, settling());
    let mut others = [
        again(&store, by_argument).await,
        again(&store, not_told).await,
    ];
    tokio::time::sleep(EVERY * 100).await;

    early.server_heard_no_more().await;
    for other in &mut others {
        other.server_heard_no_more().await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_server_on_the_store_is_not_asked_about_a_tool_of_the_same_name() {
    let store = Arc::new(MemoryStore::new());
    lost(&store, settling()).await;
    let other = Rules {
        server: "another".into(),
        ..settling()
    };

    let mut other = again(&store, other).await;
    tokio::time::sleep(EVERY * 100).await;

    other.server_heard_no_more().await;
    assert_eq!(state(&store).await, StateName::Lapsed);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_without_a_way_to_ask_is_left_alone() {
    let store = Arc::new(MemoryStore::new());
    let held = Rules {
        on_lapse: OnLapse::Hold,
        reconcile: Vec::new(),
        ..settling()
    };
    let mut lost = shop(&on(&store).await, held).await;
    lost.client.say(order(1, KEY, "tea")).await;
    lost.server.hear().await;
    drop(lost.server);
    lost.running.await.unwrap().unwrap();

    let mut shop = again(&store, settling()).await;
    tokio::time::sleep(EVERY * 100).await;

    shop.server_heard_no_more().await;
    assert_eq!(state(&store).await, StateName::Unknown);
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_guess_is_kept_no_longer_than_the_guess_counts() {
    let window = Duration::from_secs(600);
    let guessing = || Rules {
        derive: Some(Derive {
            conversation: "c-1".into(),
            within: window,
        }),
        ..settling()
    };
    let store = Arc::new(MemoryStore::new());
    let mut lost = shop(&on(&store).await, guessing()).await;
    lost.client.say(call(1, json!({"item": "tea"}))).await;
    lost.server.hear().await;
    drop(lost.server);
    lost.running.await.unwrap().unwrap();
    let mut settled = again(&store, guessing()).await;
    settled.serve("find_order", text(r#"{"order": 17}"#)).await;
    until_done(&store).await;

    tokio::time::sleep(window + EVERY * 60).await;

    settled.client.say(call(2, json!({"item": "tea"}))).await;
    let asked = settled.server.hear().await;
    let result = json!({"tools": []});
    let listed = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    settled.server.say(listed).await;
    settled.serve("order", text("order 18")).await;
    assert_eq!(said(&settled.client.hear().await), "order 18");
}

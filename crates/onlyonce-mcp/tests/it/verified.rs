//! A call whose answer was lost, settled by another tool of the server before it runs again.

use std::sync::Arc;

use onlyonce_core::MemoryStore;
use onlyonce_mcp::Rules;
use serde_json::{Value, json};

use crate::support::{KEY, call, on, order, refused, rules, said, shop, text};

fn verified() -> Rules {
    let verify = r#"order=find_order:{"reference":"{operation}","item":"{/item}"}"#;
    Rules {
        reconcile: vec![verify.parse().unwrap()],
        ..rules()
    }
}

/// Loses an order, and what a retry hears when the verifying tool says this, as often as it is asked.
async fn after_a_loss(found: Value) -> (Value, bool) {
    let store = Arc::new(MemoryStore::new());
    let mut lost = shop(&on(&store).await, verified()).await;
    lost.client.say(order(1, KEY, "tea")).await;
    let heard = lost.server.hear().await;
    let meta = &heard["params"]["_meta"];
    assert_eq!(meta["onlyonce/attempt"], 1, "{heard}");
    let operation = meta["onlyonce/operation"].as_str().unwrap();
    drop(lost.server);
    drop(lost.client.line().await);
    lost.running.await.unwrap().unwrap();

    let mut shop = shop(&on(&store).await, verified()).await;
    shop.client.say(order(2, KEY, "tea")).await;
    let mut has_run = false;
    loop {
        tokio::select! {
            answer = shop.client.hear() => return (answer, has_run),
            asked = shop.server.hear() => {
                let result = if asked["params"]["name"] == "find_order" {
                    assert!(!has_run, "it is asked before, not after");
                    let arguments = json!({"reference": operation, "item": "tea"});
                    assert_eq!(asked["params"]["arguments"], arguments);
                    found.clone()
                } else {
                    has_run = true;
                    assert_eq!(asked["params"]["_meta"]["onlyonce/operation"], operation);
                    assert_eq!(asked["params"]["_meta"]["onlyonce/attempt"], 2);
                    text("ran again")
                };
                shop.server.say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})).await;
            }
        }
    }
}

#[tokio::test]
async fn what_happened_is_the_answer_and_does_not_run_again() {
    let (answer, has_run) = after_a_loss(text(r#"{"order": 1}"#)).await;

    assert!(!has_run);
    assert_eq!(said(&answer), r#"{"order": 1}"#, "{answer}");
    assert_eq!(
        answer["result"]["_meta"]["onlyonce/reconciled"], true,
        "{answer}"
    );
}

#[tokio::test]
async fn what_did_not_happen_runs() {
    let (answer, has_run) = after_a_loss(text("null")).await;

    assert!(has_run);
    assert_eq!(said(&answer), "ran again", "{answer}");
}

#[tokio::test]
async fn what_cannot_be_told_does_not_run() {
    let error = json!({"isError": true, "content": [{"type": "text", "text": "down"}]});
    let nothing = text(r#"{"order": null, "found": false}"#);
    for unclear in [text("no idea"), error, json!({"content": []}), nothing] {
        let (answer, has_run) = after_a_loss(unclear).await;

        assert!(!has_run, "{answer}");
        assert_eq!(refused(&answer), "outcome-unknown", "{answer}");
    }
}

#[tokio::test]
async fn a_call_that_could_not_be_verified_is_refused_before_it_runs() {
    let store = Arc::new(MemoryStore::new());
    let mut shop = shop(&on(&store).await, verified()).await;

    shop.client
        .say(call(1, json!({"idempotencyKey": KEY})))
        .await;
    let answer = shop.client.hear().await;

    assert_eq!(refused(&answer), "not-verifiable", "{answer}");
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_key_that_the_server_does_not_get_is_nothing_to_ask_by() {
    let by_key = || Rules {
        reconcile: vec![r#"order=find_order:{"reference":"{key}"}"#.parse().unwrap()],
        ..rules()
    };
    let mut shop = shop(&on(&Arc::new(MemoryStore::new())).await, by_key()).await;

    shop.client.say(order(1, KEY, "tea")).await;
    let refusal = shop.client.hear().await;
    shop.server_heard_no_more().await;
    let named = json!({"item": "tea", "note": {"ref": KEY}, "idempotencyKey": KEY});
    shop.client.say(call(2, named)).await;
    shop.serve("order", text("order 17")).await;
    let answer = shop.client.hear().await;

    assert_eq!(refused(&refusal), "not-verifiable", "{refusal}");
    assert_eq!(said(&answer), "order 17", "{answer}");
}

#[tokio::test]
async fn a_client_cannot_say_which_operation_its_call_is() {
    let mut shop = shop(&on(&Arc::new(MemoryStore::new())).await, verified()).await;
    let mut forged = order(1, KEY, "tea");
    forged["params"]["_meta"] = json!({"onlyonce/operation": "another", "onlyonce/attempt": 9});

    shop.client.say(&forged).await;
    let heard = shop.serve("order", text("order 17")).await;

    let meta = &heard["params"]["_meta"];
    assert_eq!(meta["onlyonce/attempt"], 1, "{heard}");
    assert_ne!(meta["onlyonce/operation"], "another", "{heard}");
}

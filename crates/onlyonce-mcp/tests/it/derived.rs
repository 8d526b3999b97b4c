//! Keys made from conversation and content.

use std::time::Duration;

use onlyonce_mcp::{Derive, Rules};
use serde_json::{Value, json};

use crate::support::{
    Between, KEY, call, engine, is_replayed, order, rules, said, shop, start, text,
};

fn deriving() -> Rules {
    let derive = Derive {
        conversation: "c-1".to_owned(),
        within: Duration::from_secs(600),
    };
    Rules {
        derive: Some(derive),
        ..rules()
    }
}

async fn runs(shop: &mut Between, message: Value) -> bool {
    shop.client.say(message).await;
    let asked = shop.server.hear().await;
    assert_eq!(asked["method"], "tools/call");
    shop.server
        .say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": text("ordered")}))
        .await;
    !is_replayed(&shop.client.hear().await)
}

#[tokio::test]
async fn the_same_call_in_the_same_conversation_is_a_retry_and_says_so() {
    let mut shop = shop(&engine().await, deriving()).await;
    assert!(runs(&mut shop, call(1, json!({"item": "tea", "count": 1}))).await);

    shop.client
        .say(call(2, json!({"count": 1, "item": "tea"})))
        .await;
    let retry = shop.client.hear().await;

    assert_eq!((said(&retry), is_replayed(&retry)), ("ordered", true));
    let note = retry["result"]["content"][1]["text"].as_str().unwrap();
    assert!(
        note.contains("did not run again") && note.contains("new idempotencyKey"),
        "{note}"
    );
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn other_arguments_another_conversation_or_a_key_of_its_own_is_another_call() {
    let mut shop = shop(&engine().await, deriving()).await;
    assert!(runs(&mut shop, call(1, json!({"item": "tea"}))).await);

    assert!(runs(&mut shop, call(2, json!({"item": "coffee"}))).await);
    assert!(runs(&mut shop, order(3, KEY, "tea")).await);
    let mut elsewhere = call(4, json!({"item": "tea"}));
    elsewhere["params"]["_meta"] = json!({"onlyonce/conversation": "c-2"});
    assert!(runs(&mut shop, elsewhere).await);
}

#[tokio::test(start_paused = true)]
async fn after_its_time_the_same_call_is_meant_anew() {
    let mut shop = shop(&engine().await, deriving()).await;
    assert!(runs(&mut shop, call(1, json!({"item": "tea"}))).await);

    tokio::time::advance(Duration::from_secs(601)).await;

    assert!(runs(&mut shop, call(2, json!({"item": "tea"}))).await);
}

#[tokio::test]
async fn a_tool_that_only_reads_needs_no_key() {
    let mut shop = start(&engine().await, deriving());
    let reads = json!({"name": "order", "inputSchema": {}, "annotations": {"readOnlyHint": true}});
    shop.list(json!([reads])).await;

    for id in [1, 2] {
        assert!(runs(&mut shop, call(id, json!({}))).await);
    }
}

/// claude-code #36149: one call of the model, dispatched twice, each time under an id of its own.
#[tokio::test]
async fn one_call_under_two_names_is_one_where_names_do_not_count() {
    let named = |id: u64, name: &str| {
        let mut call = call(id, json!({"item": "tea"}));
        call["params"]["_meta"] = json!({"claudecode/toolUseId": name});
        call
    };
    let by_meaning = Rules {
        call_ids: Rules::call_ids(&["none".to_owned()]),
        ..deriving()
    };

    let mut usual = shop(&engine().await, deriving()).await;
    assert!(runs(&mut usual, named(1, "toolu_1")).await);
    assert!(runs(&mut usual, named(2, "toolu_2")).await);
    let mut shop = shop(&engine().await, by_meaning).await;
    assert!(runs(&mut shop, named(1, "toolu_1")).await);
    shop.client.say(named(2, "toolu_2")).await;
    let again = shop.client.hear().await;

    assert_eq!((said(&again), is_replayed(&again)), ("ordered", true));
    shop.server_heard_no_more().await;
}

#[test]
fn names_that_are_known_count_unless_none_is_said() {
    let given = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|it| (*it).to_owned()).collect();
        Rules::call_ids(&names).join(" ")
    };

    assert_eq!(given(&[]), "claudecode/toolUseId");
    assert_eq!(given(&["own"]), "claudecode/toolUseId own");
    assert_eq!(given(&["own", "none"]), "own");
    assert_eq!(given(&["none"]), "");
}

//! Calls that name themselves in `_meta`: another try meets the first one, whatever its arguments.

use serde_json::{Value, json};

use crate::support::{engine, is_replayed, refused, rules, said, shop, text};

fn named(id: u64, item: &str, meta: Value) -> Value {
    let params = json!({"name": "order", "arguments": {"item": item}, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

#[tokio::test]
async fn a_call_that_is_sent_again_meets_its_first_try_also_with_other_arguments() {
    let mut shop = shop(&engine().await, rules()).await;
    let meta = json!({"claudecode/toolUseId": "toolu_1"});

    shop.client.say(named(1, "tea", meta.clone())).await;
    let forwarded = shop.serve("order", text("one tea")).await;
    let first = shop.client.hear().await;
    shop.client.say(named(2, "tea", meta.clone())).await;
    let again = shop.client.hear().await;
    shop.client.say(named(3, "Tea.", meta)).await;
    let drifted = shop.client.hear().await;

    assert_eq!(
        forwarded["params"]["_meta"]["claudecode/toolUseId"],
        "toolu_1"
    );
    assert!(!is_replayed(&first), "{first}");
    assert!(is_replayed(&again), "{again}");
    assert_eq!(refused(&drifted), "mismatch", "{drifted}");
    assert!(
        said(&drifted).contains("made before, with other arguments"),
        "{drifted}"
    );
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn names_of_calls_count_within_their_conversation_and_never_meet_keys() {
    let mut shop = shop(&engine().await, rules()).await;
    let in_run = |run: &str| json!({"onlyonce/callId": "call_0", "onlyonce/conversation": run});

    shop.client.say(named(1, "tea", in_run("a"))).await;
    let forwarded = shop.serve("order", text("one")).await;
    shop.client.hear().await;
    shop.client.say(named(2, "tea", in_run("b"))).await;
    shop.serve("order", text("two")).await;
    shop.client.hear().await;
    shop.client.say(named(3, "tea", in_run("a"))).await;
    let again = shop.client.hear().await;

    assert_eq!(said(&again), "one", "{again}");
    assert_eq!(forwarded["params"].get("_meta"), None, "{forwarded}");
    shop.server_heard_no_more().await;
}

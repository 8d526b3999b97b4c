//! A call with a key runs once.

use serde_json::{Value, json};

use crate::support::{
    KEY, call, engine, is_replayed, order, order_tool, refused, rules, said, shop, start, text,
};

#[tokio::test]
async fn a_retry_gets_the_first_result_and_the_tool_runs_once() {
    let mut shop = shop(&engine().await, rules()).await;

    shop.client.say(order(1, KEY, "tea")).await;
    shop.serve("order", text("order 17")).await;
    let first = shop.client.hear().await;
    shop.client.say(order(2, KEY, "tea")).await;
    let retry = shop.client.hear().await;

    assert_eq!((&first["id"], said(&first)), (&json!(1), "order 17"));
    assert_eq!((&retry["id"], said(&retry)), (&json!(2), "order 17"));
    assert!(!is_replayed(&first) && is_replayed(&retry));
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn the_key_never_reaches_the_server() {
    let mut shop = shop(&engine().await, rules()).await;
    let in_arguments = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"order","arguments":{"z":1.50,"idempotencyKey":"K","item":"tea","big":123456789012345678901234567890},"_meta":{"progressToken":3}}}"#;
    let in_meta = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"_meta":{"idempotencyKey":"K2"},"name":"order"}}"#;

    shop.client.say(in_arguments).await;
    let first = shop.server.line().await.unwrap();
    shop.client.say(in_meta).await;
    let second = shop.server.line().await.unwrap();

    // A call with a key has an id of the proxy's on its way to the server.
    let without_id = |line: &str| {
        let (start, rest) = line.split_once(r#""id":"#).unwrap();
        format!("{start}{}", rest.split_once(',').unwrap().1)
    };
    assert_eq!(
        without_id(&first),
        without_id(&in_arguments.replace(r#""idempotencyKey":"K","#, ""))
    );
    assert_eq!(
        without_id(&second),
        without_id(&in_meta.replace(r#""_meta":{"idempotencyKey":"K2"},"#, ""))
    );
}

#[tokio::test]
async fn a_key_in_meta_is_as_good_as_one_in_the_arguments() {
    let mut shop = shop(&engine().await, rules()).await;
    let mut in_meta = call(1, json!({"item": "tea"}));
    in_meta["params"]["_meta"] = json!({"idempotencyKey": KEY});

    shop.client.say(in_meta).await;
    shop.serve("order", text("order 17")).await;
    shop.client.hear().await;
    shop.client.say(order(2, KEY, "tea")).await;
    let retry = shop.client.hear().await;

    assert_eq!((said(&retry), is_replayed(&retry)), ("order 17", true));
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn the_order_and_spelling_of_arguments_do_not_count() {
    let mut shop = shop(&engine().await, rules()).await;
    let spelled = |id: u8, arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"order","arguments":{arguments}}}}}"#
        )
    };

    shop.client
        .say(spelled(
            1,
            r#"{"item":"tea","count":2,"idempotencyKey":"K"}"#,
        ))
        .await;
    shop.serve("order", text("order 17")).await;
    shop.client.hear().await;
    shop.client
        .say(spelled(
            2,
            r#"{ "idempotencyKey":"K", "count": 2, "item":"t\u0065a" }"#,
        ))
        .await;

    assert!(is_replayed(&shop.client.hear().await));
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_key_used_for_something_else_is_refused_with_what_to_do() {
    let mut shop = shop(&engine().await, rules()).await;
    shop.client.say(order(1, KEY, "tea")).await;
    shop.serve("order", text("order 17")).await;
    shop.client.hear().await;

    shop.client.say(order(2, KEY, "coffee")).await;
    let other = shop.client.hear().await;

    assert_eq!(refused(&other), "mismatch");
    assert!(said(&other).contains("make a new random UUID"), "{other}");
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn duplicates_wait_for_the_one_that_runs() {
    let mut shop = shop(&engine().await, rules()).await;

    for id in 1..=5 {
        shop.client.say(order(id, KEY, "tea")).await;
    }
    shop.serve("order", text("order 17")).await;
    let mut ids = Vec::new();
    for _ in 1..=5 {
        let answer = shop.client.hear().await;
        assert_eq!(said(&answer), "order 17");
        ids.push(answer["id"].as_u64().unwrap());
    }

    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_bad_key_is_refused_and_nothing_runs() {
    let mut shop = shop(&engine().await, rules()).await;
    let bad = [
        json!(""),
        json!("  "),
        json!(17),
        json!("k".repeat(256)),
        json!("a\u{0}b"),
    ];

    for key in bad {
        shop.client
            .say(call(1, json!({"item": "tea", "idempotencyKey": key})))
            .await;
        let answer = shop.client.hear().await;

        assert_eq!(refused(&answer), "bad-key", "{key}");
        assert!(said(&answer).contains("Nothing was run"), "{answer}");
    }
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn null_is_no_key_and_does_not_reach_the_server() {
    let mut shop = shop(&engine().await, rules()).await;

    for id in [1, 2] {
        shop.client
            .say(call(id, json!({"item": "tea", "idempotencyKey": null})))
            .await;

        let asked = shop.serve("order", text("ordered")).await;
        assert_eq!(asked, call(id, json!({"item": "tea"})));
        assert_eq!(said(&shop.client.hear().await), "ordered");
    }
}

#[tokio::test]
async fn a_call_without_a_key_passes_as_it_is() {
    let mut shop = shop(&engine().await, rules()).await;

    for id in [1, 2] {
        let call = call(id, json!({"item": "tea"}));
        shop.client.say(&call).await;

        assert_eq!(shop.server.hear().await, call);
    }
}

#[tokio::test]
async fn a_tool_that_only_reads_is_asked_every_time() {
    let mut shop = start(&engine().await, rules());
    let reads = json!({"name": "order", "inputSchema": {}, "annotations": {"readOnlyHint": true}});
    shop.list(json!([reads])).await;

    for id in [1, 2] {
        let call = order(id, KEY, "tea");
        shop.client.say(&call).await;

        assert_eq!(shop.server.hear().await, call);
    }
}

#[tokio::test]
async fn a_client_that_never_listed_the_tools_is_served_all_the_same() {
    let mut shop = start(&engine().await, rules());
    let mut first = order(1, KEY, "tea");
    let version = "io.modelcontextprotocol/protocolVersion";
    first["params"]["_meta"] = json!({version: "2026-07-28", "progressToken": 1});

    shop.client.say(first).await;
    let pages = [
        (Value::Null, json!([]), "2"),
        (json!("2"), json!([order_tool()]), ""),
    ];
    for (cursor, tools, next) in pages {
        let asked = shop.server.hear().await;
        assert_eq!(asked["method"], "tools/list");
        assert_eq!(asked["params"]["cursor"], cursor);
        assert_eq!(asked["params"]["_meta"], json!({version: "2026-07-28"}));
        let mut result = json!({"tools": tools});
        if !next.is_empty() {
            result["nextCursor"] = json!(next);
        }
        shop.server
            .say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
            .await;
    }
    shop.serve("order", text("order 17")).await;

    assert_eq!(said(&shop.client.hear().await), "order 17");
    shop.client.say(order(2, KEY, "tea")).await;
    assert!(is_replayed(&shop.client.hear().await));
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_list_that_changed_is_read_again() {
    let mut shop = shop(&engine().await, rules()).await;
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    shop.server.say(&changed).await;
    assert_eq!(shop.client.hear().await, changed);

    let call = order(1, KEY, "tea");
    shop.client.say(&call).await;
    let asked = shop.server.hear().await;
    assert_eq!(asked["method"], "tools/list");
    let reads = json!({"name": "order", "inputSchema": {}, "annotations": {"readOnlyHint": true}});
    let result = json!({"tools": [reads]});
    shop.server
        .say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
        .await;

    assert_eq!(shop.server.hear().await, call);
}

#[tokio::test]
async fn servers_and_tools_do_not_share_keys() {
    let engine = engine().await;
    let mut shop_a = shop(&engine, rules()).await;
    let mut shop_b = shop(&engine, onlyonce_mcp::Rules::new("another shop")).await;

    for shop in [&mut shop_a, &mut shop_b] {
        shop.client.say(order(1, KEY, "tea")).await;
        shop.serve("order", text("ordered")).await;
        assert!(!is_replayed(&shop.client.hear().await));
    }
    let mut other_tool = order(2, KEY, "tea");
    other_tool["params"]["name"] = json!("cancel");
    shop_a.client.say(other_tool).await;
    let asked = shop_a.server.hear().await;
    let result = json!({"tools": [order_tool()]});
    shop_a
        .server
        .say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
        .await;

    shop_a.serve("cancel", text("cancelled")).await;
    assert_eq!(said(&shop_a.client.hear().await), "cancelled");
}

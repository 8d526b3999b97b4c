//! What a model is told of the tools.

use onlyonce_mcp::Tools;
use serde_json::{Value, json};

use crate::support::{engine, order_tool, rules, start};

#[tokio::test]
async fn a_tool_that_may_act_gets_an_optional_key() {
    let mut shop = start(&engine().await, rules());

    let listed = shop.list(json!([order_tool()])).await;

    let tool = &listed["result"]["tools"][0];
    let key = &tool["inputSchema"]["properties"]["idempotencyKey"];
    assert_eq!(
        (&key["type"], &key["maxLength"]),
        (&json!("string"), &json!(255))
    );
    assert!(tool["inputSchema"].get("required").is_none());
    assert_eq!(
        tool["inputSchema"]["properties"]["item"],
        json!({"type": "string"})
    );
}

#[tokio::test]
async fn a_model_is_told_to_keep_its_key_for_a_retry_and_to_make_a_new_one_for_a_new_action() {
    let mut shop = start(&engine().await, rules());

    let listed = shop
        .list(json!([order_tool(), {"name": "bare", "inputSchema": {}}]))
        .await;

    for tool in listed["result"]["tools"].as_array().unwrap() {
        let key = &tool["inputSchema"]["properties"]["idempotencyKey"];
        let about_key = key["description"].as_str().unwrap();
        let about_tool = tool["description"].as_str().unwrap();
        for taught in [
            "same key",
            "same arguments",
            "new random UUID",
            "new action",
        ] {
            assert!(about_key.contains(taught), "{taught}: {about_key}");
            assert!(about_tool.contains(taught), "{taught}: {about_tool}");
        }
        assert!(about_key.contains("once more on purpose"), "{about_key}");
        // A model sends the example it is shown.
        let looks_like_key = |word: &str| word.matches('-').count() >= 4;
        assert!(
            !about_key.split_whitespace().any(looks_like_key),
            "{about_key}"
        );
    }
    let own = listed["result"]["tools"][0]["description"]
        .as_str()
        .unwrap();
    assert!(own.starts_with("Orders an item.\n\n"), "{own}");
}

#[tokio::test]
async fn a_tool_that_only_reads_stays_as_it_is() {
    let mut shop = start(&engine().await, rules());
    let stock = json!({
        "name": "stock",
        "description": "What is there.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": true},
    });

    let listed = shop.list(json!([stock])).await;

    assert_eq!(listed["result"]["tools"][0], stock);
}

#[tokio::test]
async fn a_tool_with_such_an_argument_of_its_own_keeps_it_for_itself() {
    let mut shop = start(&engine().await, rules());
    let own = json!({
        "name": "order",
        "inputSchema": {"type": "object", "properties": {"idempotencyKey": {"type": "integer"}}},
    });

    let listed = shop.list(json!([own])).await;
    let call = crate::support::order(1, "k", "tea");
    shop.client.say(&call).await;

    assert_eq!(listed["result"]["tools"][0], own);
    assert_eq!(shop.server.hear().await, call);
}

#[tokio::test]
async fn tools_are_chosen_by_pattern() {
    let named = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let tools = json!([named("order_tea"), named("order_draft"), named("cancel")]);
    let has_key = |tool: &Value| {
        tool["inputSchema"]["properties"]
            .get("idempotencyKey")
            .is_some()
    };
    let chosen = Tools::new(&["order_*".to_owned()], &["*_draft".to_owned()]).unwrap();
    let mut shop = start(
        &engine().await,
        onlyonce_mcp::Rules {
            tools: chosen,
            ..rules()
        },
    );

    let listed = shop.list(tools).await;

    let listed = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(
        listed.iter().map(has_key).collect::<Vec<_>>(),
        [true, false, false]
    );
}

#[tokio::test]
async fn what_is_not_ours_in_a_list_keeps_its_order_and_its_digits() {
    let mut shop = start(&engine().await, rules());
    shop.client
        .say(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#)
        .await;
    shop.server.line().await;

    let tools = r#"[{"z":1.50,"name":"stock","annotations":{"readOnlyHint":true},"a":1e400}]"#;
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":{{"nextCursor":"x","tools":{tools},"ttlMs":0}}}}"#
    );
    shop.server.say(&answer).await;

    assert_eq!(shop.client.line().await.unwrap(), answer);
}

//! Everything else passes as it came.

use serde_json::json;

use crate::support::{KEY, engine, order, rules, said, shop, start, text};

#[tokio::test]
async fn what_a_client_says_reaches_the_server_byte_for_byte() {
    let mut between = start(&engine().await, rules());
    for line in [
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"sampling":{},"roots":{"listChanged":true}},"clientInfo":{"name":"c","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{ "method" : "server/discover", "id" : "a-1", "jsonrpc" : "2.0" }"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///a"}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"prompts/get","params":{"name":"p","arguments":{"idempotencyKey":"not ours"}}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"completion/complete","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"logging/setLevel","params":{"level":"debug"}}"#,
        r#"{"jsonrpc":"2.0","id":5,"method":"something/new","params":{"n":1e400,"m":1.50}}"#,
        r#"{"jsonrpc":"2.0","id":9,"result":{"model":"m","role":"assistant","content":{"type":"text","text":"t"}}}"#,
        r#"{"jsonrpc":"2.0","id":10,"result":{"action":"accept","content":{"sure":true}}}"#,
        r#"{"jsonrpc":"2.0","id":11,"error":{"code":-1,"message":"user said no"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"late"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5}}"#,
        "not JSON at all",
        "",
    ] {
        between.client.say(line).await;

        assert_eq!(between.server.line().await.unwrap(), line);
    }
}

#[tokio::test]
async fn what_a_server_says_reaches_the_client_byte_for_byte() {
    let mut between = start(&engine().await, rules());
    for line in [
        r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"1"},"instructions":"i"}}"#,
        r#"{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":10}}"#,
        r#"{"jsonrpc":"2.0","id":10,"method":"elicitation/create","params":{"message":"sure?","requestedSchema":{}}}"#,
        r#"{"jsonrpc":"2.0","id":11,"method":"roots/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no such resource","data":{"n":1.0}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"d"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}"#,
        r#"{ "id" : 5, "result" : { "n" : 1e400 }, "jsonrpc" : "2.0" }"#,
        "a line that a careless server printed",
    ] {
        between.server.say(line).await;

        assert_eq!(between.client.line().await.unwrap(), line);
    }
}

#[tokio::test]
async fn other_messages_do_not_wait_for_a_running_call() {
    let mut shop = shop(&engine().await, rules()).await;
    shop.client.say(order(1, KEY, "tea")).await;
    let asked = shop.server.hear().await;

    let question = json!({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {}});
    shop.server.say(&question).await;
    assert_eq!(shop.client.hear().await, question);
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}});
    shop.client.say(&answer).await;
    assert_eq!(shop.server.hear().await, answer);
    shop.server
        .say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": text("order 17")}))
        .await;

    assert_eq!(said(&shop.client.hear().await), "order 17");
}

#[tokio::test]
async fn a_batch_is_no_way_around() {
    let mut shop = shop(&engine().await, rules()).await;
    let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
    let batch = json!([order(1, KEY, "tea"), order(2, KEY, "tea"), ping]);

    shop.client.say(batch).await;
    let heard = [shop.server.hear().await, shop.server.hear().await];
    let asked = heard
        .iter()
        .find(|message| message["method"] == "tools/call")
        .unwrap();
    shop.server
        .say(json!({"jsonrpc": "2.0", "id": asked["id"], "result": text("order 17")}))
        .await;

    for _ in 0..2 {
        assert_eq!(said(&shop.client.hear().await), "order 17");
    }
    assert!(heard.contains(&ping));
    shop.server_heard_no_more().await;
}

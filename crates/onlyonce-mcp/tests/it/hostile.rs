//! Clients and servers that do what the protocol forbids: no call runs twice for it, none is lost,
//! and nothing ends that need not.

use onlyonce_mcp::{Derive, Rules};
use serde_json::{Value, json};

use crate::support::{
    Between, KEY, call, engine, is_replayed, order, refused, rules, said, shop, text,
};

async fn answer(shop: &mut Between, asked: &Value, result: Value) {
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    shop.server.say(answer).await;
}

/// What the server hears, answered; then what the client hears of it.
async fn served(shop: &mut Between) -> Value {
    shop.serve("order", text("order 17")).await;
    shop.client.hear().await
}

#[tokio::test]
async fn an_id_that_is_used_again_while_its_call_runs_orphans_no_call() {
    let mut shop = shop(&engine().await, rules()).await;
    let other_key = "idem_0190a5c4-3f6e-4c1b-9a57-2f0d8f6f1c22";

    shop.client.say(order(1, KEY, "tea")).await;
    let tea = shop.server.hear().await;
    shop.client.say(order(1, other_key, "coffee")).await;
    let coffee = shop.server.hear().await;
    answer(&mut shop, &coffee, text("order 18")).await;
    let first = shop.client.hear().await;
    answer(&mut shop, &tea, text("order 17")).await;
    let second = shop.client.hear().await;
    shop.client.say(order(2, KEY, "tea")).await;
    let retry = shop.client.hear().await;

    assert_ne!(tea["id"], coffee["id"]);
    assert_eq!((&first["id"], said(&first)), (&json!(1), "order 18"));
    assert_eq!((&second["id"], said(&second)), (&json!(1), "order 17"));
    assert_eq!((said(&retry), is_replayed(&retry)), ("order 17", true));
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_message_with_the_id_of_a_running_call_does_not_take_its_answer() {
    let mut shop = shop(&engine().await, rules()).await;

    shop.client.say(order(1, KEY, "tea")).await;
    let tea = shop.server.hear().await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    shop.client.say(&ping).await;
    assert_eq!(shop.server.hear().await, ping);
    answer(&mut shop, &ping, json!({"pong": true})).await;
    let pong = shop.client.hear().await;
    answer(&mut shop, &tea, text("order 17")).await;
    let first = shop.client.hear().await;
    shop.client.say(order(2, KEY, "tea")).await;
    let retry = shop.client.hear().await;

    assert_eq!(pong["result"], json!({"pong": true}));
    assert_eq!(said(&first), "order 17");
    assert_eq!((said(&retry), is_replayed(&retry)), ("order 17", true));
}

#[tokio::test]
async fn a_list_whose_id_is_used_twice_has_the_key_both_times() {
    let mut shop = shop(&engine().await, rules()).await;
    let list = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/list"});

    for _ in 0..2 {
        shop.client.say(&list).await;
        shop.server.hear().await;
    }

    for _ in 0..2 {
        let tools = json!({"tools": [crate::support::order_tool()]});
        answer(&mut shop, &list, tools).await;
        let listed = shop.client.hear().await;
        let properties = &listed["result"]["tools"][0]["inputSchema"]["properties"];
        assert!(properties.get("idempotencyKey").is_some(), "{listed}");
    }
}

#[tokio::test]
async fn a_second_answer_to_a_call_reaches_nobody() {
    let mut shop = shop(&engine().await, rules()).await;

    shop.client.say(order(1, KEY, "tea")).await;
    let tea = shop.server.hear().await;
    answer(&mut shop, &tea, text("order 17")).await;
    let first = shop.client.hear().await;
    answer(&mut shop, &tea, text("order 18")).await;

    assert_eq!(said(&first), "order 17");
    shop.client_heard_no_more().await;
}

#[tokio::test]
async fn a_byte_of_the_server_that_is_no_utf8_ends_neither_the_call_nor_the_proxy() {
    let mut shop = shop(&engine().await, rules()).await;

    shop.client.say(order(1, KEY, "tea")).await;
    let asked = shop.server.hear().await;
    let mut line = json!({"jsonrpc": "2.0", "id": asked["id"], "result": text("caf_")})
        .to_string()
        .into_bytes();
    let at = line.iter().position(|byte| *byte == b'_').unwrap();
    line[at] = 0xe9;
    shop.server.say_bytes(b"a log line \xff\xfe").await;
    shop.server.say_bytes(&line).await;
    let noise = shop.client.line().await.unwrap();
    let first = shop.client.hear().await;
    shop.client.say(order(2, KEY, "tea")).await;
    let retry = shop.client.hear().await;

    assert_eq!(noise, "a log line \u{fffd}\u{fffd}");
    assert_eq!(said(&first), "caf\u{fffd}");
    assert_eq!((said(&retry), is_replayed(&retry)), ("caf\u{fffd}", true));
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_byte_of_the_client_that_is_no_utf8_is_no_way_around() {
    let mut shop = shop(&engine().await, rules()).await;
    let spoilt = |id: u8| {
        let mut line = order(id, KEY, "caf_").to_string().into_bytes();
        // The key has an underscore too, further on.
        let at = line.windows(4).position(|four| four == b"caf_").unwrap() + 3;
        line[at] = 0xe9;
        line
    };

    shop.client.say_bytes(&spoilt(1)).await;
    let asked = shop.serve("order", text("order 17")).await;
    let first = shop.client.hear().await;
    shop.client.say_bytes(&spoilt(2)).await;
    let retry = shop.client.hear().await;

    assert_eq!(asked["params"]["arguments"], json!({"item": "caf\u{fffd}"}));
    assert_eq!(said(&first), "order 17");
    assert!(is_replayed(&retry));
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_call_as_a_task_is_not_the_same_call_without() {
    let mut shop = shop(&engine().await, rules()).await;
    let mut task = order(1, KEY, "tea");
    task["params"]["task"] = json!({"ttl": 60_000});
    let created = json!({"task": {"taskId": "t-1", "status": "working"}});

    shop.client.say(&task).await;
    shop.serve("order", created.clone()).await;
    let first = shop.client.hear().await;
    shop.client.say(&task).await;
    let retry = shop.client.hear().await;
    shop.client.say(order(2, KEY, "tea")).await;
    let plain = shop.client.hear().await;

    assert_eq!(first["result"], created);
    assert_eq!(retry["result"]["task"], created["task"]);
    assert_eq!(refused(&plain), "mismatch");
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn what_else_a_call_asks_for_counts_and_its_meta_does_not() {
    let mut shop = shop(&engine().await, rules()).await;
    let with = |id: u8, name: &str, value: Value| {
        let mut call = order(id, KEY, "tea");
        call["params"][name] = value;
        call
    };

    shop.client.say(with(1, "mode", json!("dry-run"))).await;
    served(&mut shop).await;
    shop.client.say(with(2, "mode", json!("for real"))).await;
    let other = shop.client.hear().await;
    let mut again = with(3, "mode", json!("dry-run"));
    again["params"]["_meta"] = json!({"progressToken": 7, "traceparent": "00-1"});
    shop.client.say(again).await;
    let retry = shop.client.hear().await;

    assert_eq!(refused(&other), "mismatch");
    assert!(is_replayed(&retry));
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_task_makes_another_derived_key() {
    let derive = Derive {
        conversation: "c-1".to_owned(),
        within: std::time::Duration::from_secs(600),
    };
    let rules = Rules {
        derive: Some(derive),
        ..rules()
    };
    let mut shop = shop(&engine().await, rules).await;
    let mut task = call(2, json!({"item": "tea"}));
    task["params"]["task"] = json!({});

    shop.client.say(call(1, json!({"item": "tea"}))).await;
    served(&mut shop).await;
    shop.client.say(task).await;
    let asked = shop.server.hear().await;

    assert_eq!(asked["params"]["task"], json!({}));
}

#[tokio::test]
async fn a_name_that_is_there_twice_is_no_way_around() {
    let params = format!(r#"{{"name":"order","arguments":{{"idempotencyKey":"{KEY}"}}}}"#);
    let head = r#""jsonrpc":"2.0","method":"tools/call""#;
    let lines = [
        format!(r#"{{{head},"id":1,"id":1,"params":{params}}}"#),
        format!(r#"{{{head},"method":"tools/call","id":1,"params":{params}}}"#),
        format!(r#"{{{head},"id":1,"params":{{"idempotencyKey":"K"}},"params":{params}}}"#),
        format!(r#"{{{head},"result":1,"result":2,"id":1,"params":{params}}}"#),
    ];
    let mut shop = shop(&engine().await, rules()).await;
    shop.client.say(&lines[0]).await;
    let asked = shop.serve("order", text("order 17")).await;
    shop.client.hear().await;
    assert_eq!(asked["params"], json!({"name": "order", "arguments": {}}));

    for line in lines {
        shop.client.say(&line).await;
        assert!(is_replayed(&shop.client.hear().await), "{line}");
    }
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn an_odd_id_or_none_is_no_way_around() {
    let mut shop = shop(&engine().await, rules()).await;
    shop.client.say(order(1, KEY, "tea")).await;
    served(&mut shop).await;

    for id in [
        "null",
        "1e400",
        "1.50",
        "[1]",
        r#"{"a":1}"#,
        r#""\u0031""#,
        "123456789012345678901234567890",
    ] {
        let line = order("ID", KEY, "tea").to_string().replace(r#""ID""#, id);
        shop.client.say(line).await;
        let retry = shop.client.line().await.unwrap();
        assert!(retry.contains("onlyonce/replayed"), "{id}: {retry}");
        // As it was written: a client compares it with what it sent.
        assert!(retry.contains(&format!(r#""id":{id},"#)), "{id}: {retry}");
    }
    let mut nameless = order(1, KEY, "tea");
    nameless.as_object_mut().unwrap().remove("id");
    shop.client.say(nameless).await;

    shop.server_heard_no_more().await;
    shop.client_heard_no_more().await;
}

#[tokio::test]
async fn a_call_without_an_id_runs_once_and_its_result_is_kept() {
    let mut shop = shop(&engine().await, rules()).await;
    let mut nameless = order(1, KEY, "tea");
    nameless.as_object_mut().unwrap().remove("id");

    shop.client.say(&nameless).await;
    shop.serve("order", text("order 17")).await;
    shop.client.say(order(2, KEY, "tea")).await;
    let retry = shop.client.hear().await;

    assert_eq!((&retry["id"], said(&retry)), (&json!(2), "order 17"));
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_line_with_a_key_that_only_a_lenient_reader_understands_is_not_passed_on() {
    let mut shop = shop(&engine().await, rules()).await;
    let call = order(1, KEY, "tea").to_string();
    let head = r#""id":1,"jsonrpc":"2.0","method":"tools/call""#;
    let lines = [
        call.replace(r#""tea""#, "NaN"),
        format!("[{}]", call.replace(r#""tea""#, "-Infinity")),
        format!("{call}\r{call}"),
        format!("{call},"),
        format!("[[{call}]]"),
        format!("\u{feff}{call}"),
        call.replace(r#""item""#, r#""\ud800":1,"item""#),
        format!(r#"{{{head},"params":["order",{{"idempotencyKey":"{KEY}"}}]}}"#),
        format!(r#"{{{head},"params":[{{"name":"order","idempotencyKey":"{KEY}"}}]}}"#),
        format!(r#"{{{head},"params":"idempotencyKey={KEY}"}}"#),
        format!(r#"{{{head},"params":{{"tool":"order","idempotencyKey":"{KEY}"}}}}"#),
        format!(r#"{{{head},"params":{{"name":["order"],"idempotencyKey":"{KEY}"}}}}"#),
        format!(
            r#"{{{head},"params":{{"name":"order","arguments":["tea",{{"idempotencyKey":"{KEY}"}}]}}}}"#
        ),
        format!(r#"{{{head},"params":{{"name":"order","arguments":"idempotencyKey={KEY}"}}}}"#),
        format!(r#"{{{head},"params":{{"name":"order","_meta":[{{"idempotencyKey":"{KEY}"}}]}}}}"#),
    ];

    for line in lines {
        shop.client.say(&line).await;
        let told = shop.client.hear().await;

        let is_call = line.contains("ud800")
            || serde_json::from_str::<Value>(&line).is_ok_and(|it| it.is_object());
        let id = if is_call { json!(1) } else { Value::Null };
        assert_eq!(told["id"], id, "{line}");
        assert_eq!(told["error"]["code"], -32700, "{line}");
        let message = told["error"]["message"].as_str().unwrap();
        assert!(message.contains("not passed on"), "{message}");
    }
    shop.server_heard_no_more().await;
}

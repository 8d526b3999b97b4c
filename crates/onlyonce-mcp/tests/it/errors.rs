//! A tool's errors, and answers that are not the last word.

use onlyonce_mcp::{Errors, Rules};
use serde_json::{Value, json};

use crate::support::{
    Between, KEY, call, engine, is_replayed, order, refused, rules, said, shop, text,
};

async fn serve_error(shop: &mut Between, code: i64) {
    let asked = shop.server.hear().await;
    assert_eq!(asked["method"], "tools/call");
    let error = json!({"code": code, "message": "no"});
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "error": error});
    shop.server.say(answer).await;
}

fn failure() -> Value {
    json!({"content": [{"type": "text", "text": "no tea left"}], "isError": true})
}

#[tokio::test]
async fn a_tool_s_error_is_repeated_with_a_word_on_what_to_do() {
    let mut shop = shop(&engine().await, rules()).await;

    shop.client.say(order(1, KEY, "tea")).await;
    shop.serve("order", failure()).await;
    let first = shop.client.hear().await;
    shop.client.say(order(2, KEY, "tea")).await;
    let retry = shop.client.hear().await;

    assert_eq!(first["result"], failure());
    assert_eq!(
        (said(&retry), &retry["result"]["isError"]),
        ("no tea left", &json!(true))
    );
    let note = retry["result"]["content"][1]["text"].as_str().unwrap();
    assert!(
        note.contains("did not run again") && note.contains("new idempotencyKey"),
        "{note}"
    );
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_tool_that_failed_runs_again_where_the_rules_say_so() {
    let mut shop = shop(
        &engine().await,
        Rules {
            errors: Errors::Rerun,
            ..rules()
        },
    )
    .await;

    shop.client.say(order(1, KEY, "tea")).await;
    shop.serve("order", failure()).await;
    shop.client.hear().await;
    shop.client.say(order(2, KEY, "tea")).await;
    shop.serve("order", text("order 17")).await;

    assert_eq!(said(&shop.client.hear().await), "order 17");
}

/// SDKs answer -32602 also after the tool ran, when its result is not what its schema promised.
#[tokio::test]
async fn no_error_of_a_server_proves_that_the_tool_did_not_run() {
    for code in [-32700, -32600, -32601, -32602, -32603, -32002, 7] {
        let mut shop = shop(&engine().await, rules()).await;

        shop.client.say(order(1, KEY, "tea")).await;
        serve_error(&mut shop, code).await;
        let first = shop.client.hear().await;
        shop.client.say(order(2, KEY, "tea")).await;
        let retry = shop.client.hear().await;

        assert_eq!(first["error"], json!({"code": code, "message": "no"}));
        assert_eq!(retry["error"]["code"], code);
        let message = retry["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("no (onlyonce: "), "{message}");
        assert!(message.contains("the tool did not run again"), "{message}");
        shop.server_heard_no_more().await;
    }
}

#[tokio::test]
async fn an_error_of_the_server_runs_again_where_the_rules_say_so() {
    let rules = Rules {
        errors: Errors::Rerun,
        ..rules()
    };
    let mut shop = shop(&engine().await, rules).await;

    shop.client.say(order(1, KEY, "tea")).await;
    serve_error(&mut shop, -32602).await;
    shop.client.hear().await;
    shop.client.say(order(2, KEY, "tea")).await;
    shop.serve("order", text("order 17")).await;

    assert_eq!(said(&shop.client.hear().await), "order 17");
}

#[tokio::test]
async fn a_question_to_the_user_is_not_the_answer() {
    let mut shop = shop(&engine().await, rules()).await;
    let question =
        json!({"resultType": "input_required", "requestState": "s", "inputRequests": {}});
    let mut answered = order(2, KEY, "tea");
    answered["params"]["requestState"] = json!("s");
    answered["params"]["inputResponses"] = json!({"sure": {"action": "accept"}});

    shop.client.say(order(1, KEY, "tea")).await;
    shop.serve("order", question.clone()).await;
    assert_eq!(shop.client.hear().await["result"], question);
    shop.client.say(answered).await;
    let asked = shop.serve("order", text("order 17")).await;
    assert_eq!(said(&shop.client.hear().await), "order 17");
    shop.client.say(order(3, KEY, "tea")).await;
    let retry = shop.client.hear().await;

    assert_eq!(
        asked["params"]["inputResponses"]["sure"]["action"],
        "accept"
    );
    assert_eq!((said(&retry), is_replayed(&retry)), ("order 17", true));
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_result_too_large_to_keep_reaches_its_first_caller_and_is_not_made_again() {
    let mut shop = shop(&engine().await, rules()).await;
    let large = "x".repeat(9 << 20);

    shop.client.say(order(1, KEY, "tea")).await;
    // The pipes hold less: both ends have to move.
    let (_, first) = {
        let Between { client, server, .. } = &mut shop;
        tokio::join!(
            async {
                let asked = server.hear().await;
                let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": text(&large)});
                server.say(answer).await;
            },
            client.hear()
        )
    };
    shop.client.say(order(2, KEY, "tea")).await;
    let retry = shop.client.hear().await;

    assert_eq!(said(&first).len(), large.len());
    assert_eq!(refused(&retry), "response-too-large");
    assert!(said(&retry).contains("It was not run again"), "{retry}");
    shop.server_heard_no_more().await;
}

#[tokio::test]
async fn a_refusal_says_that_it_is_complete_where_the_protocol_asks_for_it() {
    let mut shop = shop(&engine().await, rules()).await;
    let mut stateless = order(1, "", "tea");
    stateless["params"]["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});

    shop.client.say(stateless).await;
    let new = shop.client.hear().await;
    shop.client
        .say(call(2, json!({"idempotencyKey": ""})))
        .await;
    let old = shop.client.hear().await;

    assert_eq!(new["result"]["resultType"], "complete");
    assert!(old["result"].get("resultType").is_none());
}

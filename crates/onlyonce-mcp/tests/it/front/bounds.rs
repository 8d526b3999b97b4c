//! What is held for a side that does not read is bounded in bytes, and nothing that matters is lost in silence.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::client::{Shop, bounds, client};
use crate::support::{call, order, said, text};

const HELD_BYTES_MAX: usize = 64 * 1024;

async fn shop() -> Shop {
    Shop::open(onlyonce_mcp::Bounds {
        held_bytes_max: HELD_BYTES_MAX,
        ..bounds()
    })
    .await
}

fn size(messages: &[Value]) -> usize {
    messages.iter().map(|it| it.to_string().len()).sum()
}

#[tokio::test]
async fn a_client_that_does_not_read_gets_the_latest_messages_and_its_answer() {
    let mut shop = shop().await;
    let (ada, mut server) = shop.begin(client("ada")).await;
    let mut bare = call(5, json!({"item": "tea"}));
    bare["params"]["_meta"] = json!({"progressToken": "p"});

    let stream = ada.post(&bare).send().await;
    let asked = server.hear_call().await;
    let token = &asked["params"]["_meta"]["progressToken"];
    for progress in 1..=100 {
        let params =
            json!({"progressToken": token, "progress": progress, "message": "m".repeat(4096)});
        let told = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        server.end.say(&told).await;
    }
    server.answer(&asked, text(&"t".repeat(8192))).await;
    // It has said all of it: the answer to this comes after it.
    server.heard_no_more(ada.ping()).await;
    let read = stream.messages().await;

    let (answer, told) = read.split_last().unwrap();
    assert_eq!(said(answer).len(), 8192);
    assert_eq!(told.last().unwrap()["params"]["progress"], 100);
    let bytes = size(told);
    assert!((4096..=HELD_BYTES_MAX / 4).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn what_belongs_to_no_request_is_bounded_too() {
    let mut shop = shop().await;
    let (ada, mut server) = shop.begin(client("ada")).await;

    for number in 1..=100 {
        let data = "d".repeat(4096);
        let told = json!({"jsonrpc": "2.0", "method": "x", "number": number, "data": data});
        server.end.say(told).await;
    }
    // In one piece, which is no stream that could be told anything.
    let ping = ada.ping().taking("application/json");
    server.heard_no_more(ping).await;
    let mut reading = ada.get().send().await;
    let mut read = vec![reading.message().await];
    while read.last().unwrap()["number"] != 100 {
        read.push(reading.message().await);
    }

    assert!(size(&read) <= HELD_BYTES_MAX / 4, "{}", size(&read));
}

#[tokio::test]
async fn an_answer_that_cannot_be_held_becomes_an_error_and_a_retry_of_the_call_gets_it() {
    let mut shop = shop().await;
    let (ada, mut server) = shop.begin(client("ada")).await;

    let mut unread = Vec::new();
    for (id, key) in [(0, "key-of-tea"), (1, "key-of-cake")] {
        let asking = ada.post(&order(id, key, "x")).taking("application/json");
        let asking = asking.start();
        server.order(text(&"t".repeat(40_000))).await;
        // It has its head, and the answer is held for it.
        unread.push(asking.await.unwrap());
    }
    let third = ada.post(&order(2, "key-of-jam", "x")).send().await;
    server.order(text(&"t".repeat(40_000))).await;
    let third = third.answer().await;
    for answer in unread {
        assert_eq!(said(&answer.answer().await).len(), 40_000);
    }
    let retry = ada.post(&order(3, "key-of-jam", "x")).send().await;
    let retry = retry.answer().await;

    let why = third["error"]["message"].as_str().unwrap();
    assert!(why.contains("leaves too much unread"), "{third}");
    assert_eq!(third["id"], 2);
    assert_eq!(said(&retry).len(), 40_000, "{retry}");
    server.heard_no_more(ada.ping()).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_server_does_not_read_is_bounded_and_nothing_that_was_taken_is_lost() {
    let mut shop = shop().await;
    let (ada, mut server) = shop.begin(client("ada")).await;
    let told = json!({"jsonrpc": "2.0", "method": "notifications/x", "data": "d".repeat(16_384)});

    let (mut taken, mut refused) = (0, None);
    while refused.is_none() && taken < 200 {
        let saying = ada.post(&told).start();
        match timeout(Duration::from_secs(1), saying).await {
            Ok(heard) if heard.as_ref().unwrap().status == StatusCode::ACCEPTED => taken += 1,
            Ok(heard) => refused = Some(heard.unwrap().status),
            // It waits for the server, and is said all the same.
            Err(_) => taken += 1,
        }
    }
    assert_eq!(refused, Some(StatusCode::SERVICE_UNAVAILABLE));
    for _ in 0..taken {
        assert_eq!(server.end.hear().await["method"], "notifications/x");
    }

    let again = ada.post(&told).send().await;
    assert_eq!(again.status, StatusCode::ACCEPTED);
    server.end.hear().await;
    server.heard_no_more(ada.ping()).await;
}

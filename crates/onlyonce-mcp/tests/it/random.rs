//! Random messages of a careless client: whatever is sent, no server hears a call with its key, no
//! call runs twice, and the session goes on.

use std::collections::BTreeMap;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::support::{Between, End, engine, order, order_tool, rules, shop, text};

const SEEDS: u64 = 40;
/// Messages before the server is heard.
const MESSAGES: usize = 15;
const ROUNDS: usize = 10;
const KEYS: u64 = 6;
const WHOLE: &str = "whole";

/// A call: each key has an item of its own, by which the server can tell what runs. Ids are used again
/// while their calls run.
fn ask(kind: &str, dice: &mut ChaCha8Rng) -> Value {
    let number = dice.random_range(0..KEYS);
    let key = format!("0190a5c4-3f6e-4c1b-9a57-{kind}-{number}");
    let item = format!("{kind}-{number}");
    order(dice.random_range(0..4), &key, &item)
}

/// The same with some bytes changed, repeated or gone.
fn spoilt(mut line: Vec<u8>, dice: &mut ChaCha8Rng) -> Vec<u8> {
    for _ in 0..dice.random_range(1..4) {
        let at = dice.random_range(0..line.len());
        let upto = (at + dice.random_range(1..20)).min(line.len());
        match dice.random_range(0..4) {
            0 => line[at] = dice.random(),
            1 => drop(line.drain(at..upto)),
            2 => {
                let part = line[at..upto].to_vec();
                line.splice(at..at, part);
            }
            _ => {
                let odd = [",", "NaN", "\\ud800", "\"id\":1,", "{}", "\r", "[", "null"];
                let odd = odd[dice.random_range(0..odd.len())];
                line.splice(at..at, odd.bytes());
            }
        }
        if line.is_empty() {
            line.push(b'x');
        }
    }
    line.retain(|byte| *byte != b'\n');
    line
}

fn message(dice: &mut ChaCha8Rng) -> Vec<u8> {
    let id = dice.random_range(0..4);
    match dice.random_range(0..10) {
        0 => json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": id}})
        .to_string()
        .into_bytes(),
        1 => json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"})
            .to_string()
            .into_bytes(),
        2 => json!([ask(WHOLE, dice), ask(WHOLE, dice)])
            .to_string()
            .into_bytes(),
        // A spoilt key is another key, and runs its item on its own account.
        3..=6 => spoilt(ask("spoilt", dice).to_string().into_bytes(), dice),
        _ => ask(WHOLE, dice).to_string().into_bytes(),
    }
}

/// Whether a reader, strict or lenient, could take this for a call with a key.
fn is_call_with_key(line: &str) -> bool {
    // Some readers take half a surrogate pair for a character.
    let line = line.replace(r"\ud800", "?");
    let Ok(message) = serde_json::from_str::<Value>(&line) else {
        let is_call = line.contains(r#""method":"tools/call""#);
        return is_call && line.contains("idempotencyKey");
    };
    let params = &message["params"];
    let has_key = |name: &str| params[name].get("idempotencyKey").is_some();
    message["method"] == "tools/call"
        && params["name"].is_string()
        && (has_key("arguments") || has_key("_meta"))
}

/// Serves until the client has said its last; notes how often each item ran.
async fn serve(server: &mut End, dice: &mut ChaCha8Rng, ran: &mut BTreeMap<String, u32>) {
    loop {
        let line = server.line().await.expect("the session goes on");
        assert!(!is_call_with_key(&line), "{line}");
        let Ok(asked) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let answer = |member: &str, value: Value| {
            let id = &asked["id"];
            json!({"jsonrpc": "2.0", "id": id, member: value})
        };
        match asked["method"].as_str() {
            Some("last") => return,
            Some("tools/list") => {
                let tools = json!({"tools": [order_tool()]});
                server.say(answer("result", tools)).await;
            }
            Some("tools/call") => {
                let item = asked["params"]["arguments"]["item"].as_str();
                *ran.entry(item.unwrap_or_default().to_owned()).or_default() += 1;
                let answer = match dice.random_range(0..3) {
                    0 => answer("error", json!({"code": -32602, "message": "no"})),
                    _ => answer("result", text("done")),
                };
                server.say(&answer).await;
                if dice.random_range(0..5) == 0 {
                    server.say(&answer).await;
                    server.say_bytes(b"noise \xff").await;
                }
            }
            Some(_) | None => {}
        }
    }
}

async fn listen(client: &mut End) {
    while client.line().await.is_some() {}
}

#[tokio::test]
async fn whatever_a_client_sends_no_call_runs_twice_and_the_session_goes_on() {
    for seed in 0..SEEDS {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let mut shop = shop(&engine().await, rules()).await;
        let Between { client, server, .. } = &mut shop;
        let mut ran = BTreeMap::new();

        for _ in 0..ROUNDS {
            for _ in 0..MESSAGES {
                client.say_bytes(&message(&mut dice)).await;
            }
            client
                .say(json!({"jsonrpc": "2.0", "method": "last"}))
                .await;
            tokio::select! {
                () = serve(server, &mut dice, &mut ran) => {}
                () = listen(client) => panic!("seed {seed}: the session ended"),
            }
        }

        let whole = ran.iter().filter(|(item, _)| item.starts_with(WHOLE));
        let twice: Vec<_> = whole.filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "seed {seed}: {twice:?}");
        assert!(!ran.is_empty(), "seed {seed}: nothing ran");
    }
}

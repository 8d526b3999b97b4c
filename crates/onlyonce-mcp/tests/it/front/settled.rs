//! A call in doubt whose session ended with its server: a server of the front's own is asked about it.

use std::sync::Arc;

use onlyonce_core::MemoryStore;
use serde_json::{Value, json};

use super::client::{Server, Shop, bounds, client};
use crate::settled::{settling, state, until_done};
use crate::support::{KEY, order, said, text};

/// The server that the front starts for itself, once its session has begun.
async fn own(shop: &mut Shop) -> Server {
    let mut own = shop.server().await;
    let beginning = own.end.hear().await;
    assert_eq!(beginning["method"], "initialize", "{beginning}");
    let version = &beginning["params"]["protocolVersion"];
    let result = json!({"protocolVersion": version, "capabilities": {}});
    own.answer(&beginning, result).await;
    let begun = own.end.hear().await;
    assert_eq!(begun["method"], "notifications/initialized", "{begun}");
    own
}

/// An order of a session whose server dies; returns the operation that the server heard of.
async fn lost(shop: &mut Shop) -> Value {
    let (ada, mut server) = shop.begin(client("ada")).await;
    let asking = ada.post(&order(1, KEY, "tea")).start();
    let heard = server.hear_call().await;
    drop(server);
    drop(asking.await);
    heard["params"]["_meta"]["onlyonce/operation"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_session_is_gone_is_settled_by_a_server_that_is_started_for_it() {
    let store = Arc::new(MemoryStore::new());
    let mut shop = Shop::on(&store, settling(), bounds()).await;
    let operation = lost(&mut shop).await;

    let mut own = own(&mut shop).await;
    let question = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
    own.end.say(&question).await;
    let mut asked = own.end.hear().await;
    let mut answer = own.end.hear().await;
    if answer.get("method").is_some() {
        (asked, answer) = (answer, asked);
    }
    own.answer(&asked, text(r#"{"order": 17}"#)).await;
    until_done(&store).await;

    assert_eq!(asked["params"]["arguments"], json!({"of": operation}));
    assert_eq!(
        (&answer["id"], answer.get("error").is_some()),
        (&json!("q"), true)
    );
    assert!(own.end.line().await.is_none(), "it is ended after that");
    let (ada, mut server) = shop.begin(client("ada")).await;
    let retry = ada.post(&order(2, KEY, "tea")).send().await;
    assert_eq!(said(&retry.answer().await), r#"{"order": 17}"#);
    server.heard_no_more(ada.ping()).await;
    shop.front.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_server_that_can_be_asked_nothing_changes() {
    let store = Arc::new(MemoryStore::new());
    let mut shop = Shop::on(&store, settling(), bounds()).await;
    lost(&mut shop).await;

    let mut silent = own(&mut shop).await;
    silent.end.hear().await;
    drop(silent);
    let dead = shop.server().await;
    drop(dead);
    shop.cannot_start();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;

    let state = state(&store).await;
    assert_eq!(state, onlyonce_core::operate::StateName::Lapsed);
    shop.front.shutdown().await;
}

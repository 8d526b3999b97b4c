//! Answers that a store has at hand: who retries gets them without a claim, and no other difference.

use std::time::Duration;

use onlyonce_core::{Engine, Event, MemoryStore, Reason};

use crate::support::{Node, Work, node_of, policy, ran, refused, replayed};

async fn node_on_memory() -> Node {
    node_of(Engine::builder(MemoryStore::new())).await
}

#[tokio::test(start_paused = true)]
async fn an_answer_at_hand_is_replayed_told_of_and_counted() {
    let node = node_on_memory().await;
    let work = Work::new();
    assert_eq!(ran(&node.once("key", &policy(), &work).await), "run 1");

    assert_eq!(replayed(&node.once("key", &policy(), &work).await), "run 1");
    assert_eq!(replayed(&node.once("key", &policy(), &work).await), "run 1");

    let told = |event: &Event| {
        matches!(
            event,
            Event::Replayed {
                attached: false,
                ..
            }
        )
    };
    assert_eq!((work.starts(), node.heard.count(told)), (1, 2));
    node.engine.flush_replays().await;
    let slot = *node.call("key", "the same", &policy()).slot();
    let record = node.engine.store().operate().unwrap().get(&slot).await;
    assert_eq!(record.unwrap().unwrap().replays, 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_at_hand_to_something_else_is_not_replayed() {
    let node = node_on_memory().await;
    let work = Work::new();
    node.once("key", &policy(), &work).await;

    let other = node
        .once_meaning("key", "something else", &policy(), &work)
        .await;

    assert_eq!(refused(&other), Reason::Mismatch);
    assert_eq!(work.starts(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_at_hand_is_not_given_after_shutdown() {
    let node = node_on_memory().await;
    let work = Work::new();
    node.once("key", &policy(), &work).await;

    node.engine.shutdown(Duration::from_secs(1)).await;

    let answer = node.once("key", &policy(), &work).await;
    assert_eq!(refused(&answer), Reason::ShuttingDown);
}

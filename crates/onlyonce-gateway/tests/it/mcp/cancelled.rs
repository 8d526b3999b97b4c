//! A call with a key that its client cancels, in a session: the server hears of it as it came, and what it then says,
//! or that it says nothing, is the outcome.

use super::*;

/// Calls under a key, cancels that once it runs, and calls again; gives what the caller of the second try hears, and
/// what the server heard of the cancellation.
async fn retried_after(answers: Answers) -> (Value, String, usize) {
    let (address, server) = Server::start().await;
    server.answers(answers);
    let gateway = gateway(address, ROUTE).await;
    let client = Client::of(gateway.address());
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 1, "reason": "enough"}});

    let first = tokio::spawn(client.post(act(1, "key-1")).send());
    while server.runs() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let taken = client.post(&cancel).send().await.unwrap();
    assert_eq!(taken.status(), 202);
    let first = first.await.unwrap().unwrap().text().await.unwrap();
    server.answers(Answers::Json);
    let retry = client.say(&act(2, "key-1")).await;

    let runs = server.runs();
    let heard = server.heard();
    let heard = heard.iter().find(|it| it.contains("cancelled")).unwrap();
    assert_eq!(*heard, format!("POST {cancel}"));
    gateway.drain().await;
    (retry, first, runs)
}

#[tokio::test]
async fn a_call_that_is_cancelled_and_answered_all_the_same_has_that_outcome() {
    let (retry, first, runs) = retried_after(Answers::Cancelled { is_answered: true }).await;

    assert!(first.contains("run 1"), "{first}");
    assert_eq!(retry["result"]["content"][0]["text"], "run 1", "{retry}");
    assert_eq!(retry["result"]["_meta"]["onlyonce/replayed"], true);
    assert_eq!(runs, 1);
}

#[tokio::test]
async fn a_call_that_is_cancelled_and_not_answered_is_in_doubt_and_does_not_run_again() {
    let (retry, first, runs) = retried_after(Answers::Cancelled { is_answered: false }).await;

    assert!(first.contains("outcome-unknown"), "{first}");
    assert_eq!(refused(&retry), "outcome-unknown", "{retry}");
    assert_eq!(runs, 1);
}

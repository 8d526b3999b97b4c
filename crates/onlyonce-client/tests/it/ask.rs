//! G14: after a lost answer the client asks what has become of its key, where the service is known to say.

use std::time::Duration;

use onlyonce_client::{Cause, Failure, Keys, Operation, Queue, Retry, Sender, Sent, Status};
use onlyonce_core::Policy;
use serde_json::json;
use tempfile::tempdir;

use crate::profiles;
use crate::support::{Say, Script, http, operation};

const LOST: &str = "POST /a";
const ASKED: &str = "GET /status/a";

async fn sent(says: impl IntoIterator<Item = Say>) -> (Result<Sent, Failure>, Vec<String>) {
    let script = Script::new(says);
    let sender = script.sender().status_path("/status").unwrap();
    let sent = sender.send(&operation("a"), &Keys::default().v4()).await;
    let keys = script.keys();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    (sent, script.story())
}

fn state(state: &str) -> Say {
    let status = if state == "unknown" { 404 } else { 200 };
    Say::Json(status, json!({"state": state}))
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_waited_for_and_sent_again_only_for_its_answer() {
    for lost in [Say::Cut, Say::Hang] {
        let (sent, story) = sent([lost, state("running"), state("running"), state("done")]).await;

        assert!(sent.is_ok());
        assert_eq!(story, [LOST, ASKED, ASKED, ASKED, LOST]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_service_does_not_know_is_sent_again() {
    let (sent, story) = sent([Say::Cut, state("unknown")]).await;

    assert!(sent.is_ok());
    assert_eq!(story, [LOST, ASKED, LOST]);
}

#[tokio::test(start_paused = true)]
async fn what_is_in_doubt_is_reported_and_not_sent_again() {
    let (sent, story) = sent([Say::Cut, state("in-doubt")]).await;

    assert_eq!(sent.unwrap_err().cause, Cause::OutcomeUnknown);
    assert_eq!(story, [LOST, ASKED]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_anything_else_is_not_believed() {
    for answer in [
        Say::Status(404),
        Say::Status(405),
        Say::Cut,
        Say::Hang,
        Say::Json(200, json!({"state": "shipped"})),
        Say::Json(500, json!({"state": "in-doubt"})),
        Say::With(200, "content-type", "text/html", "<p>sign in</p>"),
        Say::With(302, "location", "http://portal.test/", ""),
    ] {
        let (sent, story) = sent([Say::Cut, answer]).await;

        assert!(sent.is_ok());
        assert_eq!(story, [LOST, ASKED, LOST]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_known_to_answer_is_not_asked() {
    let script = Script::new([Say::Cut]);

    let sent = script
        .sender()
        .send(&operation("a"), &Keys::default().v4())
        .await;

    assert!(sent.is_ok());
    assert_eq!(script.story(), [LOST, LOST]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_about_what_certainly_did_not_run() {
    let (sent, story) = sent([Say::NotSent, Say::Status(503)]).await;

    assert!(sent.is_ok());
    assert_eq!(story, [LOST, LOST, LOST]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_asks_after_a_lost_answer_and_after_a_crash() {
    let folder = tempdir().unwrap();
    let script = Script::new([Say::Cut, state("running"), Say::Hang]);
    let sender = script.sender().status_path("/status").unwrap();
    let queue = Queue::open(folder.path(), sender).await.unwrap();
    let id = queue.enqueue(operation("a")).await.unwrap();
    tokio::select! {
        ended = queue.drain() => panic!("{ended:?}"),
        () = script.until_seen(3) => {}
    }
    drop(queue);

    let again = Script::new([state("in-doubt")]);
    let sender = again.sender().status_path("/status").unwrap();
    let queue = Queue::open(folder.path(), sender).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(script.story(), [LOST, ASKED, ASKED]);
    assert_eq!(again.story(), [ASKED]);
    let Some(Status::Failed { cause, .. }) = queue.status(id).await.unwrap() else {
        panic!("it is in doubt");
    };
    assert_eq!(cause, Cause::OutcomeUnknown);
}

#[tokio::test]
async fn a_real_service_says_that_it_runs_and_then_gives_the_answer_it_kept() {
    let mut policy = Policy::default();
    policy.http.status_path = Some("/status".to_owned());
    let (address, gate) = profiles::start(policy).await;
    let slow = Operation::post(&format!("{address}/slow")).unwrap();
    let retry = Retry {
        attempts_max: 50,
        attempt_timeout: Duration::from_secs(1),
        backoff_min: Duration::from_millis(10),
        ..Retry::default()
    };
    let sender = Sender::new(http()).retry(retry);
    let sender = sender.status_path("/status").unwrap();
    let sending = tokio::spawn({
        let sender = sender.clone();
        async move { sender.send(&slow, &Keys::default().v4()).await }
    });

    while sender.counts().asked == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    gate.add_permits(1);
    let sent = sending.await.unwrap().unwrap();

    assert!(sent.is_replayed);
    assert_eq!(sent.reply.body, "slow");
}

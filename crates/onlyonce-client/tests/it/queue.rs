//! What the queue promises about one operation: its key, its life, its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderValue;
use onlyonce_client::{
    Cause, Keys, Operation, OperationId, Queue, QueueError, QueueOptions, Retry, Sender, Status,
    job_key,
};
use onlyonce_core::{Entropy, OsEntropy, Policy};
use serde_json::json;
use tempfile::{TempDir, tempdir};

use crate::support::{Calendar, HOUR, Say, Script, Service, http, operation};

async fn open(script: &Script) -> (TempDir, Queue) {
    let folder = tempdir().unwrap();
    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
    (folder, queue)
}

fn done(status: Option<Status>) -> bool {
    matches!(status, Some(Status::Done { .. }))
}

#[tokio::test]
async fn a_queued_operation_is_done_once_and_its_answer_is_kept() {
    let service = Service::start(Policy::default()).await;
    let folder = tempdir().unwrap();
    let queue = Queue::open(folder.path(), Sender::new(http()))
        .await
        .unwrap();

    let id = queue.enqueue(service.operation("a")).await.unwrap();
    queue.drain().await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(service.applied()["a"], 1);
    let Status::Done { status, answer } = queue.settled(id).await.unwrap() else {
        panic!("it is done");
    };
    assert_eq!(status, Some(201));
    assert_eq!(answer.unwrap(), r#"{"applied":"a"}"#);
}

#[tokio::test]
async fn who_waits_for_an_operation_is_told_when_it_is_done() {
    let service = Service::start(Policy::default()).await;
    let folder = tempdir().unwrap();
    let queue = Queue::open(folder.path(), Sender::new(http()))
        .await
        .unwrap();
    let running = tokio::spawn({
        let queue = queue.clone();
        async move { queue.run().await }
    });

    let id = queue.enqueue(service.operation("a")).await.unwrap();
    let settled = queue.settled(id).await.unwrap();

    assert!(done(Some(settled)));
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn every_attempt_has_the_key_that_was_made_with_the_operation() {
    let script = Script::new([
        Say::Cut,
        Say::NotSent,
        Say::Status(503),
        Say::Status(500),
        Say::Cut,
    ]);
    let (_folder, queue) = open(&script).await;

    let id = queue.enqueue(operation("a")).await.unwrap();
    queue.drain().await.unwrap();

    let keys = script.keys();
    assert_eq!(keys.len(), 6);
    assert!(keys.iter().all(|key| *key == keys[0]));
    assert!(done(queue.status(id).await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn different_operations_have_different_keys() {
    let script = Script::new([]);
    let (_folder, queue) = open(&script).await;

    queue.enqueue(operation("a")).await.unwrap();
    queue.enqueue(operation("a")).await.unwrap();
    queue.drain().await.unwrap();

    let keys = script.keys();
    assert_eq!(keys.len(), 2);
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test]
async fn an_edited_operation_has_a_new_key_and_starts_anew() {
    let script = Script::new([Say::RetryAfter(401, 3600)]);
    let (_folder, queue) = open(&script).await;
    let id = queue.enqueue(operation("a")).await.unwrap();
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });
    until_tried(&queue, id).await;

    let edited = queue.edit(id, operation("b")).await.unwrap();
    let after = queue.status(id).await.unwrap();
    draining.await.unwrap().unwrap();

    assert!(!edited.may_have_run);
    assert_eq!(
        after,
        Some(Status::Waiting {
            attempts: 0,
            cause: None
        })
    );
    let keys = script.keys();
    assert_eq!(script.story(), ["POST /a", "POST /b"]);
    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[1], edited.key.expose());
}

#[tokio::test]
async fn editing_tells_if_the_operation_may_have_run_as_it_was() {
    let script = Script::new([Say::RetryAfter(503, 3600)]);
    let (_folder, queue) = open(&script).await;
    let id = queue.enqueue(operation("a")).await.unwrap();
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });
    until_tried(&queue, id).await;

    let edited = queue.edit(id, operation("b")).await.unwrap();

    assert!(edited.may_have_run);
    draining.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_operation_is_not_edited_while_it_is_being_sent() {
    let script = Script::new([Say::Hang]);
    let folder = tempdir().unwrap();
    let retry = Retry {
        attempt_timeout: Duration::from_millis(50),
        ..Retry::default()
    };
    let options = QueueOptions {
        backoff_min: HOUR,
        backoff_max: HOUR,
        ..QueueOptions::default()
    };
    let sender = script.sender().retry(retry).entropy(Arc::new(Longest));
    let queue = Queue::open_with(folder.path(), sender, options)
        .await
        .unwrap();
    let id = queue.enqueue(operation("a")).await.unwrap();
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });
    script.until_seen(1).await;

    // The attempt hangs until its time is over; only then the operation changes.
    let edited = queue.edit(id, operation("b")).await.unwrap();
    draining.await.unwrap().unwrap();

    assert!(edited.may_have_run);
    assert_eq!(script.story(), ["POST /a", "POST /b"]);
    let seen = script.seen();
    assert!(seen[1].at - seen[0].at >= Duration::from_millis(50));
}

/// Every pause is as long as it may be.
struct Longest;

impl Entropy for Longest {
    fn fill(&self, out: &mut [u8]) {
        out.fill(0xff);
        // Keys must differ all the same.
        if out.len() == 16 {
            OsEntropy::new().fill(out);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_done_cannot_be_edited() {
    let script = Script::new([]);
    let (_folder, queue) = open(&script).await;
    let id = queue.enqueue(operation("a")).await.unwrap();
    queue.drain().await.unwrap();

    let refused = queue.edit(id, operation("b")).await.unwrap_err();

    assert!(matches!(refused, QueueError::NotThere));
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_good_is_kept_with_its_key_and_holds_nobody_up() {
    let script = Script::new([Say::Json(
        400,
        json!({"error": {"message": "no such room"}}),
    )]);
    let (_folder, queue) = open(&script).await;
    let bad = queue.enqueue(operation("bad")).await.unwrap();
    let good = queue.enqueue(operation("good")).await.unwrap();

    queue.drain().await.unwrap();

    assert!(done(queue.status(good).await.unwrap()));
    let failed = queue.failed().await.unwrap();
    assert_eq!(failed.len(), 1);
    assert_eq!(
        (failed[0].id, failed[0].cause, failed[0].attempts),
        (bad, Cause::Rejected, 1)
    );
    assert_eq!(failed[0].key.expose(), script.keys()[0]);
    assert_eq!(failed[0].operation, operation("bad"));
    assert!(failed[0].detail.contains("no such room"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_operation_can_be_retried_under_its_key_or_discarded() {
    let script = Script::new([Say::Status(404), Say::Status(404)]);
    let (_folder, queue) = open(&script).await;
    let one = queue.enqueue(operation("a")).await.unwrap();
    let other = queue.enqueue(operation("b")).await.unwrap();
    queue.drain().await.unwrap();

    queue.retry(one).await.unwrap();
    queue.discard(other).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(script.story(), ["POST /a", "POST /b", "POST /a"]);
    assert_eq!(script.keys()[0], script.keys()[2]);
    assert!(done(queue.status(one).await.unwrap()));
    assert_eq!(queue.status(other).await.unwrap(), None);
    assert!(queue.failed().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_waits_for_a_person_and_keeps_its_key() {
    let unknown = json!({"error": {"code": "OUTCOME_UNKNOWN", "message": "?"}});
    let script = Script::new([Say::Json(409, unknown)]);
    let (_folder, queue) = open(&script).await;
    let id = queue.enqueue(operation("a")).await.unwrap();
    queue.drain().await.unwrap();
    assert_eq!(
        queue.failed().await.unwrap()[0].cause,
        Cause::OutcomeUnknown
    );

    queue.retry(id).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(script.keys()[0], script.keys()[1]);
    assert!(done(queue.status(id).await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn what_is_known_to_be_done_is_not_sent_again_even_if_the_service_forgot() {
    let script = Script::new([]);
    let (_folder, queue) = open(&script).await;
    let key = job_key("7").unwrap();
    let first = queue.enqueue_as(&key, operation("a")).await.unwrap();
    queue.drain().await.unwrap();

    let again = queue.enqueue_as(&key, operation("a")).await.unwrap();
    queue.drain().await.unwrap();

    assert!(first.is_new && !again.is_new);
    assert_eq!(first.id, again.id);
    assert!(queue.has_succeeded(&key).await.unwrap());
    assert_eq!(script.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_success_log_goes_back_24_hours() {
    let script = Script::new([]);
    let (calendar, folder) = (Calendar::new(), tempdir().unwrap());
    let sender = script.sender().clock(calendar.clone());
    let queue = Queue::open(folder.path(), sender).await.unwrap();
    let key = job_key("7").unwrap();
    queue.enqueue_as(&key, operation("a")).await.unwrap();
    queue.drain().await.unwrap();

    calendar.pass(24 * HOUR - Duration::from_millis(1));
    assert!(queue.has_succeeded(&key).await.unwrap());
    calendar.pass(Duration::from_millis(1));
    assert!(!queue.has_succeeded(&key).await.unwrap());
    let again = queue.enqueue_as(&key, operation("a")).await.unwrap();

    assert!(again.is_new);
    assert_eq!(queue.stats().await.unwrap().done, 0);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_was_marked_done_is_not_sent() {
    let script = Script::new([]);
    let (_folder, queue) = open(&script).await;
    let (queued, unheard) = (Keys::default().v4(), Keys::default().v4());
    assert!(!queue.has_succeeded(&queued).await.unwrap());
    queue.enqueue_as(&queued, operation("a")).await.unwrap();

    queue.mark_success(&queued).await.unwrap();
    queue.mark_success(&unheard).await.unwrap();
    queue.mark_success(&unheard).await.unwrap();
    let later = queue.enqueue_as(&unheard, operation("b")).await.unwrap();
    queue.drain().await.unwrap();

    assert!(!later.is_new);
    assert!(queue.has_succeeded(&queued).await.unwrap());
    assert!(script.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_may_have_run_a_day_ago_is_not_sent_again() {
    // An attempt may be on its way for 30 s, and must be there while the service remembers.
    let day = 24 * HOUR - Duration::from_secs(30);
    for (age, attempts) in [(day - Duration::from_millis(1), 2), (day, 1)] {
        let script = Script::new([Say::Cut]);
        let (calendar, folder) = (Calendar::new(), tempdir().unwrap());
        let sender = || script.sender().clock(calendar.clone());
        let queue = Queue::open(folder.path(), sender()).await.unwrap();
        let id = queue.enqueue(operation("a")).await.unwrap();
        tokio::select! {
            ended = queue.drain() => panic!("{ended:?}"),
            () = script.until_seen(1) => {}
        }

        calendar.pass(age);
        drop(queue);
        let queue = Queue::open(folder.path(), sender()).await.unwrap();
        queue.drain().await.unwrap();

        assert_eq!(script.seen().len(), attempts);
        let status = queue.status(id).await.unwrap();
        let is_expired = matches!(
            status,
            Some(Status::Failed {
                cause: Cause::Expired,
                ..
            })
        );
        assert_eq!((is_expired, done(status)), (attempts == 1, attempts == 2));
    }
}

#[tokio::test(start_paused = true)]
async fn days_without_a_network_do_no_harm() {
    let script = Script::new((0..200).map(|_| Say::NotSent));
    let (calendar, folder) = (Calendar::new(), tempdir().unwrap());
    let sender = script.sender().clock(calendar.clone());
    let queue = Queue::open(folder.path(), sender).await.unwrap();
    let id = queue.enqueue(operation("a")).await.unwrap();
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });
    script.until_seen(100).await;
    calendar.pass(72 * HOUR);

    draining.await.unwrap().unwrap();

    assert!(done(queue.status(id).await.unwrap()));
    assert_eq!(script.seen().len(), 201);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_keeps_failing_is_given_up() {
    let script = Script::new((0..100).map(|_| Say::Status(500)));
    let (_folder, queue) = open(&script).await;
    queue.enqueue(operation("a")).await.unwrap();

    queue.drain().await.unwrap();

    let failed = queue.failed().await.unwrap();
    assert_eq!((failed[0].cause, failed[0].attempts), (Cause::Failed, 10));
}

#[tokio::test(start_paused = true)]
async fn an_expired_credential_is_waited_for() {
    let script = Script::new((0..20).map(|_| Say::Status(401)));
    let folder = tempdir().unwrap();
    let renewed = Arc::new(AtomicBool::new(false));
    let is_renewed = Arc::clone(&renewed);
    let sender = script.sender().sign_with(move |headers| {
        let token = if is_renewed.load(Ordering::SeqCst) {
            "new"
        } else {
            "old"
        };
        headers.insert("authorization", HeaderValue::from_static(token));
    });
    let queue = Queue::open(folder.path(), sender).await.unwrap();
    let id = queue.enqueue(operation("a")).await.unwrap();
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });
    script.until_seen(20).await;
    renewed.store(true, Ordering::SeqCst);

    draining.await.unwrap().unwrap();

    assert!(done(queue.status(id).await.unwrap()));
    assert_eq!(script.seen()[20].authorization.as_deref(), Some("new"));
}

#[tokio::test]
async fn a_pause_ends_early_when_the_network_is_back() {
    let script = Script::new([Say::RetryAfter(503, 3600)]);
    let (_folder, queue) = open(&script).await;
    let id = queue.enqueue(operation("a")).await.unwrap();
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });
    script.until_seen(1).await;
    until_tried(&queue, id).await;

    queue.hurry().await.unwrap();
    draining.await.unwrap().unwrap();

    let seen = script.seen();
    assert!(seen[1].at - seen[0].at < Duration::from_secs(3600));
}

/// Returns once the first attempt is over, and written down.
async fn until_tried(queue: &Queue, id: OperationId) {
    while let Some(Status::Waiting { attempts: 0, .. }) = queue.status(id).await.unwrap() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_means_one_operation() {
    let script = Script::new([]);
    let (_folder, queue) = open(&script).await;
    let key = job_key("7").unwrap();
    let first = queue.enqueue_as(&key, operation("a")).await.unwrap();

    let same = queue.enqueue_as(&key, operation("a")).await.unwrap();
    let other = queue.enqueue_as(&key, operation("b")).await.unwrap_err();

    assert_eq!((same.id, same.is_new), (first.id, false));
    assert!(matches!(other, QueueError::KeyInUse));
    queue.drain().await.unwrap();
    assert_eq!(script.story(), ["POST /a"]);
}

#[tokio::test(start_paused = true)]
async fn an_identical_operation_is_recognised_under_another_key_if_asked() {
    let script = Script::new([]);
    let (_folder, queue) = open(&script).await;
    let with = |body: &str| {
        let bare = Operation::post("http://service.test/users").unwrap();
        bare.body("application/json", body.to_owned()).unwrap()
    };
    let first = queue
        .enqueue_unless_known(with(r#"{"a":1,"b":2}"#))
        .await
        .unwrap();

    let waiting = queue
        .enqueue_unless_known(with(r#"{ "b": 2, "a": 1 }"#))
        .await
        .unwrap();
    queue.drain().await.unwrap();
    let after = queue
        .enqueue_unless_known(with(r#"{"b":2,"a":1}"#))
        .await
        .unwrap();
    let other = queue
        .enqueue_unless_known(with(r#"{"a":1,"b":3}"#))
        .await
        .unwrap();
    let unasked = queue.enqueue(with(r#"{"a":1,"b":2}"#)).await.unwrap();
    queue.drain().await.unwrap();

    assert!(first.is_new && other.is_new);
    assert_eq!((waiting.is_new, waiting.id), (false, first.id));
    assert_eq!((after.is_new, after.id), (false, first.id));
    assert_ne!(unasked, first.id);
    assert_eq!(script.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn another_address_is_another_operation() {
    let script = Script::new([]);
    let (_folder, queue) = open(&script).await;
    for url in [
        "http://a.test/x",
        "http://b.test/x",
        "https://a.test/x",
        "http://a.test/x?y=1",
    ] {
        let queued = queue
            .enqueue_unless_known(Operation::post(url).unwrap())
            .await
            .unwrap();
        assert!(queued.is_new, "{url}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_says_so_and_loses_nothing() {
    let script = Script::new([]);
    let folder = tempdir().unwrap();
    let options = QueueOptions {
        operations_max: 2,
        bytes_max: 1000,
        ..QueueOptions::default()
    };
    let queue = Queue::open_with(folder.path(), script.sender(), options)
        .await
        .unwrap();
    let large = Operation::post("http://a.test/").unwrap();
    let large = large.body("text/plain", vec![b'x'; 2000]).unwrap();

    let bytes = queue.enqueue(large).await.unwrap_err();
    queue.enqueue(operation("a")).await.unwrap();
    queue.enqueue(operation("b")).await.unwrap();
    let count = queue.enqueue(operation("c")).await.unwrap_err();

    assert!(matches!(
        bytes,
        QueueError::Full {
            max: 1000,
            unit: "bytes",
            ..
        }
    ));
    assert!(matches!(
        count,
        QueueError::Full {
            held: 2,
            max: 2,
            unit: "operations"
        }
    ));
    queue.drain().await.unwrap();
    queue.enqueue(operation("c")).await.unwrap();
    assert_eq!(queue.stats().await.unwrap().done, 2);
}

#[tokio::test(start_paused = true)]
async fn so_many_are_sent_at_the_same_time_and_not_more() {
    let script = Script::new((0..9).map(|_| Say::Hang));
    let folder = tempdir().unwrap();
    let options = QueueOptions {
        parallel: 3,
        ..QueueOptions::default()
    };
    let queue = Queue::open_with(folder.path(), script.sender(), options)
        .await
        .unwrap();
    for name in ["a", "b", "c", "d"] {
        queue.enqueue(operation(name)).await.unwrap();
    }

    tokio::select! {
        ended = queue.drain() => panic!("{ended:?}"),
        () = script.until_seen(4) => {}
    }

    let seen = script.seen();
    assert_eq!(seen[2].at, seen[0].at);
    assert!(seen[3].at - seen[0].at >= Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_an_operation_is_told_that_its_key_expired() {
    let (calendar, folder) = (Calendar::new(), tempdir().unwrap());
    let script = Script::new([Say::RetryAfter(503, 60)]);
    let sender = script.sender().clock(calendar.clone());
    let queue = Queue::open(folder.path(), sender).await.unwrap();
    let id = queue.enqueue(operation("a")).await.unwrap();
    let running = tokio::spawn({
        let queue = queue.clone();
        async move { queue.run().await }
    });
    script.until_seen(1).await;
    calendar.pass(24 * HOUR);

    let settled = queue.settled(id).await.unwrap();

    assert!(
        matches!(
            settled,
            Status::Failed {
                cause: Cause::Expired,
                ..
            }
        ),
        "{settled:?}"
    );
    running.abort();
}

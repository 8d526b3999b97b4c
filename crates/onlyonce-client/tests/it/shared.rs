//! A queue that several processes share: each as if it had a queue object of its own on the same folder.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_client::{
    AttemptOutcome, Cause, Entries, Operation, Queue, QueueError, QueueOptions, State, Status,
    job_key,
};
use onlyonce_core::Policy;
use tempfile::tempdir;

use crate::support::{Calendar, HOUR, Say, Script, Service, http, operation};

async fn open(folder: &Path, script: &Script) -> Queue {
    let options = QueueOptions::default();
    let queue = Queue::open_shared(folder, script.sender(), options).await;
    queue.unwrap()
}

async fn state(queue: &Queue, id: onlyonce_client::OperationId) -> State {
    State::of(&queue.status(id).await.unwrap().unwrap())
}

#[tokio::test]
async fn what_others_add_is_sent_by_the_one_that_runs() {
    let service = Service::start(Policy::default()).await;
    let folder = tempdir().unwrap();
    let options = QueueOptions::default();
    let sender = onlyonce_client::Sender::new(http());
    let running = Queue::open_shared(folder.path(), sender, options).await;
    let running = running.unwrap();
    let background = tokio::spawn({
        let running = running.clone();
        async move { running.run().await }
    });

    let adders = (0..8).map(|number| {
        let (folder, operation) = (folder.path(), service.operation(number));
        async move {
            let queue = open(folder, &Script::new([])).await;
            queue.enqueue(operation).await.unwrap()
        }
    });
    let ids = futures_util::future::join_all(adders).await;

    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 8);
    while running.stats().await.unwrap().done < 8 {
        assert!(!background.is_finished());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(service.applied().values().all(|count| *count == 1));
    background.abort();
}

#[tokio::test]
async fn one_at_a_time_sends_and_gives_up_the_right_when_it_stops() {
    let folder = tempdir().unwrap();
    let hanging = Script::new([Say::Hang]);
    let first = open(folder.path(), &hanging).await;
    let script = Script::new([]);
    let second = open(folder.path(), &script).await;
    first.enqueue(operation("a")).await.unwrap();

    let drained = first.drain();
    tokio::pin!(drained);
    tokio::select! {
        ended = &mut drained => panic!("{ended:?}"),
        () = hanging.until_seen(1) => {}
    }
    let refused = tokio::select! {
        ended = &mut drained => panic!("{ended:?}"),
        sent = second.send_due() => sent.err(),
    };

    assert!(matches!(refused, Some(QueueError::Sending { .. })));
    assert!(script.seen().is_empty());
}

#[tokio::test]
async fn the_next_sender_uses_the_key_of_the_one_that_was_stopped() {
    let folder = tempdir().unwrap();
    let hanging = Script::new([Say::Hang]);
    let first = open(folder.path(), &hanging).await;
    let id = first.enqueue(operation("a")).await.unwrap();
    tokio::select! {
        ended = first.drain() => panic!("{ended:?}"),
        () = hanging.until_seen(1) => {}
    }

    let script = Script::new([]);
    let second = open(folder.path(), &script).await;
    second.send_due().await.unwrap();

    assert_eq!(script.keys(), hanging.keys());
    assert_eq!(state(&first, id).await, State::Done);
}

#[tokio::test]
async fn an_answer_to_the_old_version_does_not_end_the_edited_one() {
    for answer in [Say::Status(201), Say::Status(400), Say::Status(503)] {
        let folder = tempdir().unwrap();
        let script = Script::new([answer]);
        let first = open(folder.path(), &script).await;
        let other = Arc::new(open(folder.path(), &script).await);
        let id = first.enqueue(operation("a")).await.unwrap();
        let edited = Arc::new(Mutex::new(None));
        // Between the answer and what is written about it: the other process is never waited for.
        let sender = script.sender().sign_with({
            let (other, edited) = (Arc::clone(&other), Arc::clone(&edited));
            move |_| {
                let mut edited = edited.lock().unwrap();
                if edited.is_none() {
                    let new = operation("b");
                    let other = Arc::clone(&other);
                    let made = std::thread::spawn(move || {
                        let mut runtime = tokio::runtime::Builder::new_current_thread();
                        let runtime = runtime.enable_all().build().unwrap();
                        runtime.block_on(async { other.edit(id, new).await.unwrap() })
                    });
                    *edited = Some(made.join().unwrap());
                }
            }
        });
        drop(first);
        let sending = Queue::open_shared(folder.path(), sender, QueueOptions::default()).await;
        let sending = sending.unwrap();

        sending.send_due().await.unwrap();

        let edited = edited.lock().unwrap().take().unwrap();
        assert!(edited.may_have_run);
        assert_eq!(script.story(), ["POST /a", "POST /b"]);
        assert_eq!(script.keys()[1], edited.key.expose());
        assert_ne!(script.keys()[0], script.keys()[1]);
        assert_eq!(state(&other, id).await, State::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_due_is_sent_once_and_a_pause_outlasts_the_process() {
    let folder = tempdir().unwrap();
    let calendar = Calendar::new();
    let script = Script::new([Say::RetryAfter(503, 3600), Say::Status(201)]);
    let open = || {
        let sender = script.sender().clock(calendar.clone());
        Queue::open_shared(folder.path(), sender, QueueOptions::default())
    };
    let id = open().await.unwrap().enqueue(operation("a")).await.unwrap();

    for _ in 0..3 {
        open().await.unwrap().send_due().await.unwrap();
    }
    assert_eq!(script.seen().len(), 1);
    let queue = open().await.unwrap();
    let entry = queue.entry(id).await.unwrap().unwrap();
    assert_eq!(entry.due_in, Some(HOUR));
    calendar.pass(HOUR);
    queue.send_due().await.unwrap();

    assert_eq!(state(&queue, id).await, State::Done);
    assert_eq!(script.keys()[0], script.keys()[1]);
}

#[tokio::test(start_paused = true)]
async fn a_date_that_was_wrong_does_not_hold_up_what_waits() {
    let folder = tempdir().unwrap();
    let (ahead, right) = (Calendar::new(), Calendar::new());
    ahead.pass(HOUR * 24 * 365);
    let script = Script::new([Say::NotSent]);
    let open = |calendar: &Arc<Calendar>| {
        let sender = script.sender().clock(calendar.clone());
        Queue::open_shared(folder.path(), sender, QueueOptions::default())
    };
    let queue = open(&ahead).await.unwrap();
    queue.enqueue(operation("a")).await.unwrap();
    queue.send_due().await.unwrap();
    drop(queue);

    open(&right).await.unwrap().send_due().await.unwrap();

    assert_eq!(script.seen().len(), 2);
}

#[tokio::test]
async fn one_that_owns_a_folder_alone_shares_it_with_nobody() {
    let folder = tempdir().unwrap();
    let script = Script::new([]);
    let alone = Queue::open(folder.path(), script.sender()).await.unwrap();
    let options = QueueOptions::default();

    let shared = Queue::open_shared(folder.path(), script.sender(), options).await;

    assert!(matches!(shared.err(), Some(QueueError::InUse { .. })));
    drop(alone);
    let _shared = open(folder.path(), &script).await;
    let alone = Queue::open(folder.path(), script.sender()).await;
    assert!(matches!(alone.err(), Some(QueueError::InUse { .. })));
}

#[tokio::test]
async fn the_watcher_is_told_what_came_of_each_attempt() {
    let folder = tempdir().unwrap();
    let script = Script::new([Say::Status(201), Say::Status(400), Say::NotSent]);
    let options = QueueOptions {
        parallel: 1,
        ..QueueOptions::default()
    };
    let queue = Queue::open_shared(folder.path(), script.sender(), options).await;
    let queue = queue.unwrap();
    for name in ["a", "b", "c"] {
        queue.enqueue(operation(name)).await.unwrap();
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    queue.observe({
        let told = Arc::clone(&told);
        move |attempted| told.lock().unwrap().push(attempted.outcome.clone())
    });

    queue.send_due().await.unwrap();

    let told = told.lock().unwrap();
    assert!(matches!(told[0], AttemptOutcome::Done { status: 201, .. }));
    let (failed, later) = (&told[1], &told[2]);
    assert!(matches!(
        failed,
        AttemptOutcome::Failed {
            cause: Cause::Rejected,
            ..
        }
    ));
    assert!(matches!(
        later,
        AttemptOutcome::Later {
            cause: Cause::Unreachable,
            ..
        }
    ));
    assert_eq!(told.len(), 3);
}

#[tokio::test]
async fn all_that_is_known_about_operations_can_be_listed() {
    let folder = tempdir().unwrap();
    let script = Script::new([Say::Status(201), Say::Status(400)]);
    let queue = open(folder.path(), &script).await;
    let credential = |operation: Operation| {
        let name = http::header::AUTHORIZATION;
        operation.credential(name, "Bearer sesame").unwrap()
    };
    let done = queue.enqueue(credential(operation("a"))).await.unwrap();
    queue.send_due().await.unwrap();
    let failed = queue.enqueue(credential(operation("b"))).await.unwrap();
    queue.send_due().await.unwrap();
    let waiting = queue.enqueue(credential(operation("c"))).await.unwrap();
    queue.mark_success(&job_key("told").unwrap()).await.unwrap();

    let all = queue.entries(Entries::default()).await.unwrap();
    let states: Vec<_> = all
        .iter()
        .map(|it| (it.id, State::of(&it.status)))
        .collect();
    assert_eq!(
        states[..3],
        [
            (done, State::Done),
            (failed, State::Failed),
            (waiting, State::Waiting)
        ]
    );
    assert!(all[3].operation.is_none());
    let of = |index: usize| {
        let headers = all[index].operation.as_ref().unwrap().headers();
        headers.get("authorization").cloned()
    };
    assert!(of(0).is_none(), "what is done needs no credential");
    assert!(of(1).unwrap().is_sensitive() && of(2).unwrap().is_sensitive());
    assert_eq!(
        script.seen()[1].authorization.as_deref(),
        Some("Bearer sesame")
    );
    let only = Entries {
        state: Some(State::Waiting),
        after: Some(done),
        limit: 1,
        ..Entries::default()
    };
    let only = queue.entries(only).await.unwrap();
    assert_eq!((only.len(), only[0].id), (1, waiting));
    assert!(matches!(all[1].status, Status::Failed { .. }));
}

//! Groups: in order, and all or nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_client::{
    Cause, Group, GroupStatus, Operation, Queue, QueueError, QueueOptions, Sender, Status,
};
use onlyonce_core::{Clock, Policy, SystemClock, Timestamp};
use tempfile::{TempDir, tempdir};

use crate::support::{Calendar, HOUR, Say, Script, Service, http, operation};

async fn open(script: &Script) -> (TempDir, Queue) {
    let folder = tempdir().unwrap();
    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
    (folder, queue)
}

fn undo(name: &str) -> Operation {
    Operation::delete(&format!("http://service.test/{name}")).unwrap()
}

/// Three steps; the first two can be undone.
fn group() -> Group {
    Group::new()
        .step_or_undo(operation("a"), undo("a"))
        .step_or_undo(operation("b"), undo("b"))
        .step(operation("c"))
}

#[tokio::test]
async fn a_group_is_done_in_order_by_a_real_service() {
    let service = Service::start(Policy::default()).await;
    let folder = tempdir().unwrap();
    let queue = Queue::open(folder.path(), Sender::new(http()))
        .await
        .unwrap();
    let group = Group::new()
        .step(service.operation("a"))
        .step(service.operation("b"));

    let id = queue.enqueue_group(group).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(queue.group(id).await.unwrap(), Some(GroupStatus::Done));
    assert_eq!(
        service.applied().into_iter().collect::<Vec<_>>(),
        [("a".into(), 1), ("b".into(), 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_step_waits_for_the_one_before_it() {
    let script = Script::new([Say::Cut, Say::Status(503), Say::Status(200), Say::NotSent]);
    let (_folder, queue) = open(&script).await;

    let id = queue.enqueue_group(group()).await.unwrap();
    assert_eq!(queue.group(id).await.unwrap(), Some(GroupStatus::Running));
    queue.drain().await.unwrap();

    assert_eq!(
        script.story(),
        [
            "POST /a", "POST /a", "POST /a", "POST /b", "POST /b", "POST /c"
        ]
    );
    assert_eq!(queue.group(id).await.unwrap(), Some(GroupStatus::Done));
    let stats = queue.stats().await.unwrap();
    assert_eq!(
        (stats.waiting, stats.spare, stats.failed, stats.done),
        (0, 0, 0, 3)
    );
}

#[tokio::test]
async fn groups_do_not_hold_each_other_up() {
    let script = Script::new([Say::RetryAfter(503, 3600)]);
    let (_folder, queue) = open(&script).await;
    let pair = |one, other| Group::new().step(operation(one)).step(operation(other));
    queue.enqueue_group(pair("a", "b")).await.unwrap();
    queue.enqueue_group(pair("x", "y")).await.unwrap();

    tokio::select! {
        ended = queue.drain() => panic!("{ended:?}"),
        () = script.until_seen(3) => {}
    }

    assert_eq!(script.story(), ["POST /a", "POST /x", "POST /y"]);
}

#[tokio::test(start_paused = true)]
async fn when_a_step_fails_the_ones_before_it_are_undone_backwards() {
    let script = Script::new([
        Say::Status(200),
        Say::Status(200),
        Say::Status(400),
        Say::Cut,
    ]);
    let (_folder, queue) = open(&script).await;

    let id = queue.enqueue_group(group()).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(
        script.story(),
        [
            "POST /a",
            "POST /b",
            "POST /c",
            "DELETE /b",
            "DELETE /b",
            "DELETE /a"
        ]
    );
    assert_eq!(queue.group(id).await.unwrap(), Some(GroupStatus::Undone));
    assert_eq!(queue.failed().await.unwrap()[0].operation, operation("c"));
    // Every step and every compensation has a key of its own, for all its attempts.
    let keys = script.keys();
    assert_eq!(keys[3], keys[4]);
    assert_eq!(keys.into_iter().collect::<BTreeSet<_>>().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_first_leaves_nothing_to_undo() {
    let script = Script::new([Say::Status(400)]);
    let (_folder, queue) = open(&script).await;

    let id = queue.enqueue_group(group()).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(script.story(), ["POST /a"]);
    assert_eq!(queue.group(id).await.unwrap(), Some(GroupStatus::Undone));
    let stats = queue.stats().await.unwrap();
    assert_eq!(
        (stats.waiting, stats.spare, stats.failed, stats.done),
        (0, 0, 1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_step_that_may_have_run_is_undone_too() {
    let unknown = serde_json::json!({"error": {"code": "OUTCOME_UNKNOWN", "message": "?"}});
    let script = Script::new([
        Say::Status(200),
        Say::Json(409, unknown),
        // There is no such thing: the step had not run.
        Say::Status(404),
    ]);
    let (_folder, queue) = open(&script).await;

    let id = queue.enqueue_group(group()).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(
        script.story(),
        ["POST /a", "POST /b", "DELETE /b", "DELETE /a"]
    );
    assert_eq!(queue.group(id).await.unwrap(), Some(GroupStatus::Undone));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_step_of_which_the_service_knows_an_earlier_attempt_is_undone_too() {
    let detail = "the operation could not be started: an earlier attempt under this key may have \
                  taken effect, and a retry with the same key may run it again";
    let not_run = serde_json::json!({"type": "urn:onlyonce:problem:not-run", "detail": detail});
    let script = Script::new([Say::Status(200), Say::Json(503, not_run), Say::Status(400)]);
    let (_folder, queue) = open(&script).await;

    queue.enqueue_group(group()).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(
        script.story(),
        ["POST /a", "POST /b", "POST /b", "DELETE /b", "DELETE /a"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_rejected_step_that_was_cut_off_before_is_undone_too() {
    let script = Script::new([Say::Status(200), Say::Cut, Say::Status(400)]);
    let (_folder, queue) = open(&script).await;

    queue.enqueue_group(group()).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(
        script.story(),
        ["POST /a", "POST /b", "POST /b", "DELETE /b", "DELETE /a"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_compensation_that_fails_leaves_the_group_stuck_until_it_is_retried() {
    let script = Script::new([
        Say::Status(200),
        Say::Status(200),
        Say::Status(400),
        Say::Status(403),
    ]);
    let (_folder, queue) = open(&script).await;
    let id = queue.enqueue_group(group()).await.unwrap();
    queue.drain().await.unwrap();
    assert_eq!(queue.group(id).await.unwrap(), Some(GroupStatus::Stuck));
    assert_eq!(script.story().last().unwrap(), "DELETE /b");

    let failed = queue.failed().await.unwrap();
    let stuck = failed
        .iter()
        .find(|failed| failed.operation == undo("b"))
        .unwrap();
    queue.retry(stuck.id).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(queue.group(id).await.unwrap(), Some(GroupStatus::Undone));
    assert_eq!(script.story()[4..], ["DELETE /b", "DELETE /a"]);
    assert_eq!(script.keys()[3], script.keys()[4]);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_compensation_can_be_discarded() {
    let script = Script::new([
        Say::Status(200),
        Say::Status(200),
        Say::Status(400),
        Say::Status(403),
    ]);
    let (_folder, queue) = open(&script).await;
    let id = queue.enqueue_group(group()).await.unwrap();
    queue.drain().await.unwrap();

    let failed = queue.failed().await.unwrap();
    let stuck = failed
        .iter()
        .find(|failed| failed.operation == undo("b"))
        .unwrap();
    queue.discard(stuck.id).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(script.story().last().unwrap(), "DELETE /a");
    assert_eq!(queue.group(id).await.unwrap(), Some(GroupStatus::Undone));
}

#[tokio::test(start_paused = true)]
async fn what_was_undone_is_not_known_as_done() {
    let script = Script::new([Say::Status(200), Say::Status(400)]);
    let (_folder, queue) = open(&script).await;
    let group = Group::new()
        .step_or_undo(operation("a"), undo("a"))
        .step(operation("b"));
    queue.enqueue_group(group).await.unwrap();
    queue.drain().await.unwrap();

    let again = queue.enqueue_unless_known(operation("a")).await.unwrap();

    assert!(again.is_new);
}

#[tokio::test(start_paused = true)]
async fn a_group_goes_on_where_a_crash_left_it() {
    let folder = tempdir().unwrap();
    let script = Script::new([
        Say::Status(200),
        Say::Status(200),
        Say::Status(400),
        Say::Hang,
    ]);
    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
    let id = queue.enqueue_group(group()).await.unwrap();
    tokio::select! {
        ended = queue.drain() => panic!("{ended:?}"),
        () = script.until_seen(4) => {}
    }
    drop(queue);

    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
    assert_eq!(queue.group(id).await.unwrap(), Some(GroupStatus::Undoing));
    queue.drain().await.unwrap();

    assert_eq!(script.story()[3..], ["DELETE /b", "DELETE /b", "DELETE /a"]);
    assert_eq!(script.keys()[3], script.keys()[4]);
    assert_eq!(queue.group(id).await.unwrap(), Some(GroupStatus::Undone));
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_group_does_not_change_on_its_own() {
    let script = Script::new([Say::Status(200), Say::Status(400)]);
    let (_folder, queue) = open(&script).await;
    let group = Group::new().step(operation("a")).step(operation("b"));
    queue.enqueue_group(group).await.unwrap();
    queue.drain().await.unwrap();
    let failed = queue.failed().await.unwrap();
    assert_eq!(failed[0].cause, Cause::Rejected);

    let retried = queue.retry(failed[0].id).await.unwrap_err();
    let edited = queue.edit(failed[0].id, operation("x")).await.unwrap_err();
    queue.discard(failed[0].id).await.unwrap();

    assert!(matches!(retried, QueueError::InGroup));
    assert!(matches!(edited, QueueError::InGroup));
    assert!(queue.failed().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_group_is_queued_whole_or_not_at_all() {
    let script = Script::new([]);
    let folder = tempdir().unwrap();
    let options = QueueOptions {
        operations_max: 4,
        ..QueueOptions::default()
    };
    let queue = Queue::open_with(folder.path(), script.sender(), options)
        .await
        .unwrap();

    let too_much = queue.enqueue_group(group()).await.unwrap_err();
    let empty = queue.enqueue_group(Group::new()).await.unwrap_err();

    assert!(matches!(too_much, QueueError::Full { .. }));
    assert!(matches!(empty, QueueError::EmptyGroup));
    assert_eq!(
        queue.stats().await.unwrap(),
        onlyonce_client::Stats::default()
    );
    let id = queue.enqueue(operation("a")).await.unwrap();
    queue.drain().await.unwrap();
    assert!(matches!(
        queue.status(id).await.unwrap(),
        Some(Status::Done { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_named_group_is_queued_once() {
    let script = Script::new([]);
    let (_folder, queue) = open(&script).await;
    let name = onlyonce_client::job_key("sign-up-7").unwrap();
    let named = || group().named(&name);
    let first = queue.enqueue_group(named()).await.unwrap();

    let waiting = queue.enqueue_group(named()).await.unwrap();
    queue.drain().await.unwrap();
    let after = queue.enqueue_group(named()).await.unwrap();
    let other = queue
        .enqueue_group(named().step(operation("d")))
        .await
        .unwrap_err();
    queue.drain().await.unwrap();

    assert_eq!((first, first), (waiting, after));
    assert!(matches!(other, QueueError::KeyInUse));
    assert_eq!(script.story(), ["POST /a", "POST /b", "POST /c"]);
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_key_expired_is_undone_and_told() {
    let (calendar, folder) = (Calendar::new(), tempdir().unwrap());
    let script = Script::new([Say::Cut]);
    let sender = || script.sender().clock(calendar.clone());
    let queue = Queue::open(folder.path(), sender()).await.unwrap();
    let id = queue.enqueue_group(group()).await.unwrap();
    tokio::select! {
        ended = queue.drain() => panic!("{ended:?}"),
        () = script.until_seen(1) => {}
    }
    drop(queue);
    calendar.pass(24 * HOUR);

    let queue = Queue::open(folder.path(), sender()).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(script.story(), ["POST /a", "DELETE /a"]);
    assert_eq!(queue.group(id).await.unwrap(), Some(GroupStatus::Undone));
}

/// A clock that began long before this process did.
struct Ahead(SystemClock);

impl Clock for Ahead {
    fn now(&self) -> Duration {
        self.0.now() + 1000 * HOUR
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }
}

#[tokio::test(start_paused = true)]
async fn a_compensation_does_not_wait_for_the_clock_of_a_process_that_is_gone() {
    let folder = tempdir().unwrap();
    let script = Script::new([Say::Status(200), Say::Status(400)]);
    let ahead = script.sender().clock(Arc::new(Ahead(SystemClock::new())));
    let queue = Queue::open(folder.path(), ahead).await.unwrap();
    let group = Group::new()
        .step_or_undo(operation("a"), undo("a"))
        .step(operation("b"));
    queue.enqueue_group(group).await.unwrap();
    drop(queue);

    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
    queue.drain().await.unwrap();

    assert_eq!(script.story(), ["POST /a", "POST /b", "DELETE /a"]);
    let seen = script.seen();
    assert!(seen[2].at - seen[1].at < HOUR);
}

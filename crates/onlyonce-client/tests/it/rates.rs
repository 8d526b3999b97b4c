//! Many operations: how often the disk is waited for, and that it is still waited for.

use std::fs;
use std::path::Path;

use futures_util::future::join_all;
use onlyonce_client::{Operation, Queue, QueueError, QueueOptions, Status, job_key};
use tempfile::tempdir;

use crate::support::{Script, operation};

const FRAME_HEAD_BYTES: usize = 24;
const LOG_HEAD_BYTES: usize = 32;

/// Transactions in the write-ahead log: the last frame of each says how large the database is.
fn commits(folder: &Path) -> usize {
    let log = fs::read(folder.join("queue.db-wal")).unwrap();
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let page_bytes = number(8) as usize;
    let frames = (LOG_HEAD_BYTES..log.len()).step_by(FRAME_HEAD_BYTES + page_bytes);
    frames.filter(|frame| number(frame + 4) != 0).count()
}

#[tokio::test]
async fn operations_that_are_queued_at_the_same_time_share_the_wait_for_the_disk() {
    let folder = tempdir().unwrap();
    let script = Script::new([]);
    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
    let before = commits(folder.path());

    let names: Vec<_> = (0..50).map(|number| format!("{number}")).collect();
    let queued = join_all(names.iter().map(|name| queue.enqueue(operation(name)))).await;
    let after = commits(folder.path());

    let mut ids: Vec<_> = queued.into_iter().map(Result::unwrap).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 50);
    assert!(after - before <= 3, "{} transactions", after - before);
    queue.drain().await.unwrap();
    assert_eq!(queue.stats().await.unwrap().done, 50);
}

#[tokio::test]
async fn what_is_sent_at_the_same_time_shares_it_too() {
    let folder = tempdir().unwrap();
    let options = QueueOptions {
        parallel: 50,
        ..QueueOptions::default()
    };
    let script = Script::new([]);
    let queue = Queue::open_with(folder.path(), script.sender(), options)
        .await
        .unwrap();
    let operations = (0..50).map(|number| operation(&number.to_string()));
    let ids = queue.enqueue_all(operations).await.unwrap();
    let before = commits(folder.path());

    queue.drain().await.unwrap();

    let shared = commits(folder.path()) - before;
    assert!(shared <= 20, "{shared} transactions");
    for id in ids {
        let status = queue.status(id).await.unwrap();
        assert!(matches!(status, Some(Status::Done { .. })));
    }
}

#[tokio::test]
async fn a_wish_that_cannot_be_fulfilled_spoils_no_other() {
    let folder = tempdir().unwrap();
    let options = QueueOptions {
        operations_max: 3,
        ..QueueOptions::default()
    };
    let script = Script::new([]);
    let queue = Queue::open_with(folder.path(), script.sender(), options)
        .await
        .unwrap();
    let key = job_key("7").unwrap();

    let (first, same, other, random, full, all) = tokio::join!(
        queue.enqueue_as(&key, operation("a")),
        queue.enqueue_as(&key, operation("a")),
        queue.enqueue_as(&key, operation("b")),
        queue.enqueue(operation("c")),
        queue.enqueue_all(["d", "e"].map(operation)),
        queue.enqueue_all(Vec::<Operation>::new()),
    );

    let (first, same) = (first.unwrap(), same.unwrap());
    assert!(first.is_new && !same.is_new && first.id == same.id);
    assert!(matches!(other, Err(QueueError::KeyInUse)));
    assert!(random.is_ok());
    assert!(matches!(full, Err(QueueError::Full { held: 2, .. })));
    assert_eq!(all.unwrap(), []);
    queue.drain().await.unwrap();
    assert_eq!(script.story(), ["POST /a", "POST /c"]);
}

#[tokio::test]
async fn all_of_many_operations_are_queued_in_order_or_none() {
    let folder = tempdir().unwrap();
    let options = QueueOptions {
        operations_max: 5,
        parallel: 1,
        ..QueueOptions::default()
    };
    let script = Script::new([]);
    let queue = Queue::open_with(folder.path(), script.sender(), options)
        .await
        .unwrap();

    let ids = queue.enqueue_all(["a", "b", "c"].map(operation)).await;
    let refused = queue.enqueue_all(["d", "e", "f"].map(operation)).await;
    queue.drain().await.unwrap();

    assert!(ids.unwrap().is_sorted());
    assert!(matches!(refused, Err(QueueError::Full { held: 3, .. })));
    assert_eq!(script.story(), ["POST /a", "POST /b", "POST /c"]);
    assert_eq!(queue.stats().await.unwrap().done, 3);
}

#[tokio::test]
async fn one_who_goes_away_while_queueing_holds_nobody_up() {
    let folder = tempdir().unwrap();
    let script = Script::new([]);
    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();

    let mut first = Box::pin(queue.enqueue(operation("a")));
    let begun = futures_util::poll!(&mut first);
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.enqueue(operation("b")).await }
    });
    drop(first);

    assert!(begun.is_pending());
    assert!(second.await.unwrap().is_ok());
}

//! What a crash leaves behind, and who may use it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use onlyonce_client::{Cause, Queue, QueueError, Status, job_key};
use tempfile::tempdir;

use crate::support::{Say, Script, operation};

#[tokio::test]
async fn an_operation_is_on_disk_with_its_key_before_it_is_first_sent() {
    let folder = tempdir().unwrap();
    let silent = Script::new([]);
    let queue = Queue::open(folder.path(), silent.sender()).await.unwrap();
    let id = queue.enqueue(operation("a")).await.unwrap();

    // What another process finds if this one dies here: the files as they are now.
    let copy = tempdir().unwrap();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let script = Script::new([]);
    let survivor = Queue::open(copy.path(), script.sender()).await.unwrap();
    survivor.drain().await.unwrap();
    queue.drain().await.unwrap();

    assert!(matches!(
        survivor.status(id).await.unwrap(),
        Some(Status::Done { .. })
    ));
    assert_eq!(script.story(), ["POST /a"]);
    assert_eq!(script.keys(), silent.keys());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_a_crash_cut_short_is_made_again_with_the_same_key() {
    let folder = tempdir().unwrap();
    let script = Script::new([Say::Hang]);
    for _ in 0..2 {
        let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
        if script.seen().is_empty() {
            queue.enqueue(operation("a")).await.unwrap();
            tokio::select! {
                ended = queue.drain() => panic!("{ended:?}"),
                () = script.until_seen(1) => {}
            }
        } else {
            queue.drain().await.unwrap();
        }
    }

    assert_eq!(script.story(), ["POST /a", "POST /a"]);
    assert_eq!(script.keys()[0], script.keys()[1]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_its_owner_dropped_does_not_block_the_next() {
    let folder = tempdir().unwrap();
    let script = Script::new([Say::Hang]);
    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
    queue.enqueue(operation("a")).await.unwrap();
    tokio::select! {
        ended = queue.drain() => panic!("{ended:?}"),
        () = script.until_seen(1) => {}
    }

    queue.drain().await.unwrap();

    assert_eq!(script.keys().len(), 2);
    assert_eq!(script.keys()[0], script.keys()[1]);
}

#[tokio::test(start_paused = true)]
async fn failed_operations_and_the_success_log_survive_a_restart() {
    let folder = tempdir().unwrap();
    let script = Script::new([Say::Status(200), Say::Status(400)]);
    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
    let key = job_key("1").unwrap();
    queue.enqueue_as(&key, operation("a")).await.unwrap();
    queue.drain().await.unwrap();
    queue.enqueue(operation("b")).await.unwrap();
    queue.drain().await.unwrap();
    drop(queue);

    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
    queue.drain().await.unwrap();

    assert!(queue.has_succeeded(&key).await.unwrap());
    let failed = queue.failed().await.unwrap();
    assert_eq!(
        (failed[0].cause, failed[0].key.expose()),
        (Cause::Rejected, &*script.keys()[1])
    );
    assert_eq!(script.seen().len(), 2);
}

#[tokio::test]
async fn a_torn_tail_of_the_log_costs_nothing_that_was_acknowledged() {
    for torn in [Torn::Garbage, Torn::HalfFrame] {
        let folder = tempdir().unwrap();
        let copy = tempdir().unwrap();
        let queue = Queue::open(folder.path(), Script::new([]).sender())
            .await
            .unwrap();
        queue.enqueue(operation("a")).await.unwrap();
        // What was written when the next transaction was cut short.
        let before = fs::metadata(folder.path().join("queue.db-wal"))
            .unwrap()
            .len();
        queue.enqueue(operation("b")).await.unwrap();
        for name in ["queue.db", "queue.db-wal"] {
            fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
        }
        let log = copy.path().join("queue.db-wal");
        let mut log = OpenOptions::new().append(true).open(log).unwrap();
        let expected = match torn {
            Torn::Garbage => {
                log.write_all(&[0xa5; 3000]).unwrap();
                vec!["POST /a", "POST /b"]
            }
            Torn::HalfFrame => {
                log.set_len(before + 100).unwrap();
                vec!["POST /a"]
            }
        };

        let script = Script::new([]);
        let survivor = Queue::open(copy.path(), script.sender()).await.unwrap();
        survivor.drain().await.unwrap();

        let mut story = script.story();
        story.sort();
        assert_eq!(story, expected);
    }
}

enum Torn {
    Garbage,
    HalfFrame,
}

#[tokio::test]
async fn one_queue_at_a_time_owns_a_folder() {
    let folder = tempdir().unwrap();
    let script = Script::new([]);
    let queue = Queue::open(folder.path(), script.sender()).await.unwrap();

    let second = Queue::open(folder.path(), script.sender())
        .await
        .err()
        .unwrap();

    assert!(matches!(second, QueueError::InUse { .. }));
    assert!(second.to_string().contains("in use"), "{second}");
    drop(queue);
    Queue::open(folder.path(), script.sender()).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_else_can_look_into_the_folder() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempdir().unwrap();
    let path = folder.path().join("outbox");

    let _queue = Queue::open(&path, Script::new([]).sender()).await.unwrap();

    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
}

#[cfg(unix)]
#[tokio::test]
async fn the_queue_s_files_are_its_owner_s_from_the_first_byte() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempdir().unwrap();
    let open = || Queue::open(folder.path(), Script::new([]).sender());
    let modes = || {
        let files = fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
        let mode = |file: &fs::DirEntry| file.metadata().unwrap().permissions().mode() & 0o777;
        let mut modes: Vec<_> = files
            .map(|file| (file.file_name().into_string().unwrap(), mode(&file)))
            .collect();
        modes.sort();
        modes
    };
    let private = ["owner", "queue.db", "queue.db-shm", "queue.db-wal"]
        .map(|name| (name.to_owned(), 0o600))
        .to_vec();

    let queue = open().await.unwrap();
    queue.enqueue(operation("a")).await.unwrap();
    assert_eq!(modes(), private);
    drop(queue);
    // As an earlier version left them.
    for file in fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let _queue = open().await.unwrap();

    assert_eq!(modes(), private);
}

/// What is written into a file that was deleted is gone with the process.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn nothing_is_acknowledged_or_sent_once_a_file_of_the_queue_is_gone_or_another() {
    let gone: fn(&Path) = |file| fs::remove_file(file).unwrap();
    let moved: fn(&Path) = |file| fs::rename(file, file.with_extension("old")).unwrap();
    let replaced: fn(&Path) = |file| {
        fs::copy(file, file.with_extension("new")).unwrap();
        fs::rename(file.with_extension("new"), file).unwrap();
    };
    for name in ["queue.db", "queue.db-wal", "owner"] {
        for fault in [gone, moved, replaced] {
            let folder = tempdir().unwrap();
            let script = Script::new([]);
            let queue = Queue::open(folder.path(), script.sender()).await.unwrap();
            let id = queue.enqueue(operation("a")).await.unwrap();
            fault(&folder.path().join(name));

            let queued = queue.enqueue(operation("b")).await;
            assert!(queued.is_err(), "{name}: it was acknowledged");
            let refused = [
                queued.map(drop),
                queue.enqueue_all([operation("c")]).await.map(drop),
                queue.mark_success(&job_key("1").unwrap()).await,
                queue.discard(id).await.map(drop),
                queue.drain().await,
                queue.run().await.map(drop),
            ];

            for refused in refused {
                let error = refused.unwrap_err();
                assert!(
                    matches!(error, QueueError::Replaced { .. }),
                    "{name}: {error}"
                );
                assert!(error.to_string().contains(name), "{error}");
            }
            assert!(script.seen().is_empty(), "{name}");
        }
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_named() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();

    let refused = Queue::open(&file, Script::new([]).sender())
        .await
        .err()
        .unwrap();

    assert!(matches!(refused, QueueError::Folder { .. }));
    assert!(refused.to_string().contains("file"), "{refused}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("queue.db");
    fs::write(&file, "somebody's letters".repeat(100)).unwrap();

    let refused = Queue::open(folder.path(), Script::new([]).sender()).await;

    assert!(refused.is_err());
    assert!(fs::read_to_string(&file).unwrap().starts_with("somebody's"));
}

//! A server that is killed in the middle of its work loses nothing that it acknowledged, and is
//! found again by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_core::{Claimed, Completed, Operate, Slot, Store};
use onlyonce_sql::MySqlStore;
use onlyonce_testkit::servers::{MariaDb, MariaDbOptions, Server};

use crate::sql::{LONG, answer, body, fresh, lease, soon};

const ROUNDS: usize = 3;
const TASKS: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_server_loses_nothing_it_acknowledged() {
    let server = Arc::new(MariaDb::start(MariaDbOptions::default()).unwrap());
    let store = Arc::new(MySqlStore::open(&server.url()).await.unwrap());
    let over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| tokio::spawn(work(Arc::clone(&store), Arc::clone(&over))))
        .collect();

    for _ in 0..ROUNDS {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let server = Arc::clone(&server);
        let killed = tokio::task::spawn_blocking(move || {
            server.kill()?;
            server.start_again()
        });
        killed.await.unwrap().unwrap();
        // It is found again by itself.
        soon(async { while store.claim(&fresh()).await.is_err() {} }).await;
    }
    over.store(true, Ordering::SeqCst);

    let mut stored = 0;
    for task in soon(join_all(tasks)).await {
        for slot in task.unwrap() {
            let record = store.get(&slot).await.unwrap().expect("an answer is lost");
            assert_eq!(body(&record), slot.to_string().as_bytes());
            stored += 1;
        }
    }
    assert!(stored > TASKS * ROUNDS, "{stored}");
}

/// Makes records until it is over; says which were acknowledged.
async fn work(store: Arc<MySqlStore>, over: Arc<AtomicBool>) -> Vec<Slot> {
    let mut stored = Vec::new();
    while !over.load(Ordering::SeqCst) {
        let claim = fresh();
        let response = answer(&claim.slot.to_string());
        let held = match store.claim(&claim).await {
            Ok(Claimed::Granted { lease, .. }) => lease,
            Ok(other) => panic!("a new slot is not empty: {other:?}"),
            Err(_) => continue,
        };
        if let Ok(completed) = store.complete(&held, &response, 100 * LONG).await {
            // Found: by itself, after the connection broke.
            assert!(!matches!(completed, Completed::Absent), "a claim is lost");
            stored.push(claim.slot);
        }
    }
    stored
}

#[tokio::test]
async fn a_server_that_restarts_is_found_again() {
    let server = MariaDb::start(MariaDbOptions::default()).unwrap();
    let store = MySqlStore::open(&server.url()).await.unwrap();
    lease(&store, &fresh()).await;

    server.restart().unwrap();

    // Every connection is gone, and nobody needs to know.
    lease(&store, &fresh()).await;
}

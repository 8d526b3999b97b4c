//! A server that is killed under load and comes back: nothing that was acknowledged is lost, and
//! nobody has to do anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce_core::{Claim, Claimed, Completed, Operate, Store, StoreErrorKind};
use onlyonce_sql::PostgresStore;
use onlyonce_testkit::servers::{Postgres, PostgresOptions, Server};

use super::support::{LONG, answer, body, fresh, rival, until};

const CALLERS: usize = 32;

#[derive(Default)]
struct Load {
    stop: AtomicBool,
    finished: AtomicUsize,
}

/// What a caller was told is stored: finished, or only claimed.
#[derive(Default)]
struct Acknowledged {
    finished: Vec<Claim>,
    claimed: Vec<Claim>,
}

async fn call(store: Arc<PostgresStore>, load: Arc<Load>) -> Acknowledged {
    let mut acknowledged = Acknowledged::default();
    while !load.stop.load(Ordering::SeqCst) {
        let claim = fresh();
        let lease = match store.claim(&claim).await {
            Ok(Claimed::Granted { lease, .. }) => lease,
            Ok(other) => panic!("a new slot was not free: {other:?}"),
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error:?}");
                continue;
            }
        };
        let body = answer(&claim.slot.to_string());
        match store.complete(&lease, &body, LONG * 10).await {
            // A reply was lost, and the statement repeated.
            Ok(Completed::Found(record)) => assert_eq!(record.token, claim.token),
            Ok(Completed::Stored(_)) => {}
            Ok(Completed::Absent) => panic!("an acknowledged claim is gone"),
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error:?}");
                acknowledged.claimed.push(claim);
                continue;
            }
        }
        acknowledged.finished.push(claim);
        load.finished.fetch_add(1, Ordering::SeqCst);
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let server = Postgres::start(PostgresOptions::default()).unwrap();
    let url = format!("{}?connect_timeout_ms=1000&timeout_ms=2000", server.url());
    let store = Arc::new(PostgresStore::open(&url).await.unwrap());
    let load = Arc::new(Load::default());
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| tokio::spawn(call(Arc::clone(&store), Arc::clone(&load))))
        .collect();
    let waits = fresh();
    store.claim(&waits).await.unwrap();
    let waiting = tokio::spawn({
        let (store, slot, token) = (Arc::clone(&store), waits.slot, waits.token);
        async move {
            while store.settled(&slot, &token, LONG).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });

    for _ in 0..2 {
        let enough = load.finished.load(Ordering::SeqCst) + 200;
        until(async || load.finished.load(Ordering::SeqCst) >= enough).await;
        tokio::task::block_in_place(|| server.kill().unwrap());
        tokio::time::sleep(Duration::from_millis(100)).await;
        tokio::task::block_in_place(|| server.start_again().unwrap());
    }
    let enough = load.finished.load(Ordering::SeqCst) + 200;
    until(async || load.finished.load(Ordering::SeqCst) >= enough).await;
    load.stop.store(true, Ordering::SeqCst);

    for caller in callers {
        let acknowledged = caller.await.unwrap();
        for claim in acknowledged.finished {
            let record = store.get(&claim.slot).await.unwrap().expect("it is there");
            assert_eq!(record.token, claim.token);
            assert_eq!(body(&record), claim.slot.to_string().as_bytes());
        }
        for claim in acknowledged.claimed {
            let found = store.claim(&rival(&claim)).await.unwrap();
            assert!(matches!(found, Claimed::Taken(record) if record.token == claim.token));
        }
    }
    assert!(!waiting.is_finished(), "its claim is as alive as before");
    store.forget(&waits.slot).await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .unwrap()
        .unwrap();
}

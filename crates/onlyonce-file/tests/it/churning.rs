//! Expired records leave the disk by themselves, and the disk stays bounded whatever is written.

use onlyonce_core::{Operate as _, Response, Store as _};
use std::sync::Arc;

use super::support::{
    DAY, MINUTE, Place, SECOND, SEGMENT_BYTES, answer, claim, finish, grant, replayed, slot, until,
};

/// A full segment, and the one after it.
const FEW: u64 = 2 * SEGMENT_BYTES + (16 << 10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_have_expired_leave_the_disk_by_themselves() {
    let place = Place::new();
    let store = place.open().await;
    for n in 0..1000 {
        finish(&store, n, &answer(n, 1024), MINUTE).await;
    }
    assert!(place.bytes() > 1_000_000);

    place.clock.advance(2 * MINUTE);

    until("the log is small again", || place.bytes() <= FEW).await;
    assert_eq!(store.stats().await.unwrap().records, 0);
    until("their lists are gone too", || {
        place.files("idx").len() <= place.segments().len()
    })
    .await;
}

/// As many records as fit in a hundred segments, never more than a few hundred alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_stays_bounded_while_records_come_and_go() {
    const RECORDS: u64 = 100_000;
    const AT_ONCE: u64 = 250;
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let body = Arc::new(Response::new(http::StatusCode::OK, vec![7; 64]));
    let mut most = 0;
    for first in (0..RECORDS).step_by(AT_ONCE as usize) {
        let tasks: Vec<_> = (first..first + AT_ONCE)
            .map(|n| {
                let (store, body) = (Arc::clone(&store), Arc::clone(&body));
                tokio::spawn(async move { finish(&store, n, &body, SECOND).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        place.clock.advance(2 * SECOND);
        most = most.max(place.bytes());
        // Nobody is that fast for long: a hundred times more than fits would be dead.
        until("what is dead has left the disk", || {
            place.bytes() < 40 * SEGMENT_BYTES
        })
        .await;
    }

    assert!(most < 60 * SEGMENT_BYTES, "{most} bytes");
    until("the log is small again", || place.bytes() <= FEW).await;
}

/// Two that live for days among thousands that do not: they are carried along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_alive_survives_the_cleaning_of_its_segment() {
    let place = Place::new();
    let store = place.open().await;
    let kept = answer(1, 5000);
    finish(&store, 1, &kept, 10 * DAY).await;
    store.count_replays(&[(slot(1), 7)]).await.unwrap();
    let running = grant(&store, &claim(2)).await;
    for n in 100..600 {
        finish(&store, n, &answer(n, 1024), MINUTE).await;
    }
    let before = replayed(&store, 1).await.unwrap();

    place.clock.advance(2 * MINUTE);
    until("the log is small again", || place.bytes() <= FEW).await;

    let after = replayed(&store, 1).await.unwrap();
    assert_eq!(after.response(), Some(&kept));
    assert_eq!((after.replays, after.expires_at), (7, before.expires_at));
    drop(store);
    let store = place.open().await;
    assert_eq!(replayed(&store, 1).await.unwrap().response(), Some(&kept));
    let completed = store.complete(&running, &answer(2, 10), DAY).await;
    assert!(matches!(completed, Ok(onlyonce_core::Completed::Stored(_))));
    assert_eq!(store.stats().await.unwrap().records, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_store_lets_go_of_what_has_expired() {
    let place = Place::new();
    let store = place.open().await;
    finish(&store, 1, &answer(1, 1024), MINUTE).await;
    let first = place.segments();

    place.clock.advance(2 * MINUTE);

    until("its file is gone", || place.segments() != first).await;
    until("nothing is left of it", || place.bytes() < 1000).await;
}

#[tokio::test]
async fn a_store_at_its_bound_refuses_new_keys_and_finishes_the_others() {
    let place = Place::new();
    let store = onlyonce_file::FileStore::builder(place.path())
        .clock(Arc::clone(&place.clock) as _)
        .segment_bytes(SEGMENT_BYTES)
        .bytes_max(100_000)
        .open()
        .await
        .unwrap();
    let running = grant(&store, &claim(0)).await;
    let mut n = 1;
    let refused = loop {
        match store.claim(&claim(n)).await {
            Ok(onlyonce_core::Claimed::Granted { lease, .. }) => {
                store
                    .complete(&lease, &answer(n, 1024), MINUTE)
                    .await
                    .unwrap();
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
        n += 1;
    };

    assert_eq!(refused.kind, onlyonce_core::StoreErrorKind::Full);
    assert!((60..120).contains(&n), "{n} records");
    assert!(replayed(&store, 1).await.is_some());
    let completed = store.complete(&running, &answer(0, 1024), MINUTE).await;
    assert!(matches!(completed, Ok(onlyonce_core::Completed::Stored(_))));
    place.clock.advance(2 * MINUTE);
    until("there is room again", || place.bytes() < 90_000).await;
    grant(&store, &claim(n)).await;
}

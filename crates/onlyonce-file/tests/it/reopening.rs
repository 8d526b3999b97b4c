//! What a store knew, it knows again after it was closed and opened.

use std::time::Duration;

use onlyonce_core::operate::{Filter, Newest, Page};
use onlyonce_core::{
    Claim, Claimed, Lease, OnLapse, Operate as _, Record, Release, Slot, State, Store,
};
use onlyonce_file::FileStore;

use super::support::{
    DAY, MINUTE, Place, SECOND, answer, claim, finish, grant, replayed, slot, until,
};

const ALL: Page = Page {
    after: None,
    records_max: usize::MAX,
};

async fn everything(store: &FileStore) -> Vec<(Slot, Record)> {
    store.list(&Filter::default(), &ALL).await.unwrap()
}

/// The same with all claims lapsed, as the next process finds them.
fn lapsed(mut records: Vec<(Slot, Record)>) -> Vec<(Slot, Record)> {
    for (_, record) in &mut records {
        if let State::Pending { lease_left } = &mut record.state {
            *lease_left = Duration::ZERO;
        }
    }
    records
}

/// A record in every state there is, and slots that were left in every way.
async fn every_state(place: &Place, store: &FileStore) -> Lease {
    let running = grant(store, &claim(0)).await;
    let lapsed = Claim {
        lease_for: SECOND,
        ..claim(1)
    };
    grant(store, &lapsed).await;
    finish(store, 2, &answer(2, 1000), DAY).await;
    let failure = onlyonce_core::Response::new(http::StatusCode::BAD_GATEWAY, "no");
    finish(store, 3, &std::sync::Arc::new(failure), DAY).await;
    let held = Claim {
        on_lapse: OnLapse::Hold,
        ..claim(4)
    };
    let unknown = grant(store, &held).await;
    store.release(&unknown, Release::Unknown).await.unwrap();
    finish(store, 5, &answer(5, 10), DAY).await;
    assert!(store.extend(&slot(5), DAY).await.unwrap());
    store
        .count_replays(&[(slot(5), 3), (slot(2), 1)])
        .await
        .unwrap();
    finish(store, 6, &answer(6, 10), DAY).await;
    assert!(store.forget(&slot(6)).await.unwrap());
    let given_back = grant(store, &claim(7)).await;
    store.release(&given_back, Release::NotRun).await.unwrap();
    finish(store, 8, &answer(8, 10), SECOND).await;
    place.clock.advance(2 * SECOND);
    running
}

#[tokio::test]
async fn every_state_is_kept() {
    let place = Place::new();
    let store = place.open().await;
    let running = every_state(&place, &store).await;
    let before = everything(&store).await;
    let stats = store.stats().await.unwrap();
    drop(store);

    let store = place.open().await;

    assert_eq!(before.len(), 6);
    assert_eq!(everything(&store).await, lapsed(before));
    assert_eq!(store.stats().await.unwrap(), stats);
    assert_eq!(replayed(&store, 5).await.unwrap().replays, 3);
    for gone in [6, 7, 8] {
        assert_eq!(replayed(&store, gone).await, None);
    }
    let renewed = store.renew(&running, MINUTE).await.unwrap();
    assert!(matches!(renewed, onlyonce_core::Renewed::Kept));
}

#[tokio::test]
async fn every_state_is_kept_through_many_segments_and_openings() {
    let place = Place::new();
    let store = place.open().await;
    every_state(&place, &store).await;
    for n in 100..400 {
        finish(&store, n, &answer(n, 1000), DAY).await;
    }
    let before = everything(&store).await;
    drop(store);

    assert!(place.segments().len() > 3);
    let before = lapsed(before);
    for opening in 0..3 {
        let store = place.open().await;
        assert_eq!(everything(&store).await, before, "opening {opening}");
    }
}

#[tokio::test]
async fn a_store_without_its_lists_reads_its_log() {
    let place = Place::new();
    let store = place.open().await;
    for n in 0..300 {
        finish(&store, n, &answer(n, 1000), DAY).await;
    }
    until("the full segments are listed", || {
        place.files("idx").len() + 1 == place.segments().len()
    })
    .await;
    let before = everything(&store).await;
    drop(store);

    for list in place.files("idx") {
        std::fs::remove_file(list).unwrap();
    }

    assert_eq!(everything(&place.open().await).await, before);
}

#[tokio::test]
async fn what_was_agreed_on_is_agreed_on_for_ever() {
    let place = Place::new();
    let store = place.open().await;
    let secret: Vec<u8> = (0..=255).collect();
    store.agree("secret", &secret).await.unwrap();
    store.agree("ünïcode name", b"").await.unwrap();
    drop(store);

    let store = place.open().await;

    assert_eq!(store.agree("secret", b"other").await.unwrap(), secret);
    assert_eq!(store.agree("ünïcode name", b"other").await.unwrap(), b"");
}

/// The claim asked for a day, its answer was kept for a second: the claim, older and longer, must
/// not be there again when the answer is gone.
#[tokio::test]
async fn an_old_claim_does_not_come_back_when_its_answer_has_expired() {
    let place = Place::new();
    let store = place.open().await;
    let lease = grant(&store, &claim(0)).await;
    // Into the next segments.
    for n in 100..200 {
        finish(&store, n, &answer(n, 1000), DAY).await;
    }
    store
        .complete(&lease, &answer(0, 10), SECOND)
        .await
        .unwrap();
    let given_back = grant(&store, &claim(1)).await;
    for n in 200..300 {
        finish(&store, n, &answer(n, 1000), DAY).await;
    }
    store.release(&given_back, Release::NotRun).await.unwrap();
    place.clock.advance(2 * SECOND);
    store.sweep(usize::MAX).await.unwrap();
    for n in 300..400 {
        finish(&store, n, &answer(n, 1000), DAY).await;
    }

    for _ in 0..3 {
        assert_eq!(replayed(&store, 0).await, None);
        assert_eq!(replayed(&store, 1).await, None);
    }
    drop(store);
    let store = place.open().await;
    assert_eq!(replayed(&store, 0).await, None);
    assert_eq!(replayed(&store, 1).await, None);
    assert_eq!(everything(&store).await.len(), 300);
}

/// There is one owner at a time: when the folder is opened, every holder of a claim is gone.
#[tokio::test]
async fn a_claim_of_an_earlier_process_has_lapsed_when_the_store_is_opened() {
    let place = Place::new();
    let store = place.open().await;
    let earlier = grant(&store, &claim(0)).await;
    let crashed = place.crashed();

    let store = crashed.open().await;

    assert!(replayed(&store, 0).await.unwrap().is_lapsed());
    let settled = store.settled(&earlier.slot, &earlier.token, DAY);
    tokio::time::timeout(MINUTE, settled)
        .await
        .unwrap()
        .unwrap();
    let claimed = store.claim(&claim(0)).await.unwrap();
    let Claimed::Granted { lease, overtook } = claimed else {
        panic!("not granted: {claimed:?}");
    };
    assert_eq!((lease.attempt, overtook.is_some()), (2, true));
    let late = store.complete(&earlier, &answer(0, 1), DAY).await.unwrap();
    assert!(matches!(late, onlyonce_core::Completed::Found(_)));
    assert!(!replayed(&store, 0).await.unwrap().is_lapsed());
}

#[tokio::test]
async fn a_held_claim_of_an_earlier_process_is_unknown_at_once_and_never_runs_again() {
    let place = Place::new();
    let store = place.open().await;
    let held = Claim {
        on_lapse: OnLapse::Hold,
        ..claim(0)
    };
    grant(&store, &held).await;
    let before = replayed(&store, 0).await.unwrap();
    let crashed = place.crashed();

    let store = crashed.open().await;

    let again = store.claim(&claim(0)).await.unwrap();
    let Claimed::Taken(record) = again else {
        panic!("not refused: {again:?}");
    };
    assert!(record.is_lapsed());
    assert_eq!(record.keep_left, before.keep_left);
    let resolved = store.resolve(&slot(0), &answer(0, 1), DAY).await.unwrap();
    assert!(matches!(resolved, onlyonce_core::operate::Resolved::Stored));
}

/// A segment that is cleaned writes its claims again, at the end of the log.
#[tokio::test]
async fn a_claim_that_lapsed_with_its_process_stays_so_when_it_is_moved() {
    let place = Place::new();
    let store = place.open().await;
    grant(&store, &claim(0)).await;
    for n in 100..400 {
        finish(&store, n, &answer(n, 1000), DAY).await;
    }
    drop(store);
    let store = place.open().await;
    let first = place.segments().remove(0);

    for n in 100..400 {
        store.forget(&slot(n)).await.unwrap();
    }

    store.sweep(usize::MAX).await.unwrap();
    until("the first segment is cleaned", || !first.exists()).await;
    assert!(replayed(&store, 0).await.unwrap().is_lapsed());
}

#[tokio::test]
async fn a_clock_that_was_set_back_shortens_nothing() {
    let place = Place::new();
    let store = place.open().await;
    finish(&store, 0, &answer(0, 100), DAY).await;
    let lease = grant(&store, &claim(1)).await;
    drop(store);

    place.clock.go_back(600 * SECOND);

    let store = place.open().await;
    let record = replayed(&store, 0).await.unwrap();
    assert_eq!(record.response(), Some(&answer_of(&record)));
    assert_eq!(record.keep_left, DAY);
    let completed = store.complete(&lease, &answer(1, 1), MINUTE).await;
    assert!(matches!(completed, Ok(onlyonce_core::Completed::Stored(_))));
    place.clock.advance(DAY);
    assert_eq!(replayed(&store, 0).await, None);
    assert_eq!(replayed(&store, 1).await, None);
}

fn answer_of(record: &Record) -> std::sync::Arc<onlyonce_core::Response> {
    std::sync::Arc::clone(record.response().unwrap())
}

#[tokio::test]
async fn a_folder_can_be_opened_again_as_soon_as_its_store_is_dropped() {
    let place = Place::new();
    for n in 0..20 {
        let store = place.open().await;
        finish(&store, n, &answer(n, 10), DAY).await;
    }

    let store = place.open().await;

    assert_eq!(everything(&store).await.len(), 20);
    assert_eq!(place.segments().len(), 1);
}

#[tokio::test]
async fn deadlines_beyond_all_time_are_kept() {
    let place = Place::new();
    let store = place.open().await;
    let for_ever = Claim {
        lease_for: Duration::MAX,
        keep_for: Duration::MAX,
        ..claim(0)
    };
    let lease = grant(&store, &for_ever).await;
    store.renew(&lease, Duration::MAX).await.unwrap();
    store.extend(&lease.slot, Duration::MAX).await.unwrap();
    store
        .complete(&lease, &answer(0, 1), Duration::MAX)
        .await
        .unwrap();
    drop(store);

    let store = place.open().await;

    let again = store.claim(&claim(0)).await.unwrap();
    let Claimed::Taken(record) = again else {
        panic!("not replayed: {again:?}");
    };
    assert_eq!(record.expires_at.to_string(), "9999-12-31T23:59:59.999Z");
    assert_eq!(store.sweep(usize::MAX).await.unwrap(), 0);
}

/// Of what began while it is open it knows the order, of the rest only what it reads.
#[tokio::test]
async fn the_newest_records_are_found_among_those_of_this_process_and_of_the_one_before() {
    let place = Place::new();
    let store = place.open().await;
    for number in 0..6 {
        finish(&store, number, &answer(number, 10), DAY).await;
        place.clock.advance(SECOND);
    }
    drop(store);
    let store = place.open().await;
    for number in 6..10 {
        finish(&store, number, &answer(number, 10), DAY).await;
        place.clock.advance(SECOND);
    }
    assert!(store.forget(&slot(8)).await.unwrap());
    let newest = async |before: Option<&Record>, records_max| -> Vec<(Slot, Record)> {
        let before = before.map(|it| (it.created_at, Slot::from_bytes([0; Slot::BYTES])));
        let page = Newest {
            before,
            records_max,
        };
        store.newest(&Filter::default(), &page).await.unwrap()
    };
    let slots = |found: &[(Slot, Record)]| found.iter().map(|it| it.0).collect::<Vec<_>>();

    let first = newest(None, 2).await;
    let second = newest(Some(&first[1].1), 2).await;
    let all = newest(None, 100).await;

    assert_eq!(slots(&first), [slot(9), slot(7)]);
    assert_eq!(slots(&second), [slot(6), slot(5)]);
    let expected: Vec<Slot> = [9, 7, 6, 5, 4, 3, 2, 1, 0].map(slot).to_vec();
    assert_eq!(slots(&all), expected);
}

/// Which of them a sweep of `store` hands over, and how long they were there.
async fn ended(store: &FileStore) -> Vec<(Slot, Duration)> {
    let swept = store.sweep_ended(100).await.unwrap();
    let ended = swept.ended.into_iter().map(|it| (it.slot, it.lifetime));
    ended.collect()
}

#[tokio::test]
async fn what_expired_while_the_store_was_closed_is_handed_over_once() {
    let place = Place::new();
    let store = place.open().await;
    // Over before it is closed: this process knows.
    finish(&store, 0, &answer(0, 10), SECOND).await;
    place.clock.advance(2 * SECOND);
    finish(&store, 1, &answer(1, 10), MINUTE).await;
    finish(&store, 2, &answer(2, 10), DAY).await;
    finish(&store, 3, &answer(3, 10), MINUTE).await;
    assert!(store.forget(&slot(3)).await.unwrap());
    finish(&store, 4, &answer(4, 10), MINUTE).await;
    assert!(store.extend(&slot(4), DAY).await.unwrap());
    let short = Claim {
        lease_for: SECOND,
        keep_for: SECOND,
        ..claim(5)
    };
    grant(&store, &short).await;
    assert_eq!(ended(&store).await, []);
    drop(store);
    place.clock.advance(2 * MINUTE);

    let store = place.open().await;
    let handed = ended(&store).await;

    assert_eq!(handed, [(slot(1), 2 * MINUTE)]);
    assert_eq!(ended(&store).await, []);
    assert!(replayed(&store, 2).await.is_some());
    drop(store);
    assert_eq!(ended(&place.open().await).await, []);
}

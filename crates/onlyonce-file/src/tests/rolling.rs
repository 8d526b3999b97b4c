//! A disk that fails where a segment ends, and tells of it once.

use super::*;

/// Room for a good sixty of the claims made here.
const SEGMENT: u64 = SEGMENT_BYTES_MIN;

fn long(n: u8) -> Claim {
    let meta = Meta {
        operation: "x".repeat(1000).into(),
        ..Meta::clone(&claim(n).meta)
    };
    Claim {
        meta: Arc::new(meta),
        ..claim(n)
    }
}

/// A store whose segment is full of claims that are not durable yet.
async fn with_a_full_segment(bed: &Bed) -> FileStore {
    let mut builder = FileStore::builder(bed.folder.path()).segment_bytes(SEGMENT);
    builder.disk = Arc::clone(&bed.disk) as _;
    let store = builder.open().await.unwrap();
    for n in 0.. {
        if store.shared.segments.bytes() >= SEGMENT {
            break;
        }
        let claimed = store.claim(&long(n)).await;
        assert!(matches!(claimed, Ok(Claimed::Granted { .. })));
    }
    assert_eq!(store.shared.segments.all().len(), 1);
    store
}

/// The disk has lost something of the claims, and says so once: what is synced after that proves nothing.
#[tokio::test]
async fn an_answer_behind_a_sync_that_failed_at_a_roll_is_not_acknowledged() {
    let bed = Bed::new();
    let store = with_a_full_segment(&bed).await;
    bed.disk.syncs_to_fail.store(1, Ordering::Relaxed);

    let completed = store.complete(&long(0).lease(), &answer(), DAY).await;

    assert_restart(completed);
    assert_restart(store.claim(&claim(200)).await);
    assert_restart(store.get(&long(0).slot).await);
}

#[tokio::test]
async fn a_claim_behind_a_sync_that_failed_at_a_roll_is_not_granted() {
    for next in [claim(200), power_cut::hold(200)] {
        let bed = Bed::new();
        let store = with_a_full_segment(&bed).await;
        bed.disk.syncs_to_fail.store(1, Ordering::Relaxed);

        assert_restart(store.claim(&next).await);
    }
}

/// The sweeper begins segments too: what is asked along with that is not answered either.
#[tokio::test]
async fn nothing_is_answered_along_with_a_roll_that_failed() {
    let bed = Bed::new();
    let store = with_a_full_segment(&bed).await;
    bed.disk.syncs_to_fail.store(1, Ordering::Relaxed);

    let lease = long(0).lease();
    let answer = answer();
    let (rolled, completed, renewed) = tokio::join!(
        store.ask(Question::Roll),
        store.complete(&lease, &answer, DAY),
        store.ping(),
    );

    assert_restart(rolled.map(drop));
    assert_restart(completed);
    assert_restart(renewed);
}

//! What happens at the same time as a change: no answer from before it is remembered after it.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_a_forget_is_not_remembered_after_it() {
    for bed in [Bed::shared(), Bed::exclusive()] {
        let claim = done(&*bed.raw, "stored", LONG).await;
        let gate = Arc::new(Semaphore::new(0));
        bed.rough.next([Fault::HoldReply(Arc::clone(&gate))]);
        let reading = tokio::spawn({
            let (store, claim) = (Arc::clone(&bed.store), rival(&claim));
            async move { store.claim(&claim).await }
        });
        tokio::task::yield_now().await;

        bed.store.forget(&claim.slot).await.unwrap();
        gate.add_permits(1);
        let old = reading.await.unwrap().unwrap();

        assert!(matches!(old, Claimed::Taken(_)));
        assert!(is_granted(&*bed.store, &claim).await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_stored_before_a_forget_is_not_remembered_after_it() {
    for bed in [Bed::shared(), Bed::exclusive()] {
        let claim = claim();
        let lease = lease(&*bed.store, &claim).await;
        let gate = Arc::new(Semaphore::new(0));
        bed.rough.next([Fault::HoldReply(Arc::clone(&gate))]);
        let storing = tokio::spawn({
            let store = Arc::clone(&bed.store);
            async move { store.complete(&lease, &answer("stored"), LONG).await }
        });
        tokio::task::yield_now().await;

        bed.store.forget(&claim.slot).await.unwrap();
        gate.add_permits(1);
        let stored = storing.await.unwrap().unwrap();

        assert!(matches!(stored, Completed::Stored(_)));
        assert!(is_granted(&*bed.store, &claim).await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_during_a_forget_does_not_outlive_it() {
    let bed = Bed::exclusive();
    let claim = done(&*bed.raw, "stored", LONG).await;
    let gate = Arc::new(Semaphore::new(0));
    bed.rough.next([Fault::HoldCall(Arc::clone(&gate))]);
    let forgetting = tokio::spawn({
        let (store, slot) = (Arc::clone(&bed.store), claim.slot);
        async move { store.forget(&slot).await }
    });
    tokio::task::yield_now().await;

    taken(&*bed.store, &claim).await;
    bed.rough.asked();
    assert!(bed.is_remembered(&claim).await);
    gate.add_permits(1);
    assert!(forgetting.await.unwrap().unwrap());

    assert!(is_granted(&*bed.store, &claim).await);
}

#[tokio::test(start_paused = true)]
async fn a_forget_whose_reply_is_lost_is_in_force_too() {
    for bed in [Bed::shared(), Bed::exclusive()] {
        let claim = bed.remembered(LONG).await;
        bed.rough.next([Fault::LoseReply]);

        failure(bed.store.forget(&claim.slot).await);

        assert!(is_granted(&*bed.store, &claim).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_forget_whose_caller_goes_away_is_in_force_too() {
    for bed in [Bed::shared(), Bed::exclusive()] {
        let claim = bed.remembered(LONG).await;
        bed.rough.next([Fault::Slow(LONG)]);

        let gone = tokio::time::timeout(SECOND, bed.store.forget(&claim.slot)).await;
        assert!(gone.is_err());

        assert!(is_granted(&*bed.store, &claim).await);
    }
}

/// When the store will do it, or whether it has, is unknown; so it counts as another's.
#[tokio::test(start_paused = true)]
async fn after_a_forget_of_unknown_end_even_an_exclusive_cache_looks_again_soon() {
    let bed = Bed::exclusive();
    let claim = bed.remembered(LONG).await;
    bed.rough.next([Fault::Hang]);
    let gone = tokio::time::timeout(SECOND, bed.store.forget(&claim.slot)).await;
    assert!(gone.is_err());
    taken(&*bed.store, &claim).await;

    bed.raw.forget(&claim.slot).await.unwrap();
    sleep(5 * SECOND).await;

    assert!(is_granted(&*bed.store, &claim).await);
}

/// Many readers, each time one more result, and never a forgotten one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_reader_brings_back_what_was_forgotten() {
    const READERS: usize = 8;
    const ROUNDS: usize = 300;
    let store = Arc::new(Cached::new(Arc::new(MemoryStore::new())).exclusive());
    let slot = claim();
    let over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (store, claim, over) = (Arc::clone(&store), slot.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let claim = rival(&claim);
                    if let Claimed::Granted { lease, .. } = store.claim(&claim).await.unwrap() {
                        store.release(&lease, Release::NotRun).await.unwrap();
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();

    for round in 0..ROUNDS {
        let lease = loop {
            match store.claim(&rival(&slot)).await.unwrap() {
                Claimed::Granted { lease, .. } => break lease,
                Claimed::Taken(record) => {
                    assert!(
                        record.response().is_none(),
                        "forgotten, but back in {round}"
                    );
                }
                Claimed::Dead => panic!("a new token cannot be dead"),
            }
            tokio::task::yield_now().await;
        };
        let response = Arc::new(Response::new(StatusCode::OK, round.to_string()));
        store.complete(&lease, &response, LONG).await.unwrap();
        assert_eq!(taken(&*store, &slot).await.response(), Some(&response));
        assert!(store.forget(&slot.slot).await.unwrap());
    }
    over.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await.unwrap();
    }
}

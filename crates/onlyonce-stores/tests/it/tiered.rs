//! A tier of copies before a durable store (B6): quicker while it is there, and correct under
//! delete, expiry and whatever happens to it.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Claimed, MemoryStore, Operate, Store, Verb};
use onlyonce_stores::Tiered;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::rough::{
    DOWN, Fault, LONG, Rough, WrappedBed, done, failure, is_granted, replayed, rival, taken,
};

onlyonce_testkit::conformance_suite!(
    WrappedBed::new("tiered", async |store| {
        Tiered::new(Arc::new(MemoryStore::new()), store)
    })
    .await
);

const SECOND: Duration = Duration::from_secs(1);

struct Bed {
    quick: Arc<Rough>,
    durable: Arc<Rough>,
    store: Arc<Tiered>,
}

impl Bed {
    fn new() -> Self {
        let rough = || Rough::new(Arc::new(MemoryStore::new()));
        let (quick, durable) = (rough(), rough());
        let store = Arc::new(Tiered::new(quick.clone(), durable.clone()));
        Self {
            quick,
            durable,
            store,
        }
    }

    /// Lets the copy be made that nobody waits for.
    async fn copied(&self) {
        sleep(SECOND / 10).await;
        self.quick.asked();
        self.durable.asked();
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_copied_when_it_is_stored_and_replayed_without_the_database() {
    let bed = Bed::new();
    let claim = done(&*bed.store, "stored", LONG).await;
    bed.copied().await;
    bed.durable.always(DOWN);

    let copy = taken(&*bed.store, &claim).await;

    assert!(bed.durable.asked().is_empty());
    bed.durable.always(Fault::Nothing);
    let original = bed.durable.get(&claim.slot).await.unwrap().unwrap();
    assert!(copy.keep_left < original.keep_left);
    let keep_left = original.keep_left;
    assert_eq!(onlyonce_core::Record { keep_left, ..copy }, original);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_took_long_is_copied_when_it_is_first_read() {
    let bed = Bed::new();
    let first = crate::rough::claim();
    let lease = crate::rough::lease(&*bed.store, &first).await;
    sleep(30 * SECOND).await;
    let stored = crate::rough::answer("stored");
    bed.store.complete(&lease, &stored, LONG).await.unwrap();
    bed.copied().await;

    assert_eq!(replayed(&*bed.store, &first).await, b"stored");
    assert_eq!(bed.durable.asked(), [Verb::Claim]);
    bed.copied().await;
    assert_eq!(replayed(&*bed.store, &first).await, b"stored");

    assert!(bed.durable.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_copy_ends_before_its_original() {
    let bed = Bed::new();
    let claim = done(&*bed.store, "stored", 10 * SECOND).await;
    bed.copied().await;

    sleep(5 * SECOND).await;
    assert_eq!(replayed(&*bed.store, &claim).await, b"stored");
    assert_eq!(bed.durable.asked(), [Verb::Claim]);
    sleep(6 * SECOND).await;

    assert!(is_granted(&*bed.store, &claim).await);
}

#[tokio::test(start_paused = true)]
async fn what_is_about_to_end_is_not_copied() {
    let bed = Bed::new();
    let claim = done(&*bed.store, "stored", 5 * SECOND).await;
    bed.copied().await;

    replayed(&*bed.store, &claim).await;

    assert_eq!(bed.durable.asked(), [Verb::Claim]);
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_forgotten_in_both() {
    let bed = Bed::new();
    let claim = done(&*bed.store, "stored", LONG).await;
    bed.copied().await;

    assert!(bed.store.forget(&claim.slot).await.unwrap());

    assert!(is_granted(&*bed.store, &claim).await);
}

/// It was read before the forget, and would be copied after it.
#[tokio::test(start_paused = true)]
async fn what_was_read_before_a_forget_does_not_come_back_after_it() {
    let bed = Bed::new();
    let claim = done(&*bed.durable, "stored", LONG).await;
    let gate = Arc::new(Semaphore::new(0));
    bed.durable.next([Fault::HoldReply(gate.clone())]);
    let (store, late) = (bed.store.clone(), rival(&claim));
    let reading = tokio::spawn(async move { store.claim(&late).await });
    sleep(SECOND).await;

    assert!(bed.store.forget(&claim.slot).await.unwrap());
    gate.add_permits(1);

    let read = reading.await.unwrap().unwrap();
    assert!(matches!(read, Claimed::Taken(_)), "{read:?}");
    bed.copied().await;
    assert!(is_granted(&*bed.store, &claim).await);
}

/// The same for one who stored it.
#[tokio::test(start_paused = true)]
async fn what_was_stored_before_a_forget_does_not_come_back_after_it() {
    let bed = Bed::new();
    let first = crate::rough::claim();
    let lease = crate::rough::lease(&*bed.store, &first).await;
    let gate = Arc::new(Semaphore::new(0));
    bed.durable.next([Fault::HoldReply(gate.clone())]);
    let store = bed.store.clone();
    let storing = tokio::spawn(async move {
        let stored = crate::rough::answer("stored");
        store.complete(&lease, &stored, LONG).await
    });
    sleep(SECOND).await;

    assert!(bed.store.forget(&first.slot).await.unwrap());
    gate.add_permits(1);

    storing.await.unwrap().unwrap();
    bed.copied().await;
    assert!(is_granted(&*bed.store, &first).await);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_forgotten_where_its_copy_cannot_be() {
    let bed = Bed::new();
    let claim = done(&*bed.store, "stored", LONG).await;
    bed.copied().await;
    bed.quick.always(DOWN);

    failure(bed.store.forget(&claim.slot).await);

    assert!(bed.durable.get(&claim.slot).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn without_the_quick_store_everything_goes_on() {
    let bed = Bed::new();
    bed.quick.always(DOWN);

    let claim = done(&*bed.store, "stored", LONG).await;

    assert_eq!(replayed(&*bed.store, &claim).await, b"stored");
}

#[tokio::test(start_paused = true)]
async fn another_meaning_is_found_and_not_copied() {
    let bed = Bed::new();
    let claim = done(&*bed.durable, "stored", LONG).await;
    let other = onlyonce_core::Claim {
        fingerprint: crate::rough::fingerprint(9),
        ..rival(&claim)
    };

    for _ in 0..2 {
        let Claimed::Taken(record) = bed.store.claim(&other).await.unwrap() else {
            panic!("it was granted");
        };
        assert_eq!(record.fingerprint, claim.fingerprint);
        sleep(10 * SECOND).await;
    }
    replayed(&*bed.store, &claim).await;
    bed.copied().await;
    let Claimed::Taken(record) = bed.store.claim(&other).await.unwrap() else {
        panic!("it was granted");
    };

    assert!(bed.durable.asked().is_empty());
    assert_eq!(record.fingerprint, claim.fingerprint);
}

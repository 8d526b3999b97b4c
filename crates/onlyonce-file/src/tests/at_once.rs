//! Which claims are decided on their caller's thread, and that these are as good as the others.

use std::task::{Context, Waker};

use super::*;

impl Bed {
    /// Whether what was written last was written by this thread, and how often that was since.
    fn take_writes(&self) -> Vec<bool> {
        let here = std::thread::current().id();
        let wrote = std::mem::take(&mut *lock(&self.disk.wrote));
        wrote.into_iter().map(|by| by == here).collect()
    }
}

async fn granted(store: &FileStore, claim: &Claim) {
    let claimed = store.claim(claim).await;
    assert!(
        matches!(claimed, Ok(Claimed::Granted { .. })),
        "{claimed:?}"
    );
}

#[tokio::test]
async fn a_lone_claim_that_may_run_again_is_written_by_its_caller() {
    let bed = Bed::new();
    let store = bed.open().await;
    // The first one has room set aside and filled.
    finish(&store, 1).await;
    bed.take_writes();

    granted(&store, &claim(2)).await;
    assert_eq!(bed.take_writes(), [true]);

    granted(&store, &power_cut::hold(3)).await;
    assert_eq!(bed.take_writes(), [false], "it must be durable first");
    store
        .complete(&claim(2).lease(), &answer(), DAY)
        .await
        .unwrap();
    assert_eq!(bed.take_writes(), [false]);
}

#[tokio::test]
async fn a_claim_beside_the_writer_at_work_waits_for_it() {
    let bed = Bed::new();
    let store = bed.open().await;
    finish(&store, 1).await;
    bed.take_writes();

    let at_work = lock(&store.writer);
    let running = claim(2);
    let mut asked = Box::pin(store.claim(&running));
    let mut context = Context::from_waker(Waker::noop());
    assert!(asked.as_mut().poll(&mut context).is_pending());
    drop(at_work);

    assert!(matches!(asked.await, Ok(Claimed::Granted { .. })));
    assert_eq!(bed.take_writes(), [false]);
}

#[tokio::test]
async fn a_failed_write_on_a_callers_thread_ends_everything() {
    let bed = Bed::new();
    let store = bed.open().await;
    finish(&store, 1).await;
    bed.disk.fails_to_write.store(true, Ordering::Relaxed);

    assert_restart(store.claim(&claim(2)).await);

    bed.disk.fails_to_write.store(false, Ordering::Relaxed);
    assert_restart(store.claim(&claim(3)).await);
    assert_restart(store.ping().await);
}

/// Rivals on several threads, while the writer is at work: one of them is granted each slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_claims_on_several_threads_one_is_granted() {
    const RIVALS: u8 = 8;
    let bed = Bed::new();
    let store = Arc::new(bed.open().await);
    for n in 1..100 {
        let rivals = (0..RIVALS).map(|rival| {
            let store = Arc::clone(&store);
            let rival = Claim {
                token: Token::from_bytes([100 + rival; Token::BYTES]),
                ..claim(n)
            };
            tokio::spawn(async move {
                let granted = matches!(store.claim(&rival).await, Ok(Claimed::Granted { .. }));
                if granted {
                    let completed = store.complete(&rival.lease(), &answer(), DAY).await;
                    assert!(matches!(completed, Ok(Completed::Stored(_))));
                }
                granted
            })
        });
        let rivals: Vec<_> = rivals.collect();
        let mut granted = 0;
        for rival in rivals {
            granted += usize::from(rival.await.unwrap());
        }
        assert_eq!(granted, 1);
    }
    drop(store);
    let store = bed.open().await;
    assert_eq!(store.stats().await.unwrap().records, 99);
}

//! However long it runs, a store holds no more than what is alive.

use super::*;

const CYCLES: u64 = 100_000;

#[tokio::test]
async fn a_store_grows_no_further_than_what_is_alive() {
    let (store, clock) = store();
    let store = store.records_max(1000);

    for n in 0..CYCLES {
        let claim = Claim {
            keep_for: SECOND,
            ..claim(n)
        };
        finish(&store, &claim, 10, SECOND).await;
        clock.advance(Duration::from_millis(10));
    }

    assert!(records(&store).await <= 101);
    clock.advance(2 * SECOND);
    sweep(&store).await;
    assert_eq!(store.stats().await.unwrap(), Stats::default());
    assert_eq!(sweep(&store).await, 0);
}

/// Claims sweep on their way: little is left to do for a sweeper, and there need not be one.
#[tokio::test]
async fn a_store_that_nobody_sweeps_grows_no_further_either() {
    let (store, clock) = store();

    for n in 0..CYCLES {
        let claim = Claim {
            keep_for: SECOND,
            ..claim(n)
        };
        finish(&store, &claim, 10, SECOND).await;
        clock.advance(Duration::from_millis(10));
    }

    clock.advance(2 * SECOND);
    let left = sweep(&store).await;
    assert!(left <= 1000, "{left} expired records were left");
}

/// The queue still holds the end that the claim asked for.
#[tokio::test]
async fn a_record_kept_longer_is_swept_at_its_later_end() {
    let (store, clock) = store();
    finish(&store, &claim(0), 10, MINUTE).await;
    assert!(store.extend(&claim(0).slot, MINUTE).await.unwrap());
    let lease = grant(&store, &claim(1)).await;
    let renewed = store.renew(&lease, MINUTE).await;
    assert!(matches!(renewed, Ok(Renewed::Kept)));

    clock.advance(MINUTE + 2 * SECOND);
    assert_eq!(sweep(&store).await, 0);
    assert_eq!(records(&store).await, 2);
    clock.advance(MINUTE);

    assert_eq!(sweep(&store).await, 2);
    assert_eq!(store.stats().await.unwrap(), Stats::default());
}

#[tokio::test]
async fn a_store_grows_no_further_with_claims_given_back() {
    let (store, clock) = store();
    let store = store.records_max(10);

    for n in 0..CYCLES {
        let lease = grant(&store, &claim(n)).await;
        store.release(&lease, Release::NotRun).await.unwrap();
        clock.advance(Duration::from_millis(10));
    }

    assert_eq!(store.stats().await.unwrap(), Stats::default());
    assert_eq!(sweep(&store).await, 0);
}

#[tokio::test]
async fn one_slot_can_be_claimed_and_given_back_for_ever() {
    let (store, clock) = store();
    let store = store.records_max(1);

    for n in 0..CYCLES {
        let claim = Claim {
            slot: claim(0).slot,
            ..claim(n)
        };
        let lease = grant(&store, &claim).await;
        store.release(&lease, Release::NotRun).await.unwrap();
        clock.advance(Duration::from_millis(10));
    }

    assert_eq!(store.stats().await.unwrap(), Stats::default());
}

#[tokio::test]
async fn one_slot_can_be_used_again_after_each_expiry() {
    let (store, clock) = store();
    let store = store.records_max(1);

    for n in 0..CYCLES {
        let claim = Claim {
            slot: claim(0).slot,
            keep_for: SECOND,
            ..claim(n)
        };
        finish(&store, &claim, 10, SECOND).await;
        clock.advance(3 * SECOND);
    }

    sweep(&store).await;
    assert_eq!(store.stats().await.unwrap(), Stats::default());
}

#[tokio::test]
async fn claims_that_crash_are_swept_away_too() {
    let (store, clock) = store();
    let store = store.records_max(1000);

    for n in 0..CYCLES {
        let claim = Claim {
            keep_for: SECOND,
            ..claim(n)
        };
        grant(&store, &claim).await;
        clock.advance(Duration::from_millis(10));
    }

    clock.advance(2 * SECOND);
    sweep(&store).await;
    assert_eq!(store.stats().await.unwrap(), Stats::default());
}

/// A client that repeats one key while its upstream is down gives one slot back over and over:
/// that must not slow down whoever shares its shard. Compared with the same work on many slots,
/// and the best of a few runs, so that a busy machine decides nothing.
#[tokio::test]
async fn giving_one_slot_back_over_and_over_stays_cheap() {
    let one = best_of_three(|_| 0).await;
    let many = best_of_three(|n| n).await;

    assert!(one < 20 * many, "one slot {one:?}, many slots {many:?}");
}

async fn best_of_three(slot: impl Fn(u64) -> u64) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let store = store().0;
        let clock = SystemClock::new();
        for n in 0..2000 {
            let slot = claim(slot(n)).slot;
            let lease = grant(&store, &Claim { slot, ..claim(n) }).await;
            store.release(&lease, Release::NotRun).await.unwrap();
        }
        best = best.min(clock.now());
    }
    best
}

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

/// Records of all sizes that leave in another order than they came in: what stays is moved
/// together, and is still what it was.
#[tokio::test]
async fn what_stays_is_what_it_was_while_others_leave() {
    let (store, clock) = store();
    let bytes = |n: u64| usize::try_from(n * 7919 % 1500 + n % 997 / 996 * 100_000).unwrap();
    const RECORDS: u64 = 30_000;

    for n in 0..RECORDS {
        let keep_for = if n % 4 == 0 { MINUTE * 60 } else { SECOND };
        finish(&store, &claim(n), bytes(n), keep_for).await;
        clock.advance(Duration::from_millis(1));
    }
    for n in (0..RECORDS).step_by(8) {
        assert!(store.forget(&claim(n).slot).await.unwrap());
    }
    clock.advance(MINUTE * 2);
    sweep(&store).await;

    for n in 0..RECORDS {
        let found = store.get(&claim(n).slot).await.unwrap();
        let stays = (n % 8 == 4).then(|| answer(bytes(n)));
        assert_eq!(found.as_ref().and_then(Record::response), stays.as_ref());
    }
}

/// A client that repeats one key while its upstream is down gives one slot back over and over;
/// every token it used stays dead for its lease, and none of them longer. With a search through
/// all of them each time, this many would take minutes.
#[tokio::test]
async fn a_slot_given_back_over_and_over_keeps_every_token_dead_for_its_lease() {
    let (store, clock) = store();
    let on_one_slot = |n| Claim {
        slot: claim(0).slot,
        ..claim(n)
    };

    for n in 0..CYCLES {
        let lease = grant(&store, &on_one_slot(n)).await;
        store.release(&lease, Release::NotRun).await.unwrap();
    }

    for n in [0, CYCLES / 2, CYCLES - 1] {
        let late = store.claim(&on_one_slot(n)).await.unwrap();
        assert!(matches!(late, Claimed::Dead), "token {n}");
    }
    clock.advance(claim(0).lease_for);
    grant(&store, &on_one_slot(0)).await;
}

//! Many questions in one statement: none waits for another, fails with it or gets its answer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_core::{
    Claim, Claimed, Completed, Meta, OnLapse, Operate, Release, Released, Renewed, Store,
};

use super::bed::{Bed, direct_url};
use super::support::{LONG, answer, body, fresh, granted, rival, stored};

const MANY: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn everyone_in_a_batch_gets_their_own_answer() {
    let bed = Bed::direct().await;
    let store = &bed.store;

    let ran = join_all((0..MANY).map(async |n| {
        let claim = fresh();
        let lease = granted(store, &claim).await;
        stored(store, &lease, &n.to_string()).await;
        claim
    }))
    .await;
    let replayed = join_all(
        ran.iter()
            .map(async |claim| store.claim(&rival(claim)).await),
    )
    .await;

    for (n, claimed) in replayed.into_iter().enumerate() {
        let Ok(Claimed::Taken(record)) = claimed else {
            panic!("{n} is not there: {claimed:?}");
        };
        assert_eq!(body(&record), n.to_string().as_bytes());
        assert_eq!(record.token, ran[n].token);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_statements_are_fewer_than_many_questions() {
    let bed = Bed::open(&direct_url(), "&connections=1&notify=false").await;
    let store = &bed.store;
    let claims: Vec<Claim> = (0..MANY).map(|_| fresh()).collect();

    join_all(claims.iter().map(|claim| granted(store, claim))).await;

    let table = &bed.table;
    let query = format!("SELECT count(DISTINCT xmin::text) FROM {table}");
    let statements = bed.number(query).await;
    assert!(
        statements < 20,
        "{MANY} claims took {statements} statements"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_row_does_not_fail_its_neighbours() {
    let bed = Bed::direct().await;
    let (store, table) = (&bed.store, &bed.table);
    poison(&bed).await;
    let bad = |n: usize| n % 50 == 7;
    let claims = (0..MANY).map(|n| {
        let claim = fresh();
        let operation = if bad(n) { "poison" } else { "fine" };
        let meta = Meta {
            operation: operation.into(),
            ..Meta::clone(&claim.meta)
        };
        Claim {
            meta: Arc::new(meta),
            ..claim
        }
    });

    let claimed = join_all(claims.map(async |claim| store.claim(&claim).await)).await;

    for (n, claimed) in claimed.into_iter().enumerate() {
        match claimed {
            Ok(Claimed::Granted { .. }) => assert!(!bad(n)),
            Ok(other) => panic!("{n}: {other:?}"),
            Err(error) => {
                assert!(bad(n), "{error}");
                let told = format!("{error:?}");
                assert!(!told.contains("secret of the row"), "{told}");
            }
        }
    }
    let there = format!("SELECT count(*) FROM {table}");
    assert_eq!(bed.number(there).await, 196);
}

/// Rows of the operation `poison` are refused by the table.
async fn poison(bed: &Bed) {
    let table = &bed.table;
    let text = format!(
        "CREATE FUNCTION {table}_poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.operation = 'poison' THEN RAISE EXCEPTION 'secret of the row'; END IF;
            RETURN NEW;
         END $$;
         CREATE TRIGGER poison BEFORE INSERT ON {table} FOR EACH ROW
            EXECUTE FUNCTION {table}_poison()"
    );
    bed.execute(text).await;
}

/// Four stores as four processes, each with batches in every order over the same few slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_that_overlap_never_stop_each_other() {
    const SLOTS: usize = 40;
    const TASKS: usize = 8;
    const ROUNDS: usize = 12;
    let bed = Bed::direct().await;
    let slots: Vec<Claim> = (0..SLOTS).map(|_| fresh()).collect();
    let stores = [
        bed.another().await,
        bed.another().await,
        bed.another().await,
        bed.another().await,
    ];

    let tasks = (0..TASKS).map(async |task| {
        let store = &stores[task % stores.len()];
        for round in 0..ROUNDS {
            let order = (0..SLOTS).map(|n| (n * (2 * task + 1) + round) % SLOTS);
            let all = order.map(async |n| live(store, &slots[n], (task + round + n) % 5).await);
            join_all(all).await;
            let counts: Vec<_> = slots.iter().rev().map(|claim| (claim.slot, 1)).collect();
            store
                .count_replays(&counts)
                .await
                .expect("no deadlock surfaces");
        }
    });
    join_all(tasks).await;
}

/// One attempt at a slot, and one of the ways it may end.
async fn live(store: &impl Store, slot: &Claim, end: usize) {
    let claim = rival(slot);
    let claimed = store.claim(&claim).await.expect("losing is no error");
    let Claimed::Granted { lease, .. } = claimed else {
        return;
    };
    let renewed = store.renew(&lease, LONG).await.expect("no error surfaces");
    assert!(matches!(renewed, Renewed::Kept));
    match end {
        0 => {
            let completed = store
                .complete(&lease, &answer("done"), Duration::ZERO)
                .await;
            let completed = completed.expect("no error surfaces");
            assert!(matches!(completed, Completed::Stored(_)), "{completed:?}");
        }
        1 => {
            let released = store.release(&lease, Release::Unknown).await;
            released.expect("no error surfaces");
        }
        _ => {
            let released = store.release(&lease, Release::NotRun).await;
            released.expect("no error surfaces");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_takeovers_by_several_processes_one_wins_each_slot() {
    let bed = Bed::direct().await;
    let stores = [
        bed.another().await,
        bed.another().await,
        bed.another().await,
    ];
    let lapsed = join_all((0..30).map(async |_| {
        let claim = super::support::lapsed(&bed.store, OnLapse::Rerun).await;
        Claim {
            lease_for: LONG,
            ..claim
        }
    }))
    .await;

    let races = lapsed.iter().map(async |claim| {
        let rivals = stores.iter().map(async |store| {
            let rival = rival(claim);
            match store.claim(&rival).await.expect("losing is no error") {
                Claimed::Granted { lease, overtook } => {
                    assert_eq!((lease.attempt, overtook.is_some()), (2, true));
                    Some(rival.token)
                }
                Claimed::Taken(record) => {
                    assert_ne!(record.token, claim.token, "the old holder was over");
                    None
                }
                Claimed::Dead => panic!("a new token is not dead"),
            }
        });
        let winners: Vec<_> = join_all(rivals).await.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1);
        let record = bed.store.get(&claim.slot).await.unwrap().unwrap();
        assert_eq!(record.token, winners[0]);
    });
    join_all(races).await;
}

/// Whichever comes first, the token is dead and the slot is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_release_that_races_its_claim_wins() {
    let bed = Bed::direct().await;
    let elsewhere = bed.another().await;
    let races = (0..MANY).map(async |n| {
        let claim = fresh();
        if n % 2 == 0 {
            // Some slots have a row already, and dead tokens in it.
            let other = rival(&claim).lease();
            let released = bed.store.release(&other, Release::NotRun).await;
            assert!(matches!(released, Ok(Released::Ended)), "{released:?}");
        }

        let lease = claim.lease();
        let (claimed, released) = tokio::join!(
            bed.store.claim(&claim),
            elsewhere.release(&lease, Release::NotRun),
        );

        let claimed = claimed.expect("losing is no error");
        assert!(matches!(released, Ok(Released::Ended)), "{released:?}");
        assert!(!matches!(claimed, Claimed::Taken(_)), "{claimed:?}");
        assert!(bed.store.get(&claim.slot).await.unwrap().is_none());
        assert!(matches!(bed.store.claim(&claim).await, Ok(Claimed::Dead)));
        granted(&bed.store, &rival(&claim)).await;
    });
    join_all(races).await;
}

#[tokio::test]
async fn large_answers_fit_whatever_their_number() {
    let bed = Bed::direct().await;
    let store = &bed.store;
    let large = "x".repeat(3 << 20);

    join_all((0..6).map(async |_| {
        let claim = fresh();
        let lease = granted(store, &claim).await;
        stored(store, &lease, &large).await;
        let record = store.get(&claim.slot).await.unwrap().unwrap();
        assert_eq!(body(&record).len(), large.len());
    }))
    .await;
}

#[tokio::test]
async fn durations_beyond_all_bounds_are_taken_for_long() {
    let bed = Bed::direct().await;
    let store = &bed.store;
    let claim = Claim {
        lease_for: Duration::MAX,
        keep_for: Duration::MAX,
        ..fresh()
    };

    let lease = granted(store, &claim).await;
    for _ in 0..3 {
        assert!(store.extend(&claim.slot, Duration::MAX).await.unwrap());
        assert!(matches!(
            store.renew(&lease, Duration::MAX).await,
            Ok(Renewed::Kept)
        ));
    }
    let completed = store.complete(&lease, &answer("kept"), Duration::MAX).await;
    assert!(
        matches!(completed, Ok(Completed::Stored(_))),
        "{completed:?}"
    );
    assert!(store.extend(&claim.slot, Duration::MAX).await.unwrap());

    let kept = store.get(&claim.slot).await.unwrap().unwrap();
    assert!(kept.keep_left > Duration::from_secs(1_000 * 365 * 86_400));
    let other = fresh();
    let forever = Claim {
        lease_for: Duration::MAX,
        ..other
    };
    store
        .release(&forever.lease(), Release::NotRun)
        .await
        .unwrap();
    assert!(matches!(store.claim(&forever).await, Ok(Claimed::Dead)));
}

//! Each verb is one atomic step (S2): however many race, one wins and the others see that it did.
//! These run on several threads, so their clock is the real one.

#![expect(missing_docs, reason = "the names are the sentences")]

use std::future::Future;
use std::sync::Arc;

use futures_util::future::join_all;
use onlyonce_core::{
    Claim, Claimed, Completed, OnLapse, Renewed, Response, Slot, Store, StoreError,
};
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

use super::TestBed;
use super::subject::{Subject, answer, body, fingerprint};
use super::timing::{LONG, PAST_SHORT, SHORT};

const RACERS: usize = 64;
const ROUNDS: usize = 16;

pub async fn of_racing_claims_exactly_one_is_granted(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();

    let won = race_claims(bed, (0..RACERS).map(|_| store.rival(&claim))).await;

    assert_one_winner(&store, &claim, won, 1).await;
}

pub async fn of_racing_claims_for_different_requests_exactly_one_is_granted(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();

    let racers = (1..=RACERS).map(|n| Claim {
        fingerprint: fingerprint(u8::try_from(n).expect("fewer than 256 race")),
        ..store.rival(&claim)
    });
    let won = race_claims(bed, racers).await;

    assert_one_winner(&store, &claim, won, 1).await;
}

pub async fn of_racing_takeovers_exactly_one_is_granted(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lapsed = store.lapsed(OnLapse::Rerun).await;

    let racers = (0..RACERS).map(|_| Claim {
        lease_for: LONG,
        ..store.rival(&lapsed)
    });
    let won = race_claims(bed, racers).await;

    assert_one_winner(&store, &lapsed, won, 2).await;
}

pub async fn of_racing_claims_for_an_expired_slot_exactly_one_is_granted(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let expired = store.expired().await;

    let won = race_claims(bed, (0..RACERS).map(|_| store.rival(&expired))).await;

    assert_one_winner(&store, &expired, won, 1).await;
}

pub async fn a_repeated_claim_that_races_itself_is_one_attempt(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();

    let won = race_claims(bed, std::iter::repeat_n(claim.clone(), RACERS)).await;

    for claimed in won {
        let Claimed::Granted { lease, overtook } = claimed else {
            panic!("refused its own slot: {claimed:?}");
        };
        assert_eq!(lease, claim.lease());
        assert_eq!(overtook, None);
    }
}

pub async fn claims_for_different_slots_do_not_hinder_each_other(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    let won = race_claims(bed, (0..RACERS).map(|_| store.fresh())).await;

    let granted = |it: &Claimed| matches!(it, Claimed::Granted { .. });
    assert!(won.iter().all(granted), "{won:?}");
}

pub async fn of_racing_completions_exactly_one_is_stored(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;

    let racers = (0..RACERS).map(|n| {
        let (store, lease) = (bed.store(), lease.clone());
        let response = Arc::new(Response::new(http::StatusCode::OK, n.to_string()));
        async move { store.complete(&lease, &response, LONG).await }
    });
    let completed = race(racers).await;

    let kept = store.record(&claim).await;
    let mut stored = 0;
    for completed in completed {
        match completed {
            Completed::Stored(_) => stored += 1,
            Completed::Found(record) => assert_eq!(body(&record), body(&kept)),
            Completed::Absent => panic!("the claim was there all the time"),
        }
    }
    assert_eq!(stored, 1);
}

/// The old holder comes back just as its claim is taken over: one of them has the slot.
pub async fn a_late_completion_and_a_takeover_have_one_winner(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for (late, rival) in lapsed_and_rivals(bed, &store).await {
        let (old, new) = (bed.store(), bed.store());
        let (lease, asking) = (late.lease(), rival.clone());
        let (completed, claimed) = race_two(
            async move { old.complete(&lease, &answer("late"), LONG).await },
            async move { new.claim(&asking).await },
        )
        .await;

        match (completed, claimed) {
            (Completed::Stored(_), Claimed::Taken(record)) => assert_eq!(body(&record), b"late"),
            (Completed::Found(record), Claimed::Granted { lease, .. }) => {
                assert_eq!(record.token, rival.token);
                store.stored(&lease, &answer("rival"), LONG).await;
            }
            both => panic!("not one winner: {both:?}"),
        }
    }
}

pub async fn a_late_renewal_and_a_takeover_have_one_winner(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for (late, rival) in lapsed_and_rivals(bed, &store).await {
        let (old, new) = (bed.store(), bed.store());
        let (lease, asking) = (late.lease(), rival.clone());
        let (renewed, claimed) =
            race_two(async move { old.renew(&lease, LONG).await }, async move {
                new.claim(&asking).await
            })
            .await;

        match (renewed, claimed) {
            (Renewed::Kept, Claimed::Taken(record)) => {
                assert_eq!(record.token, late.token);
                assert!(!record.is_lapsed());
            }
            (Renewed::Lost, Claimed::Granted { lease, .. }) => {
                store.stored(&lease, &answer("rival"), LONG).await;
            }
            both => panic!("not one winner: {both:?}"),
        }
    }
}

pub async fn a_completion_that_races_its_waiters_wakes_them_all(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for _ in 0..ROUNDS {
        let claim = store.fresh();
        let lease = store.lease(&claim).await;
        let waiters: Vec<_> = (0..4).map(|_| store.waiter(&claim)).collect();

        store.stored(&lease, &answer("stored"), LONG).await;

        for waiter in waiters {
            assert!(waiter.await.expect("a waiter does not panic"));
        }
    }
}

pub async fn racing_replay_counts_are_all_added_up(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.done("stored").await;

    let racers = (0..ROUNDS).map(|_| {
        let (store, slot): (_, Slot) = (bed.store(), claim.slot);
        async move {
            let operate = store.operate().expect("seen before");
            operate.count_replays(&[(slot, 2)]).await
        }
    });
    race(racers).await;

    assert_eq!(store.record(&claim).await.replays, 2 * ROUNDS as u64);
}

pub async fn racing_offers_agree_on_one(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    let racers = (0..ROUNDS).map(|n| {
        let store = bed.store();
        async move {
            let operate = store.operate().expect("every store has an operators' side");
            operate.agree("secret", n.to_string().as_bytes()).await
        }
    });
    let agreed = race(racers).await;

    let kept = store.agree("secret", b"late").await;
    assert!(agreed.iter().all(|it| *it == kept), "{agreed:?}");
}

async fn assert_one_winner(store: &Subject<'_>, slot: &Claim, claimed: Vec<Claimed>, attempt: u32) {
    let holder = store.record(slot).await;
    let mut granted = 0;
    for claimed in claimed {
        match claimed {
            Claimed::Granted { lease, .. } => {
                granted += 1;
                assert_eq!(lease.token, holder.token);
                assert_eq!(lease.attempt, attempt);
            }
            Claimed::Taken(record) => {
                assert_eq!(record.token, holder.token);
                assert_eq!(record.attempt, attempt);
            }
            Claimed::Dead => panic!("a new token is not dead"),
        }
    }
    assert_eq!(granted, 1);
}

/// Lapsed claims, each with the claim that will take it over.
async fn lapsed_and_rivals(bed: &dyn TestBed, store: &Subject<'_>) -> Vec<(Claim, Claim)> {
    let mut pairs = Vec::new();
    for _ in 0..ROUNDS {
        let late = Claim {
            lease_for: SHORT,
            ..store.fresh()
        };
        store.lease(&late).await;
        let rival = Claim {
            lease_for: LONG,
            ..store.rival(&late)
        };
        pairs.push((late, rival));
    }
    bed.advance(PAST_SHORT).await;
    pairs
}

async fn race_claims(bed: &dyn TestBed, claims: impl Iterator<Item = Claim>) -> Vec<Claimed> {
    race(claims.map(|claim| {
        let store: Arc<dyn Store> = bed.store();
        async move { store.claim(&claim).await }
    }))
    .await
}

/// Starts all of them at one moment, each in its own task.
async fn race<T, F>(racers: impl Iterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    let racers: Vec<_> = racers.collect();
    let start = Arc::new(Barrier::new(racers.len()));
    let tasks: Vec<_> = racers
        .into_iter()
        .map(|racer| spawn(&start, racer))
        .collect();
    let done = join_all(tasks).await;
    done.into_iter()
        .map(|done| done.expect("a racer does not panic"))
        .collect()
}

async fn race_two<A, B>(
    one: impl Future<Output = Result<A, StoreError>> + Send + 'static,
    other: impl Future<Output = Result<B, StoreError>> + Send + 'static,
) -> (A, B)
where
    A: Send + 'static,
    B: Send + 'static,
{
    let start = Arc::new(Barrier::new(2));
    let (one, other) = (spawn(&start, one), spawn(&start, other));
    let one = one.await.expect("a racer does not panic");
    (one, other.await.expect("a racer does not panic"))
}

fn spawn<T: Send + 'static>(
    start: &Arc<Barrier>,
    racer: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> JoinHandle<T> {
    let start = Arc::clone(start);
    tokio::spawn(async move {
        start.wait().await;
        racer.await.expect("losing a race is no error")
    })
}

//! The two halves of one claim, on the memory store.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::Rotating;
use crate::fingerprint::Fingerprint;
use crate::key::Hint;
use crate::memory::MemoryStore;
use crate::operate::{Operate as _, Resolved};
use crate::record::{Meta, OnLapse, State, Token};
use crate::response::Response;
use crate::slot::Slot;
use crate::store::{Claim, Claimed, Completed, Former, Lease, Release, Released, Renewed, Store};

const OLD: Slot = Slot::from_bytes([1; Slot::BYTES]);
const NEW: Slot = Slot::from_bytes([2; Slot::BYTES]);
const LEASE: Duration = Duration::from_secs(10);
const KEEP: Duration = Duration::from_secs(60);

fn meta(twin: Option<Slot>) -> Arc<Meta> {
    Arc::new(Meta {
        hint: Hint::default(),
        operation: "test".into(),
        actor: None,
        holder: "here".into(),
        trace: None,
        credential: None,
        twin,
    })
}

fn fingerprint(byte: u8) -> Fingerprint {
    Fingerprint::new(Fingerprint::RECIPE, [byte; 32])
}

/// A claim of one slot alone, by a process that knows only its secret.
fn alone(slot: Slot, token: u8) -> Claim {
    Claim {
        slot,
        fingerprint: fingerprint(slot.as_bytes()[0]),
        token: Token::from_bytes([token; Token::BYTES]),
        on_lapse: OnLapse::Rerun,
        lease_for: LEASE,
        keep_for: KEEP,
        meta: meta(None),
        former: None,
    }
}

/// A claim of both.
fn both(token: u8) -> Claim {
    Claim {
        meta: meta(Some(OLD)),
        former: Some(Arc::new(Former {
            slot: OLD,
            fingerprint: fingerprint(1),
            meta: meta(Some(NEW)),
            credential: None,
        })),
        ..alone(NEW, token)
    }
}

fn stores() -> (Arc<MemoryStore>, Rotating) {
    let inner = Arc::new(MemoryStore::new());
    let shared: Arc<dyn Store> = inner.clone();
    (inner, Rotating::new(shared))
}

async fn granted(store: &dyn Store, claim: &Claim) -> Lease {
    match store.claim(claim).await.unwrap() {
        Claimed::Granted { lease, .. } => lease,
        other @ (Claimed::Taken(_) | Claimed::Dead) => panic!("expected a grant, got {other:?}"),
    }
}

fn answer(body: &'static str) -> Arc<Response> {
    Arc::new(Response::new(StatusCode::OK, body))
}

async fn state(store: &MemoryStore, slot: Slot) -> Option<State> {
    store.get(&slot).await.unwrap().map(|record| record.state)
}

#[tokio::test(start_paused = true)]
async fn both_halves_are_claimed_completed_and_kept_alike() {
    let (inner, store) = stores();
    let lease = granted(&store, &both(1)).await;
    for slot in [OLD, NEW] {
        assert!(matches!(
            state(&inner, slot).await,
            Some(State::Pending { .. })
        ));
    }

    let completed = store.complete(&lease, &answer("made"), KEEP).await.unwrap();

    assert!(matches!(completed, Completed::Stored(_)));
    for slot in [OLD, NEW] {
        let record = inner.get(&slot).await.unwrap().unwrap();
        assert_eq!(record.response(), Some(&answer("made")));
        assert_eq!(record.keep_left, KEEP);
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_of_the_former_half_reads_like_one_of_the_current() {
    let (inner, store) = stores();
    let lease = granted(&*inner, &alone(OLD, 9)).await;
    inner
        .complete(&lease, &answer("before"), KEEP)
        .await
        .unwrap();

    let Claimed::Taken(record) = store.claim(&both(1)).await.unwrap() else {
        panic!("it is finished");
    };

    assert_eq!(record.fingerprint, fingerprint(2));
    assert_eq!(record.response(), Some(&answer("before")));
    assert_eq!(state(&inner, NEW).await, None);
}

/// What is known of the current half ends the former one: freed, in doubt, or with the same answer.
#[tokio::test(start_paused = true)]
async fn a_current_half_that_is_taken_ends_the_former_one_like_itself() {
    let running = |inner: Arc<MemoryStore>| async move {
        granted(&*inner, &alone(NEW, 9)).await;
    };
    let (inner, store) = stores();
    running(inner.clone()).await;
    assert!(matches!(store.claim(&both(1)).await, Ok(Claimed::Taken(_))));
    assert_eq!(state(&inner, OLD).await, None, "free again");

    let (inner, store) = stores();
    let hold = Claim {
        on_lapse: OnLapse::Hold,
        ..both(1)
    };
    let held = Claim {
        former: None,
        token: Token::from_bytes([9; Token::BYTES]),
        ..hold.clone()
    };
    let lease = granted(&*inner, &held).await;
    inner.release(&lease, Release::Unknown).await.unwrap();
    assert!(matches!(store.claim(&hold).await, Ok(Claimed::Taken(_))));
    assert_eq!(state(&inner, OLD).await, Some(State::Unknown));

    // A crash between the two completions: the lapsed half gets the answer of the other.
    let (inner, store) = stores();
    granted(&*inner, &alone(OLD, 8)).await;
    tokio::time::advance(LEASE).await;
    let lease = granted(&*inner, &alone(NEW, 8)).await;
    inner.complete(&lease, &answer("made"), KEEP).await.unwrap();
    assert!(matches!(store.claim(&both(1)).await, Ok(Claimed::Taken(_))));
    assert_eq!(
        state(&inner, OLD).await,
        Some(State::finished(answer("made")))
    );
}

#[tokio::test(start_paused = true)]
async fn a_half_that_lapsed_makes_it_a_later_attempt() {
    for lapsed in [OLD, NEW] {
        let (inner, store) = stores();
        granted(&*inner, &alone(lapsed, 9)).await;
        tokio::time::advance(LEASE).await;

        assert_eq!(granted(&store, &both(1)).await.attempt, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_kept_only_on_both() {
    for lost in [OLD, NEW] {
        let (inner, store) = stores();
        let lease = granted(&store, &both(1)).await;
        assert!(matches!(
            store.renew(&lease, LEASE).await,
            Ok(Renewed::Kept)
        ));

        inner.forget(&lost).await.unwrap();

        assert!(matches!(
            store.renew(&lease, LEASE).await,
            Ok(Renewed::Lost)
        ));
    }
}

/// Whichever half was overtaken, both end with the answer of who overtook it.
#[tokio::test(start_paused = true)]
async fn a_half_that_was_overtaken_decides_for_both() {
    for overtaken in [OLD, NEW] {
        let (inner, store) = stores();
        let lease = granted(&store, &both(1)).await;
        tokio::time::advance(LEASE).await;
        let other = granted(&*inner, &alone(overtaken, 9)).await;
        inner
            .complete(&other, &answer("another"), KEEP)
            .await
            .unwrap();

        let completed = store.complete(&lease, &answer("own"), KEEP).await.unwrap();

        let Completed::Found(record) = completed else {
            panic!("it was overtaken");
        };
        assert_eq!(record.response(), Some(&answer("another")));
        assert_eq!(record.fingerprint, lease.fingerprint);
        for slot in [OLD, NEW] {
            let stored = Some(State::finished(answer("another")));
            assert_eq!(state(&inner, slot).await, stored, "{overtaken:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_ends_both_and_a_completed_half_is_not_forgotten() {
    let (inner, store) = stores();
    let lease = granted(&store, &both(1)).await;
    store.release(&lease, Release::NotRun).await.unwrap();
    for slot in [OLD, NEW] {
        assert_eq!(state(&inner, slot).await, None);
    }

    // The handler stored its answer itself, in a transaction of its own, and failed afterwards.
    let lease = granted(&store, &both(2)).await;
    let current = Lease {
        former: None,
        ..lease.clone()
    };
    inner
        .complete(&current, &answer("made"), KEEP)
        .await
        .unwrap();
    let released = store.release(&lease, Release::NotRun).await.unwrap();
    assert!(matches!(released, Released::Found(_)));
    assert_eq!(
        state(&inner, OLD).await,
        Some(State::finished(answer("made")))
    );
}

#[tokio::test(start_paused = true)]
async fn an_operator_acts_on_both_halves_by_either() {
    for slot in [OLD, NEW] {
        let (inner, store) = stores();
        granted(&store, &both(1)).await;
        tokio::time::advance(LEASE).await;

        let resolved = store.resolve(&slot, &answer("resolved"), KEEP).await;
        assert!(matches!(resolved, Ok(Resolved::Stored)));
        assert!(store.extend(&slot, KEEP).await.unwrap());
        for half in [OLD, NEW] {
            let record = inner.get(&half).await.unwrap().unwrap();
            assert_eq!(record.response(), Some(&answer("resolved")));
            assert_eq!(record.keep_left, KEEP * 2);
        }

        assert!(store.forget(&slot).await.unwrap());
        for half in [OLD, NEW] {
            assert_eq!(state(&inner, half).await, None);
        }
    }
}

/// An answer that is there already is not resolved away.
#[tokio::test(start_paused = true)]
async fn a_half_in_doubt_is_resolved_with_the_answer_of_the_other() {
    for slot in [OLD, NEW] {
        let (inner, store) = stores();
        let lease = granted(&store, &both(1)).await;
        let other = Lease {
            slot: if slot == OLD { NEW } else { OLD },
            former: None,
            ..lease
        };
        inner.complete(&other, &answer("made"), KEEP).await.unwrap();
        tokio::time::advance(LEASE).await;

        let resolved = store.resolve(&slot, &answer("resolved"), KEEP).await;

        assert!(matches!(resolved, Ok(Resolved::Found(_))));
        assert_eq!(
            state(&inner, slot).await,
            Some(State::finished(answer("made")))
        );
    }
}

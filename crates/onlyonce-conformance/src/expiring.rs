//! An expired record is absent for every verb (T2), whatever its state was and whether or not
//! anything has swept it.

#![expect(missing_docs, reason = "the names are the sentences")]

use onlyonce_core::operate::{Filter, Page, Resolved, Stats};
use onlyonce_core::{Claim, OnLapse, Release};

use super::TestBed;
use super::subject::{Subject, answer};
use super::timing::{LONG, PAST_SHORT, SHORT};

pub async fn an_expired_answer_is_absent_for_every_verb(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.expired().await;

    assert_absent(&store, &claim).await;
}

pub async fn an_expired_claim_is_absent_for_every_verb(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        lease_for: SHORT,
        keep_for: SHORT,
        ..store.fresh()
    };
    store.lease(&claim).await;
    bed.advance(SHORT + PAST_SHORT).await;

    assert_absent(&store, &claim).await;
}

pub async fn an_expired_unknown_outcome_is_absent_for_every_verb(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        on_lapse: OnLapse::Hold,
        lease_for: SHORT,
        keep_for: SHORT,
        ..store.fresh()
    };
    let lease = store.lease(&claim).await;
    store.ended(&lease, Release::Unknown).await;
    bed.advance(SHORT + PAST_SHORT).await;

    assert_absent(&store, &claim).await;
}

/// Claims last: it is the one verb that brings the slot back.
async fn assert_absent(store: &Subject<'_>, claim: &Claim) {
    let lease = claim.lease();
    let everything = Page {
        after: None,
        records_max: 100,
    };

    assert!(store.get(claim).await.is_none());
    assert!(store.list(&Filter::default(), &everything).await.is_empty());
    let Stats {
        records, pending, ..
    } = store.stats().await;
    assert_eq!((records, pending), (0, 0));
    assert!(!store.extend(claim, LONG).await);
    let resolved = store.resolve(claim, &answer("resolved")).await;
    assert!(matches!(resolved, Resolved::Absent), "{resolved:?}");
    store.count_replays(&[(claim.slot, 3)]).await;
    assert!(!store.is_kept(&lease, LONG).await);
    assert!(store.is_absent_for(&lease).await);
    assert!(store.settles(claim).await);
    store.ended(&lease, Release::Unknown).await;
    assert!(!store.forget(claim).await);

    let grant = store.granted(&store.rival(claim)).await;
    assert_eq!(grant.lease.attempt, 1);
    assert_eq!(grant.overtook, None);
    assert_eq!(store.record(claim).await.replays, 0);
}

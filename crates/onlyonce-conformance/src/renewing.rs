//! How a slow handler keeps its claim: from now on, and only while it is its own.

#![expect(missing_docs, reason = "the names are the sentences")]

use onlyonce_core::{Claim, OnLapse, Release, State};

use super::TestBed;
use super::subject::{Subject, body};
use super::timing::{LONG, PAST_SHORT, SHORT, SLACK, Stopwatch};

pub async fn a_renewed_claim_outlives_its_first_lease(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        lease_for: SHORT,
        ..store.fresh()
    };
    let lease = store.lease(&claim).await;

    assert!(store.is_kept(&lease, LONG).await);
    bed.advance(PAST_SHORT).await;

    let record = store.taken(&store.rival(&claim)).await;
    assert_eq!(record.token, claim.token);
    assert_eq!(record.attempt, 1);
    assert!(!record.is_lapsed());
}

pub async fn a_renewal_counts_from_now(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    bed.advance(PAST_SHORT).await;

    let watch = Stopwatch::start();
    assert!(store.is_kept(&lease, LONG).await);

    let record = store.record(&claim).await;
    let State::Pending { lease_left } = record.state else {
        panic!("not pending: {record:?}");
    };
    watch.assert_counted_from_now(lease_left, LONG);
}

pub async fn a_renewal_may_shorten_the_lease(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;

    assert!(store.is_kept(&lease, SHORT).await);
    bed.advance(PAST_SHORT).await;

    assert_eq!(store.granted(&store.rival(&claim)).await.lease.attempt, 2);
}

pub async fn a_renewed_claim_is_kept_for_lease_and_retention_again(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        lease_for: SHORT,
        ..store.fresh()
    };
    let lease = store.lease(&claim).await;
    bed.advance(PAST_SHORT).await;

    let watch = Stopwatch::start();
    assert!(store.is_kept(&lease, LONG).await);

    let record = store.record(&claim).await;
    watch.assert_counted_from_now(record.keep_left, 2 * LONG);
}

/// The shown end and the time left are one moment, also after a renewal that shortens.
pub async fn a_renewal_shows_its_own_end_of_retention(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let watch = Stopwatch::start();
    let lease = store.lease(&claim).await;

    assert!(store.is_kept(&lease, SHORT).await);

    let record = store.record(&claim).await;
    let shown = record.expires_at.as_millis() - record.created_at.as_millis();
    let most = SHORT + LONG + watch.elapsed() + SLACK;
    assert!(u128::from(shown) <= most.as_millis(), "{shown} ms");
}

pub async fn a_lapsed_claim_that_nobody_overtook_can_be_renewed(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
        let lapsed = store.lapsed(on_lapse).await;

        assert!(store.is_kept(&lapsed.lease(), LONG).await, "{on_lapse:?}");

        let record = store.taken(&store.rival(&lapsed)).await;
        assert!(!record.is_lapsed(), "{on_lapse:?}");
    }
}

pub async fn a_lost_lease_cannot_be_renewed(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lost = store.lapsed(OnLapse::Rerun).await;
    let successor = store.rival(&lost);
    store.lease(&successor).await;

    assert!(!store.is_kept(&lost.lease(), LONG).await);

    bed.advance(PAST_SHORT).await;
    let record = store.record(&lost).await;
    assert_eq!(record.token, successor.token);
    assert!(record.is_lapsed(), "the successor's lease was renewed");
}

pub async fn what_is_over_cannot_be_renewed(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let never = store.fresh();
    let done = store.done("stored").await;
    let unknown = store.unknown().await;
    let given_back = store.fresh();
    let lease = store.lease(&given_back).await;
    store.ended(&lease, Release::NotRun).await;

    for claim in [&never, &done, &unknown, &given_back] {
        assert!(!store.is_kept(&claim.lease(), LONG).await);
    }

    assert!(store.get(&never).await.is_none());
    assert_eq!(body(&store.record(&done).await), b"stored");
    assert_eq!(store.record(&unknown).await.state, State::Unknown);
    assert!(store.get(&given_back).await.is_none());
}

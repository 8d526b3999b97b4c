//! What operators do to one record (T4): look at it, forget it, extend it, resolve it.

#![expect(missing_docs, reason = "the names are the sentences")]

use std::time::Duration;

use onlyonce_core::operate::{Resolved, StateName};
use onlyonce_core::{Claim, OnLapse, State};

use super::TestBed;
use super::subject::{Subject, answer, body, fingerprint};
use super::timing::{LONG, PAST_SHORT, SHORT, Stopwatch};

pub async fn an_empty_slot_has_no_record(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    assert!(store.get(&store.fresh()).await.is_none());
}

pub async fn a_forgotten_record_is_gone_whatever_its_state(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let pending = store.fresh();
    store.lease(&pending).await;
    let lapsed = store.lapsed(OnLapse::Hold).await;
    let done = store.done("stored").await;
    let unknown = store.unknown().await;

    for claim in [&pending, &lapsed, &done, &unknown] {
        assert!(store.forget(claim).await);

        assert!(store.get(claim).await.is_none());
        let other = Claim {
            fingerprint: fingerprint(2),
            ..store.rival(claim)
        };
        assert_eq!(store.granted(&other).await.lease.attempt, 1);
    }
}

pub async fn a_forgotten_answer_is_not_recalled(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.done("stored").await;

    assert!(store.forget(&claim).await);

    assert!(store.recalled(&claim).is_none());
}

pub async fn what_is_not_there_cannot_be_forgotten(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.done("stored").await;

    assert!(!store.forget(&store.fresh()).await);
    assert!(store.forget(&claim).await);
    assert!(!store.forget(&claim).await);
}

pub async fn the_holder_of_a_forgotten_claim_finds_nothing(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;

    store.forget(&claim).await;

    assert!(!store.is_kept(&lease, LONG).await);
    assert!(store.is_absent_for(&lease).await);
    assert!(store.get(&claim).await.is_none());
}

pub async fn an_extended_answer_is_kept_that_much_longer(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    let watch = Stopwatch::start();
    let receipt = store.stored(&lease, &answer("stored"), LONG).await;

    assert!(store.extend(&claim, 2 * LONG).await);

    let record = store.record(&claim).await;
    watch.assert_counted_from_now(record.keep_left, 3 * LONG);
    assert_eq!(record.expires_at, receipt.expires_at.plus(2 * LONG));
    assert_eq!(record.completed_at, Some(receipt.completed_at));
    assert_eq!(body(&record), b"stored");
}

pub async fn an_extended_unknown_outcome_is_kept_that_much_longer(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let watch = Stopwatch::start();
    let claim = store.unknown().await;

    assert!(store.extend(&claim, LONG).await);

    let record = store.record(&claim).await;
    watch.assert_counted_from_now(record.keep_left, 3 * LONG);
    assert_eq!(record.state, State::Unknown);
}

pub async fn an_extended_claim_is_kept_longer_but_lapses_as_before(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        lease_for: SHORT,
        ..store.fresh()
    };
    let watch = Stopwatch::start();
    store.lease(&claim).await;

    assert!(store.extend(&claim, LONG).await);
    bed.advance(PAST_SHORT).await;

    let record = store.record(&claim).await;
    assert_eq!(StateName::of(&record), StateName::Lapsed);
    watch.assert_counted_from_now(record.keep_left, SHORT + 2 * LONG);
    assert_eq!(store.granted(&store.rival(&claim)).await.lease.attempt, 2);
}

pub async fn an_extension_outlives_a_renewal(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;

    assert!(store.extend(&claim, LONG).await);
    let watch = Stopwatch::start();
    assert!(store.is_kept(&lease, 2 * LONG).await);

    let record = store.record(&claim).await;
    watch.assert_counted_from_now(record.keep_left, 4 * LONG);
}

pub async fn the_answer_of_an_extended_claim_is_kept_that_much_longer(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    assert!(store.extend(&claim, LONG).await);
    assert!(store.is_kept(&lease, LONG).await);
    assert!(store.extend(&claim, LONG).await);

    let watch = Stopwatch::start();
    let receipt = store.stored(&lease, &answer("stored"), 2 * LONG).await;

    let record = store.record(&claim).await;
    watch.assert_counted_from_now(record.keep_left, 4 * LONG);
    assert_eq!(record.expires_at, receipt.expires_at);
}

/// What is asked for with the answer may be less than with the claim: that is no extension.
pub async fn an_answer_may_be_kept_shorter_than_its_claim(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        keep_for: 3 * LONG,
        ..store.fresh()
    };
    let lease = store.lease(&claim).await;

    let watch = Stopwatch::start();
    store.stored(&lease, &answer("stored"), LONG).await;

    let record = store.record(&claim).await;
    watch.assert_counted_from_now(record.keep_left, LONG);
}

pub async fn what_is_not_there_cannot_be_extended(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();

    assert!(!store.extend(&claim, LONG).await);

    assert!(store.get(&claim).await.is_none());
}

pub async fn an_unknown_outcome_can_be_resolved(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let unknown = store.unknown().await;

    assert_resolves(&store, &unknown).await;

    let found = store.fenced(&unknown.lease(), &answer("late")).await;
    assert_eq!(body(&found), b"resolved");
}

pub async fn a_lapsed_claim_can_be_resolved(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for on_lapse in [OnLapse::Hold, OnLapse::Rerun] {
        let lapsed = store.lapsed(on_lapse).await;

        assert_resolves(&store, &lapsed).await;

        let found = store.fenced(&lapsed.lease(), &answer("late")).await;
        assert_eq!(body(&found), b"resolved", "{on_lapse:?}");
    }
}

async fn assert_resolves(store: &Subject<'_>, claim: &Claim) {
    let watch = Stopwatch::start();
    let resolved = store
        .resolve_for(claim, &answer("resolved"), 3 * LONG)
        .await;

    assert!(matches!(resolved, Resolved::Stored), "{resolved:?}");
    let record = store.taken(&store.rival(claim)).await;
    assert_eq!(body(&record), b"resolved");
    assert!(record.completed_at.is_some());
    watch.assert_counted_from_now(record.keep_left, 3 * LONG);
}

/// How long nothing runs twice was promised with the claim: an answer by hand takes nothing off it.
pub async fn a_resolution_shortens_no_retention(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let unknown = store.unknown().await;
    let [held, rerun] = [OnLapse::Hold, OnLapse::Rerun].map(|it| store.lapsed(it));
    let extended = store.unknown().await;
    assert!(store.extend(&extended, 2 * LONG).await);

    for claim in [unknown, held.await, rerun.await, extended] {
        let before = store.record(&claim).await;
        for keep_for in [SHORT, Duration::ZERO] {
            let response = answer("resolved");
            match store.resolve_for(&claim, &response, keep_for).await {
                Resolved::Stored => {}
                Resolved::Found(record) => assert_eq!(body(&record), b"resolved"),
                gone @ Resolved::Absent => panic!("{gone:?}"),
            }
        }
        bed.advance(PAST_SHORT).await;

        let record = store.taken(&store.rival(&claim)).await;
        assert_eq!(body(&record), b"resolved");
        let (now, then) = (record.expires_at, before.expires_at);
        assert!(
            now.as_millis() >= then.as_millis(),
            "{:?} earlier",
            then.since(now)
        );
    }
}

pub async fn what_is_in_doubt_can_be_discarded(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let unknown = store.unknown().await;
    let [held, rerun] = [OnLapse::Hold, OnLapse::Rerun].map(|it| store.lapsed(it));

    for claim in [unknown, held.await, rerun.await] {
        let discarded = store.discard(&claim).await;

        assert!(matches!(discarded, Resolved::Stored), "{discarded:?}");
        assert!(store.get(&claim).await.is_none());
        assert!(store.is_absent_for(&claim.lease()).await);
        let other = Claim {
            fingerprint: fingerprint(2),
            ..store.rival(&claim)
        };
        assert_eq!(store.granted(&other).await.lease.attempt, 1);
    }
}

pub async fn only_what_is_in_doubt_is_discarded(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let pending = store.fresh();
    let lease = store.lease(&pending).await;
    let done = store.done("stored").await;

    let discarded = store.discard(&pending).await;
    let Resolved::Found(record) = discarded else {
        panic!("discarded under its holder: {discarded:?}");
    };
    assert_eq!(StateName::of(&record), StateName::Pending);
    store.stored(&lease, &answer("holder"), LONG).await;
    let discarded = store.discard(&done).await;
    let Resolved::Found(record) = discarded else {
        panic!("an answer was discarded: {discarded:?}");
    };
    assert_eq!(body(&record), b"stored");
    assert_eq!(body(&store.record(&done).await), b"stored");
    let absent = store.discard(&store.fresh()).await;
    assert!(matches!(absent, Resolved::Absent), "{absent:?}");
}

pub async fn a_live_claim_cannot_be_resolved(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;

    let resolved = store.resolve(&claim, &answer("resolved")).await;

    let Resolved::Found(record) = resolved else {
        panic!("resolved under its holder: {resolved:?}");
    };
    assert_eq!(StateName::of(&record), StateName::Pending);
    store.stored(&lease, &answer("holder"), LONG).await;
}

pub async fn a_finished_record_cannot_be_resolved(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.done("stored").await;

    let resolved = store.resolve(&claim, &answer("resolved")).await;

    let Resolved::Found(record) = resolved else {
        panic!("an answer was changed: {resolved:?}");
    };
    assert_eq!(body(&record), b"stored");
    assert_eq!(body(&store.record(&claim).await), b"stored");
}

pub async fn what_is_not_there_cannot_be_resolved(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();

    let resolved = store.resolve(&claim, &answer("resolved")).await;

    assert!(matches!(resolved, Resolved::Absent), "{resolved:?}");
    assert!(store.get(&claim).await.is_none());
}

pub async fn a_resolution_as_a_failure_is_one(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.unknown().await;

    let failure = onlyonce_core::Response::new(http::StatusCode::CONFLICT, "it did not happen");
    store.resolve(&claim, &failure.into()).await;

    let record = store.record(&claim).await;
    assert_eq!(StateName::of(&record), StateName::Failed);
}

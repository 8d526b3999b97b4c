//! What a lapsed claim is worth (docs/protocol.md, rules 1, 2 and 6): the next equal claim takes it over if both
//! sides re-run, nobody does if one side holds, and it is not forgotten before its time.

#![expect(missing_docs, reason = "the names are the sentences")]

use onlyonce_core::operate::StateName;
use onlyonce_core::{Claim, OnLapse, State};

use super::TestBed;
use super::subject::{Subject, answer, body, fingerprint, meta};
use super::timing::{LONG, PAST_SHORT, SHORT, SLACK, Stopwatch};

pub async fn a_lapsed_claim_is_granted_to_an_equal_one(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lapsed = store.lapsed(OnLapse::Rerun).await;
    let rival = store.rival(&lapsed);

    let grant = store.granted(&rival).await;

    assert_eq!(grant.lease.attempt, 2);
    assert_eq!(grant.lease.token, rival.token);
    assert_eq!(grant.overtaken(), Some(lapsed.meta));
    let record = store.record(&rival).await;
    assert_eq!(record.token, rival.token);
    assert_eq!(record.attempt, 2);
    assert_eq!(record.meta, rival.meta);
}

pub async fn a_claim_taken_over_is_live_again(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lapsed = store.lapsed(OnLapse::Rerun).await;
    let rival = Claim {
        lease_for: LONG,
        ..store.rival(&lapsed)
    };
    let watch = Stopwatch::start();
    store.lease(&rival).await;

    let record = store.taken(&store.rival(&lapsed)).await;

    assert_eq!(record.token, rival.token);
    let State::Pending { lease_left } = record.state else {
        panic!("not pending: {record:?}");
    };
    watch.assert_counted_from_now(lease_left, LONG);
}

pub async fn every_takeover_is_one_more_attempt(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lapsed = store.lapsed(OnLapse::Rerun).await;
    let second = store.rival(&lapsed);
    let third = Claim {
        meta: meta("third"),
        lease_for: LONG,
        ..store.rival(&lapsed)
    };

    assert_eq!(store.lease(&second).await.attempt, 2);
    bed.advance(PAST_SHORT).await;
    let grant = store.granted(&third).await;
    let again = store.granted(&third).await;

    assert_eq!(grant.lease.attempt, 3);
    assert_eq!(grant.overtaken(), Some(second.meta));
    assert_eq!(again.lease.attempt, 3);
}

pub async fn a_takeover_keeps_when_the_slot_was_first_claimed(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lapsed = Claim {
        lease_for: SHORT,
        ..store.fresh()
    };
    store.lease(&lapsed).await;
    let first = store.record(&lapsed).await;
    bed.advance(PAST_SHORT).await;

    let grant = store.granted(&store.rival(&lapsed)).await;

    let record = store.record(&lapsed).await;
    assert_eq!(record.created_at, first.created_at);
    let age = grant.overtook.expect("it was taken over").age;
    assert!(age + SLACK >= PAST_SHORT, "{age:?}");
    assert!(age <= record.age() + SLACK, "{age:?}");
}

/// The shown end and the time left are one moment, also after a takeover.
pub async fn a_takeover_shows_its_own_end_of_retention(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lapsed = Claim {
        lease_for: SHORT,
        ..store.fresh()
    };
    store.lease(&lapsed).await;
    bed.advance(PAST_SHORT).await;

    store.lease(&store.rival(&lapsed)).await;

    let record = store.record(&lapsed).await;
    let shown = record.expires_at.as_millis() - record.created_at.as_millis();
    let least = PAST_SHORT + SHORT + LONG - SLACK;
    assert!(u128::from(shown) >= least.as_millis(), "{shown} ms");
}

pub async fn an_overtaken_token_is_not_granted_again(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lapsed = store.lapsed(OnLapse::Rerun).await;
    let rival = Claim {
        lease_for: LONG,
        ..store.rival(&lapsed)
    };
    store.lease(&rival).await;

    let record = store.taken(&lapsed).await;

    assert_eq!(record.token, rival.token);
}

pub async fn the_holders_hold_wins(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let held = store.lapsed(OnLapse::Hold).await;

    let rival = Claim {
        on_lapse: OnLapse::Rerun,
        ..store.rival(&held)
    };
    let record = store.taken(&rival).await;

    assert_eq!(record.token, held.token);
    assert_eq!(record.on_lapse, OnLapse::Hold);
    assert_eq!(StateName::of(&record), StateName::Lapsed);
}

pub async fn the_claimants_hold_wins(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lapsed = store.lapsed(OnLapse::Rerun).await;

    let rival = Claim {
        on_lapse: OnLapse::Hold,
        ..store.rival(&lapsed)
    };
    let record = store.taken(&rival).await;

    assert_eq!(record.token, lapsed.token);
    assert_eq!(record.on_lapse, OnLapse::Rerun);
    assert_eq!(StateName::of(&record), StateName::Lapsed);
    assert_eq!(store.granted(&store.rival(&lapsed)).await.lease.attempt, 2);
}

pub async fn hold_on_both_sides_is_hold(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let held = store.lapsed(OnLapse::Hold).await;

    let record = store.taken(&store.rival(&held)).await;

    assert_eq!(record.token, held.token);
}

/// A crashed holder is lapsed, not forgotten: one deadline for both would run it again under hold.
pub async fn a_lapsed_claim_is_kept_for_its_retention(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        on_lapse: OnLapse::Hold,
        lease_for: SHORT,
        ..store.fresh()
    };
    let watch = Stopwatch::start();
    store.lease(&claim).await;
    bed.advance(PAST_SHORT).await;

    let record = store.record(&claim).await;

    assert_eq!(StateName::of(&record), StateName::Lapsed);
    watch.assert_counted_from_now(record.keep_left, SHORT + LONG);
}

pub async fn a_lapsed_claim_is_gone_after_lease_and_retention(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        on_lapse: OnLapse::Hold,
        lease_for: SHORT,
        keep_for: SHORT,
        ..store.fresh()
    };
    store.lease(&claim).await;

    bed.advance(SHORT + PAST_SHORT).await;

    assert!(store.get(&claim).await.is_none());
}

pub async fn a_lapsed_claim_in_the_way_of_another_request_stays(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lapsed = store.lapsed(OnLapse::Rerun).await;
    let other = Claim {
        fingerprint: fingerprint(2),
        ..store.rival(&lapsed)
    };

    store.taken(&other).await;

    let late = store.stored(&lapsed.lease(), &answer("late"), LONG).await;
    let record = store.taken(&other).await;
    assert_eq!(record.completed_at, Some(late.completed_at));
    assert_eq!(body(&record), b"late");
}

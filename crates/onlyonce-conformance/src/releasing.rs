//! How a claim ends without an answer (docs/protocol.md, rules 4 and 5): given back because nothing ran, or left
//! as "outcome unknown"; never somebody else's, and never back to life.

#![expect(missing_docs, reason = "the names are the sentences")]

use onlyonce_core::operate::StateName;
use onlyonce_core::{Claim, Claimed, OnLapse, Release, Released, State};

use super::TestBed;
use super::subject::{Subject, answer, body, fingerprint};
use super::timing::{LONG, PAST_SHORT, SHORT, Stopwatch};

pub async fn a_claim_that_did_not_run_frees_its_slot(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;

    store.ended(&lease, Release::NotRun).await;

    assert!(store.get(&claim).await.is_none());
    let other = Claim {
        fingerprint: fingerprint(2),
        ..store.rival(&claim)
    };
    let grant = store.granted(&other).await;
    assert_eq!(grant.lease.attempt, 1);
    assert_eq!(grant.overtook, None);
}

pub async fn even_a_held_or_lapsed_claim_that_did_not_run_frees_its_slot(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let held = store.lapsed(OnLapse::Hold).await;

    store.ended(&held.lease(), Release::NotRun).await;

    assert_eq!(store.granted(&store.rival(&held)).await.lease.attempt, 1);
}

/// Who gives back a claim whose reply was lost does not know that it took over. What it took over may
/// have happened, and is not run again under `hold`.
pub async fn a_claim_that_took_over_and_did_not_run_forgets_no_earlier_attempt(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let first = store.lapsed(OnLapse::Rerun).await;
    let second = Claim {
        lease_for: LONG,
        ..store.rival(&first)
    };
    let lease = store.lease(&second).await;

    for _ in 0..2 {
        store.ended(&lease, Release::NotRun).await;
    }

    let record = store.record(&first).await;
    assert_eq!(StateName::of(&record), StateName::Lapsed);
    assert_eq!(record.attempt, 2);
    assert!(matches!(
        store.claim(&second).await,
        Claimed::Dead | Claimed::Taken(_)
    ));
    let holding = Claim {
        on_lapse: OnLapse::Hold,
        ..store.rival(&first)
    };
    assert_eq!(store.taken(&holding).await.token, second.token);
    assert_eq!(store.granted(&store.rival(&first)).await.lease.attempt, 3);
}

pub async fn a_released_token_is_dead(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    store.ended(&lease, Release::NotRun).await;

    for _ in 0..2 {
        let late = store.claim(&claim).await;
        assert!(matches!(late, Claimed::Dead), "{late:?}");
    }

    assert!(store.get(&claim).await.is_none());
    store.granted(&store.rival(&claim)).await;
}

pub async fn a_released_token_stays_dead_whatever_happens_to_its_slot(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    store.ended(&lease, Release::NotRun).await;
    let next = store.rival(&claim);
    let lease = store.lease(&next).await;

    assert_not_granted(&store, &claim).await;
    store.ended(&lease, Release::NotRun).await;
    assert_not_granted(&store, &claim).await;
    assert_not_granted(&store, &next).await;

    assert!(store.get(&claim).await.is_none());
}

/// A late copy of the claim must not bring back what its holder has given up.
pub async fn a_token_released_as_unknown_is_dead_too(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
        let claim = Claim {
            on_lapse,
            ..store.fresh()
        };
        let lease = store.lease(&claim).await;
        store.ended(&lease, Release::Unknown).await;

        assert_not_granted(&store, &claim).await;
    }
}

pub async fn a_release_that_overtakes_its_claim_kills_the_token(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();

    store.ended(&claim.lease(), Release::NotRun).await;
    let late = store.claim(&claim).await;

    assert!(matches!(late, Claimed::Dead), "{late:?}");
    assert_eq!(store.granted(&store.rival(&claim)).await.lease.attempt, 1);
}

pub async fn a_release_that_overtakes_its_claim_leaves_the_holder_alone(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let holder = store.fresh();
    let lease = store.lease(&holder).await;
    let late = store.rival(&holder);

    let found = store.unreleased(&late.lease(), Release::NotRun).await;

    assert_eq!(found.token, holder.token);
    assert_not_granted(&store, &late).await;
    assert!(store.is_kept(&lease, LONG).await);
    store.ended(&lease, Release::NotRun).await;
    assert_not_granted(&store, &late).await;
}

pub async fn nobody_releases_somebody_elses_claim(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for why in [Release::NotRun, Release::Unknown] {
        let claim = store.fresh();
        let lease = store.lease(&claim).await;

        let found = store.unreleased(&store.rival(&claim).lease(), why).await;

        assert_eq!(found.token, claim.token, "{why:?}");
        let record = store.record(&claim).await;
        assert_eq!(StateName::of(&record), StateName::Pending, "{why:?}");
        store.stored(&lease, &answer("holder"), LONG).await;
    }
}

pub async fn a_lost_lease_cannot_release_its_successor(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lost = store.lapsed(OnLapse::Rerun).await;
    let successor = Claim {
        lease_for: LONG,
        ..store.rival(&lost)
    };
    let lease = store.lease(&successor).await;

    for why in [Release::Unknown, Release::NotRun] {
        let found = store.unreleased(&lost.lease(), why).await;
        assert_eq!(found.token, successor.token, "{why:?}");
    }

    let record = store.record(&lost).await;
    assert_eq!(StateName::of(&record), StateName::Pending);
    store.stored(&lease, &answer("successor"), LONG).await;
}

pub async fn an_unknown_end_under_rerun_is_claimable_at_once(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;

    store.ended(&lease, Release::Unknown).await;

    assert_eq!(
        StateName::of(&store.record(&claim).await),
        StateName::Lapsed
    );
    let grant = store.granted(&store.rival(&claim)).await;
    assert_eq!(grant.lease.attempt, 2);
    assert_eq!(grant.overtaken(), Some(claim.meta));
}

pub async fn an_unknown_end_under_rerun_yields_to_no_other_request(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    store.ended(&lease, Release::Unknown).await;

    let other = Claim {
        fingerprint: fingerprint(2),
        ..store.rival(&claim)
    };
    let holding = Claim {
        on_lapse: OnLapse::Hold,
        ..store.rival(&claim)
    };

    assert_eq!(store.taken(&other).await.token, claim.token);
    assert_eq!(store.taken(&holding).await.token, claim.token);
}

pub async fn an_unknown_end_under_hold_is_never_claimable(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        on_lapse: OnLapse::Hold,
        lease_for: SHORT,
        ..store.fresh()
    };
    let lease = store.lease(&claim).await;
    store.ended(&lease, Release::Unknown).await;
    bed.advance(PAST_SHORT).await;

    let rerun = Claim {
        on_lapse: OnLapse::Rerun,
        ..store.rival(&claim)
    };

    for claim in [&claim, &store.rival(&claim), &rerun] {
        assert_eq!(store.taken(claim).await.state, State::Unknown);
    }
}

/// docs/protocol.md#rule-6: what was promised with the claim, lease and retention, is not shortened.
pub async fn an_unknown_end_is_kept_for_lease_and_retention(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
        let claim = Claim {
            on_lapse,
            ..store.fresh()
        };
        let watch = Stopwatch::start();
        let lease = store.lease(&claim).await;

        store.ended(&lease, Release::Unknown).await;

        let record = store.record(&claim).await;
        watch.assert_counted_from_now(record.keep_left, 2 * LONG);
        assert_eq!(record.completed_at, None);
    }
}

pub async fn a_repeated_release_changes_nothing_more(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;

    store.ended(&lease, Release::NotRun).await;
    store.ended(&lease, Release::NotRun).await;

    let next = store.rival(&claim);
    store.lease(&next).await;
    let found = store.unreleased(&lease, Release::NotRun).await;
    assert_eq!(found.token, next.token);
    assert_eq!(StateName::of(&found), StateName::Pending);
}

pub async fn a_repeated_unknown_end_changes_nothing_more(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for (on_lapse, state) in [
        (OnLapse::Rerun, StateName::Lapsed),
        (OnLapse::Hold, StateName::Unknown),
    ] {
        let claim = Claim {
            on_lapse,
            ..store.fresh()
        };
        let lease = store.lease(&claim).await;
        store.ended(&lease, Release::Unknown).await;

        let again = store.release(&lease, Release::Unknown).await;

        if let Released::Found(record) = again {
            assert_eq!(record.token, claim.token, "{on_lapse:?}");
        }
        let record = store.record(&claim).await;
        assert_eq!(StateName::of(&record), state, "{on_lapse:?}");
    }
}

/// Something may have happened: that cannot be taken back by saying later that nothing ran.
pub async fn an_unknown_end_under_hold_cannot_be_given_back(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.unknown().await;

    let found = store.unreleased(&claim.lease(), Release::NotRun).await;

    assert_eq!(found.state, State::Unknown);
    assert_eq!(store.record(&claim).await.state, State::Unknown);
}

pub async fn a_finished_record_cannot_be_released(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for why in [Release::NotRun, Release::Unknown] {
        let claim = store.done("stored").await;

        let found = store.unreleased(&claim.lease(), why).await;

        assert_eq!(found.token, claim.token, "{why:?}");
        assert_eq!(body(&found), b"stored", "{why:?}");
        assert_eq!(body(&store.record(&claim).await), b"stored", "{why:?}");
    }
}

pub async fn releasing_what_is_not_there_is_an_end_too(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for why in [Release::NotRun, Release::Unknown] {
        let claim = store.fresh();

        store.ended(&claim.lease(), why).await;

        assert!(store.get(&claim).await.is_none(), "{why:?}");
    }
}

async fn assert_not_granted(store: &Subject<'_>, claim: &Claim) {
    match store.claim(claim).await {
        Claimed::Dead | Claimed::Taken(_) => {}
        granted @ Claimed::Granted { .. } => panic!("a dead token came to life: {granted:?}"),
    }
}

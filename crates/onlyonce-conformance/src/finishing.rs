//! How an answer gets into the store (docs/protocol.md#rule-4, T2): fenced by token, once, and kept from the
//! moment it is stored.

#![expect(missing_docs, reason = "the names are the sentences")]

use std::time::Duration;

use onlyonce_core::operate::StateName;
use onlyonce_core::{Claim, OnLapse, Release, Token};

use super::TestBed;
use super::subject::{Subject, answer, body, fingerprint};
use super::timing::{LONG, PAST_SHORT, SHORT, SLACK, Stopwatch};

pub async fn a_stored_answer_is_found_by_every_later_claim(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;

    store.stored(&lease, &answer("stored"), LONG).await;

    for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
        let rival = Claim {
            on_lapse,
            ..store.rival(&claim)
        };
        let record = store.taken(&rival).await;
        assert_eq!(record.token, claim.token);
        assert_eq!(body(&record), b"stored");
    }
}

pub async fn an_answer_outlives_the_lease_it_was_made_under(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        lease_for: SHORT,
        ..store.fresh()
    };
    let lease = store.lease(&claim).await;
    store.stored(&lease, &answer("stored"), LONG).await;

    bed.advance(PAST_SHORT).await;

    assert_eq!(body(&store.taken(&store.rival(&claim)).await), b"stored");
}

pub async fn what_is_recalled_is_what_a_claim_would_find(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let pending = store.fresh();
    assert!(store.recalled(&pending).is_none());
    store.lease(&pending).await;
    assert!(store.recalled(&pending).is_none());
    assert!(store.recalled(&store.unknown().await).is_none());
    assert!(store.recalled(&store.expired().await).is_none());

    let done = store.done("stored").await;

    let other = Claim {
        fingerprint: fingerprint(2),
        ..done.clone()
    };
    assert!(store.recalled(&other).is_none());
    // A store need not have it at hand; what it has, is what it would say.
    if let Some(replay) = store.recalled(&done) {
        let record = store.taken(&store.rival(&done)).await;
        assert_eq!(Some(&replay.response), record.response());
        assert_eq!(replay.original_at, Some(record.created_at));
        assert_eq!(replay.expires_at, Some(record.expires_at));
        assert_eq!(replay.original_trace, record.meta.trace);
        assert_eq!(replay.replays, record.replays);
    }
}

pub async fn another_token_cannot_complete(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;

    let found = store
        .fenced(&store.rival(&claim).lease(), &answer("stranger"))
        .await;

    assert_eq!(found.token, claim.token);
    assert_eq!(StateName::of(&found), StateName::Pending);
    store.stored(&lease, &answer("holder"), LONG).await;
    assert_eq!(body(&store.record(&claim).await), b"holder");
}

pub async fn another_token_cannot_complete_even_a_lapsed_claim(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.lapsed(OnLapse::Rerun).await;

    let stranger = store.rival(&claim).lease();
    let found = store.fenced(&stranger, &answer("stranger")).await;

    assert_eq!(found.token, claim.token);
    assert_eq!(StateName::of(&found), StateName::Lapsed);
}

pub async fn a_lost_lease_cannot_complete_while_its_successor_runs(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lost = store.lapsed(OnLapse::Rerun).await;
    let successor = Claim {
        lease_for: LONG,
        ..store.rival(&lost)
    };
    let lease = store.lease(&successor).await;

    let found = store.fenced(&lost.lease(), &answer("lost")).await;

    assert_eq!(found.token, successor.token);
    assert_eq!(StateName::of(&found), StateName::Pending);
    store.stored(&lease, &answer("successor"), LONG).await;
}

pub async fn a_lost_lease_gets_what_its_successor_stored(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lost = store.lapsed(OnLapse::Rerun).await;
    let successor = store.rival(&lost);
    let lease = store.lease(&successor).await;
    store.stored(&lease, &answer("successor"), LONG).await;

    let found = store.fenced(&lost.lease(), &answer("lost")).await;

    assert_eq!(found.token, successor.token);
    assert_eq!(body(&found), b"successor");
    assert_eq!(body(&store.record(&lost).await), b"successor");
}

pub async fn a_late_completion_that_nobody_overtook_is_welcome(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
        let late = store.lapsed(on_lapse).await;

        store.stored(&late.lease(), &answer("late"), LONG).await;

        let record = store.taken(&store.rival(&late)).await;
        assert_eq!(body(&record), b"late", "{on_lapse:?}");
    }
}

pub async fn a_repeated_completion_returns_what_is_stored(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    store.stored(&lease, &answer("first"), LONG).await;
    let before = store.record(&claim).await;

    let found = store.fenced(&lease, &answer("second")).await;

    assert_eq!(found.token, claim.token);
    assert_eq!(body(&found), b"first");
    assert_eq!(found.completed_at, before.completed_at);
    assert_eq!(found.expires_at, before.expires_at);
    assert_eq!(body(&store.record(&claim).await), b"first");
}

pub async fn completing_what_was_never_claimed_changes_nothing(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();

    assert!(store.is_absent_for(&claim.lease()).await);

    assert!(store.get(&claim).await.is_none());
}

pub async fn completing_what_was_given_back_changes_nothing(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    store.ended(&lease, Release::NotRun).await;

    assert!(store.is_absent_for(&lease).await);

    assert!(store.get(&claim).await.is_none());
}

pub async fn completing_what_ended_unknown_is_welcome_only_under_rerun(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let rerun = store.fresh();
    let lease = store.lease(&rerun).await;
    store.ended(&lease, Release::Unknown).await;
    let held = store.unknown().await;

    store.stored(&lease, &answer("late"), LONG).await;
    let found = store.fenced(&held.lease(), &answer("late")).await;

    assert_eq!(body(&store.record(&rerun).await), b"late");
    assert_eq!(StateName::of(&found), StateName::Unknown);
}

pub async fn retention_is_counted_from_the_completion(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    bed.advance(Duration::from_secs(1)).await;

    let watch = Stopwatch::start();
    store.stored(&lease, &answer("stored"), LONG).await;

    let record = store.record(&claim).await;
    watch.assert_counted_from_now(record.keep_left, LONG);
}

pub async fn retention_may_be_shorter_than_the_claim_asked(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    store.stored(&lease, &answer("stored"), SHORT).await;

    bed.advance(PAST_SHORT).await;

    assert!(store.get(&claim).await.is_none());
    assert_eq!(store.granted(&store.rival(&claim)).await.lease.attempt, 1);
}

pub async fn retention_may_be_longer_than_the_claim_asked(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        keep_for: SHORT,
        ..store.fresh()
    };
    let lease = store.lease(&claim).await;

    let watch = Stopwatch::start();
    store.stored(&lease, &answer("stored"), 3 * LONG).await;

    let record = store.record(&claim).await;
    watch.assert_counted_from_now(record.keep_left, 3 * LONG);
}

pub async fn an_answer_kept_for_no_time_is_gone_at_once(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;

    store
        .stored(&lease, &answer("stored"), Duration::ZERO)
        .await;
    // Where a store counts in milliseconds, "at once" is the next one.
    bed.advance(SLACK).await;

    assert!(store.get(&claim).await.is_none());
}

pub async fn an_answer_may_be_kept_for_a_century(bed: &dyn TestBed) {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    let store = Subject::of(bed);
    let claim = Claim {
        keep_for: CENTURY,
        ..store.fresh()
    };
    let lease = store.lease(&claim).await;

    let watch = Stopwatch::start();
    store.stored(&lease, &answer("stored"), CENTURY).await;

    let record = store.record(&claim).await;
    watch.assert_counted_from_now(record.keep_left, CENTURY);
}

pub async fn a_receipt_says_what_the_record_says(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;
    let pending = store.record(&claim).await;

    let receipt = store.stored(&lease, &answer("stored"), LONG).await;

    let record = store.record(&claim).await;
    assert_eq!(receipt.created_at, pending.created_at);
    assert_eq!(receipt.created_at, record.created_at);
    assert_eq!(Some(receipt.completed_at), record.completed_at);
    assert_eq!(receipt.expires_at, record.expires_at);
    let kept = receipt.expires_at.as_millis() - receipt.completed_at.as_millis();
    let off = Duration::from_millis(kept).abs_diff(LONG);
    assert!(off <= SLACK, "kept for {kept} ms");
}

pub async fn a_token_of_zeros_is_a_token_like_any_other(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        token: Token::from_bytes([0; Token::BYTES]),
        ..store.fresh()
    };

    let lease = store.lease(&claim).await;
    store.taken(&store.rival(&claim)).await;
    store.stored(&lease, &answer("stored"), LONG).await;

    assert_eq!(store.record(&claim).await.token, claim.token);
}

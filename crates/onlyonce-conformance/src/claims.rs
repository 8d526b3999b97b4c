//! Who gets a slot (docs/protocol.md#rule-2): a claim that finds it empty or expired, or holds it already; and a
//! different fingerprint never (docs/protocol.md#rule-3). Takeovers are in the file beside this one.

#![expect(missing_docs, reason = "the names are the sentences")]

use std::time::Duration;

use onlyonce_core::{Claim, Claimed, Fingerprint, OnLapse, Slot, State, Token};

use super::TestBed;
use super::subject::{Subject, answer, body, fingerprint, meta};
use super::timing::{LONG, PAST_SHORT, SHORT, Stopwatch};

pub async fn an_empty_slot_is_granted(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();

    let grant = store.granted(&claim).await;

    assert_eq!(grant.lease, claim.lease());
    assert_eq!(grant.lease.attempt, 1);
    assert_eq!(grant.overtook, None);
}

pub async fn an_expired_answer_is_granted_anew(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let expired = store.expired().await;

    let other = Claim {
        fingerprint: fingerprint(2),
        ..store.rival(&expired)
    };
    let grant = store.granted(&other).await;

    assert_eq!(grant.lease.attempt, 1);
    assert_eq!(grant.overtook, None);
    assert_eq!(store.record(&other).await.fingerprint, fingerprint(2));
}

pub async fn an_expired_claim_is_granted_anew_even_under_hold(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        on_lapse: OnLapse::Hold,
        lease_for: SHORT,
        keep_for: SHORT,
        ..store.fresh()
    };
    store.lease(&claim).await;
    bed.advance(SHORT + PAST_SHORT).await;

    let grant = store.granted(&store.rival(&claim)).await;

    assert_eq!(grant.lease.attempt, 1);
    assert_eq!(grant.overtook, None);
}

pub async fn a_live_claim_is_taken(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let watch = Stopwatch::start();
    store.lease(&claim).await;

    let record = store.taken(&store.rival(&claim)).await;

    assert_eq!(record.token, claim.token);
    assert_eq!(record.attempt, 1);
    let State::Pending { lease_left } = record.state else {
        panic!("not pending: {record:?}");
    };
    watch.assert_counted_from_now(lease_left, LONG);
}

pub async fn a_claim_in_vain_changes_nothing(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let lease = store.lease(&claim).await;

    let rival = Claim {
        on_lapse: OnLapse::Hold,
        keep_for: SHORT,
        lease_for: SHORT,
        ..store.rival(&claim)
    };
    store.taken(&rival).await;
    bed.advance(SHORT + PAST_SHORT).await;

    let record = store.record(&claim).await;
    assert_eq!(record.token, claim.token);
    assert_eq!(record.on_lapse, OnLapse::Rerun);
    assert_eq!(record.meta, claim.meta);
    assert!(!record.is_lapsed());
    store.stored(&lease, &answer("first"), LONG).await;
}

pub async fn the_own_token_again_is_the_same_attempt(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let first = store.granted(&claim).await;

    let again = store.granted(&claim).await;

    assert_eq!(again.lease, first.lease);
    assert_eq!(again.overtook, None);
}

pub async fn the_own_token_again_is_granted_even_when_lapsed(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    for on_lapse in [OnLapse::Rerun, OnLapse::Hold] {
        let claim = store.lapsed(on_lapse).await;

        let again = store.granted(&claim).await;

        assert_eq!(again.lease.attempt, 1, "{on_lapse:?}");
        assert_eq!(again.overtook, None, "{on_lapse:?}");
    }
}

pub async fn the_own_token_again_has_a_whole_lease_again(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let lapsed = store.lapsed(OnLapse::Rerun).await;

    let again = Claim {
        lease_for: LONG,
        ..lapsed
    };
    let watch = Stopwatch::start();
    store.lease(&again).await;

    let record = store.taken(&store.rival(&again)).await;
    assert_eq!(record.token, again.token);
    let State::Pending { lease_left } = record.state else {
        panic!("not pending: {record:?}");
    };
    watch.assert_counted_from_now(lease_left, LONG);
}

pub async fn the_own_token_again_after_completion_finds_the_answer(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.done("stored").await;

    let record = store.taken(&claim).await;

    assert_eq!(record.token, claim.token);
    assert_eq!(body(&record), b"stored");
}

pub async fn a_different_fingerprint_is_not_granted_a_live_claim(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    store.lease(&claim).await;

    assert_other_request_is_refused(&store, &claim).await;
}

pub async fn a_different_fingerprint_is_not_granted_even_a_lapsed_claim(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.lapsed(OnLapse::Rerun).await;

    assert_other_request_is_refused(&store, &claim).await;

    store.granted(&store.rival(&claim)).await;
}

pub async fn a_different_fingerprint_is_not_granted_a_finished_record(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.done("stored").await;

    assert_other_request_is_refused(&store, &claim).await;
}

pub async fn a_different_fingerprint_is_not_granted_an_unknown_outcome(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.unknown().await;

    assert_other_request_is_refused(&store, &claim).await;
}

async fn assert_other_request_is_refused(store: &Subject<'_>, claim: &Claim) {
    let before = store.record(claim).await;
    let another_recipe = Fingerprint::new(Fingerprint::RECIPE + 1, *claim.fingerprint.digest());

    for other in [fingerprint(2), another_recipe] {
        let other = Claim {
            fingerprint: other,
            ..store.rival(claim)
        };
        let found = store.taken(&other).await;

        assert_eq!(found.fingerprint, claim.fingerprint);
        assert_eq!(found.token, claim.token);
        assert_eq!(found.attempt, before.attempt);
        assert_eq!(found.response(), before.response());
    }
}

pub async fn a_lease_of_no_time_is_lapsed_at_once(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        lease_for: Duration::ZERO,
        ..store.fresh()
    };
    store.lease(&claim).await;

    let record = store.record(&claim).await;
    assert_eq!(
        record.state,
        State::Pending {
            lease_left: Duration::ZERO
        }
    );
    assert_eq!(store.granted(&store.rival(&claim)).await.lease.attempt, 2);
}

pub async fn slots_that_differ_in_one_bit_are_two(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    store.lease(&claim).await;

    for bit in [0, 100, 255] {
        let mut bytes = *claim.slot.as_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let neighbour = Claim {
            slot: Slot::from_bytes(bytes),
            ..claim.clone()
        };

        store.granted(&neighbour).await;
    }
}

/// Databases like to compare text: without regard to case, to white space at the end, or to
/// anything after a zero byte.
pub async fn slots_are_bytes_not_text(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.fresh();
    let ends: [&[u8]; 6] = [b"ab", b"AB", b"a ", b"a\0", b"\0a", b"\xe4\xff"];

    for end in ends {
        let mut bytes = *claim.slot.as_bytes();
        bytes[Slot::BYTES - end.len()..].copy_from_slice(end);
        let slot = Slot::from_bytes(bytes);

        let grant = store
            .granted(&Claim {
                slot,
                ..claim.clone()
            })
            .await;

        assert_eq!(grant.lease.attempt, 1, "{end:?}");
        assert_eq!(grant.lease.slot, slot, "{end:?}");
    }
}

pub async fn tokens_are_bytes_not_text(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let ends: [(&[u8], &[u8]); 3] = [(b"ab", b"AB"), (b"a ", b"a\0"), (b"\xe4\xc4", b"\xc4\xe4")];

    for (held, asking) in ends {
        let claim = store.fresh();
        let mut tokens = [*claim.token.as_bytes(); 2];
        tokens[0][Token::BYTES - 2..].copy_from_slice(held);
        tokens[1][Token::BYTES - 2..].copy_from_slice(asking);
        let [held, asking] = tokens.map(|token| Claim {
            token: Token::from_bytes(token),
            ..claim.clone()
        });
        store.lease(&held).await;

        let claimed = store.claim(&asking).await;

        assert!(matches!(claimed, Claimed::Taken(_)), "{claimed:?}");
    }
}

pub async fn a_slot_does_not_change_with_its_neighbours(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let kept = store.done("kept").await;

    let other = Claim {
        meta: meta("other"),
        ..store.fresh()
    };
    let lease = store.lease(&other).await;
    store.stored(&lease, &answer("other"), SHORT).await;
    bed.advance(PAST_SHORT).await;
    assert!(store.get(&other).await.is_none());

    assert_eq!(body(&store.record(&kept).await), b"kept");
}

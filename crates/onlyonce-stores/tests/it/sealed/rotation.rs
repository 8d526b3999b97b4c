//! A new first key: what was sealed and claimed under an older one still counts, and a key that is
//! missing is an error, never an absence.

use onlyonce_core::engine::Who;
use onlyonce_core::policy::StoreDown;
use onlyonce_core::{Answer, Engine, Outcome, Policy, Reason};

use super::*;

struct Bed {
    rough: Arc<Rough>,
    before: Sealed,
    after: Sealed,
}

/// One store, as a process sees it before and after the rotation.
async fn bed() -> Bed {
    let rough = Rough::new(Arc::new(MemoryStore::new()));
    let before = sealed(rough.clone(), KEY_A).await;
    let after = sealed(rough.clone(), KEYS_BA).await;
    rough.asked();
    Bed {
        rough,
        before,
        after,
    }
}

fn lapsing() -> Claim {
    Claim {
        lease_for: Duration::ZERO,
        ..claim()
    }
}

#[tokio::test]
async fn what_was_sealed_before_is_opened_after() {
    let bed = bed().await;
    let claim = done(&bed.before, "stored", LONG).await;

    let record = taken(&bed.after, &claim).await;

    assert_eq!(record.fingerprint, claim.fingerprint);
    assert_eq!(record.response(), Some(&answer("stored")));
    let shown = stored(&bed.after, &claim.slot).await;
    assert_eq!(shown.fingerprint, claim.fingerprint);
}

#[tokio::test]
async fn the_new_key_seals_and_the_old_process_with_both_keys_opens() {
    let bed = bed().await;
    let waiting = sealed(bed.rough.clone(), &format!("{KEY_A}\n{KEY_B}")).await;
    let claim = done(&bed.after, "stored", LONG).await;

    let kept = stored(&*bed.rough, &claim.slot).await;

    assert_eq!(response_of(&kept).headers["onlyonce-sealed"], "1;key=b");
    assert_eq!(replayed(&waiting, &claim).await, b"stored");
}

#[tokio::test]
async fn what_was_claimed_before_can_be_finished_after() {
    let bed = bed().await;
    let claim = claim();
    let lease = lease(&bed.before, &claim).await;

    let record = taken(&bed.after, &claim).await;
    bed.after
        .complete(&lease, &answer("stored"), LONG)
        .await
        .unwrap();

    assert_eq!(record.fingerprint, claim.fingerprint);
    let found = taken(&bed.after, &claim).await;
    assert_eq!(found.fingerprint, claim.fingerprint);
    assert_eq!(found.response(), Some(&answer("stored")));
    assert_eq!(
        stored(&bed.after, &claim.slot).await.fingerprint,
        claim.fingerprint
    );
}

#[tokio::test]
async fn another_request_is_another_one_after_as_before() {
    let bed = bed().await;
    let (running, finished) = (claim(), done(&bed.before, "stored", LONG).await);
    lease(&bed.before, &running).await;

    for claim in [running, finished] {
        let other = Claim {
            fingerprint: fingerprint(2),
            ..claim
        };
        assert_ne!(
            taken(&bed.after, &other).await.fingerprint,
            other.fingerprint
        );
    }
}

#[tokio::test]
async fn what_lapsed_before_can_be_taken_over_after() {
    let bed = bed().await;
    let lapsed = lapsing();
    lease(&bed.before, &lapsed).await;
    let next = Claim {
        lease_for: LONG,
        ..rival(&lapsed)
    };

    let claimed = bed.after.claim(&next).await.unwrap();

    let Claimed::Granted { lease, overtook } = claimed else {
        panic!("{claimed:?}");
    };
    assert_eq!(
        lease,
        Lease {
            attempt: 2,
            ..next.lease()
        }
    );
    assert_eq!(overtook.map(|it| it.meta), Some(lapsed.meta.clone()));
    bed.after
        .complete(&lease, &answer("stored"), LONG)
        .await
        .unwrap();
    assert_eq!(replayed(&bed.after, &lapsed).await, b"stored");
}

#[tokio::test]
async fn only_that_takeover_costs_one_round_trip_more() {
    let bed = bed().await;
    let (lapsed, running) = (lapsing(), claim());
    lease(&bed.before, &lapsed).await;
    lease(&bed.before, &running).await;
    bed.rough.asked();

    taken(&bed.after, &running).await;
    assert_eq!(bed.rough.asked(), [Verb::Claim]);
    let other = Claim {
        fingerprint: fingerprint(2),
        ..lapsed.clone()
    };
    taken(&bed.after, &other).await;
    assert_eq!(bed.rough.asked(), [Verb::Claim]);
    let held = Claim {
        on_lapse: OnLapse::Hold,
        ..lapsed.clone()
    };
    taken(&bed.after, &held).await;
    assert_eq!(bed.rough.asked(), [Verb::Claim]);

    assert!(is_granted(&bed.after, &lapsed).await);
    assert_eq!(bed.rough.asked(), [Verb::Claim, Verb::Claim]);
}

#[tokio::test]
async fn the_own_claim_from_before_is_granted_again() {
    let bed = bed().await;
    let claim = claim();
    let first = lease(&bed.before, &claim).await;

    let again = lease(&bed.after, &claim).await;

    assert_eq!(again, first);
}

#[tokio::test]
async fn what_ended_unknown_before_can_be_resolved_after() {
    let bed = bed().await;
    let unknown = Claim {
        on_lapse: OnLapse::Hold,
        ..claim()
    };
    let lease = lease(&bed.before, &unknown).await;
    bed.before.release(&lease, Release::Unknown).await.unwrap();

    let resolved = bed
        .after
        .resolve(&unknown.slot, &answer("resolved"), LONG)
        .await;

    assert!(matches!(resolved, Ok(Resolved::Stored)));
    let record = taken(&bed.after, &unknown).await;
    assert_eq!(record.fingerprint, unknown.fingerprint);
    assert_eq!(record.response(), Some(&answer("resolved")));
    let other = Claim {
        fingerprint: fingerprint(2),
        ..unknown
    };
    assert_ne!(
        taken(&bed.after, &other).await.fingerprint,
        other.fingerprint
    );
}

#[tokio::test]
async fn a_missing_key_is_an_error_and_never_an_absence() {
    let bed = bed().await;
    let claim = done(&bed.after, "stored", LONG).await;

    let (kind, said) = failure(bed.before.claim(&rival(&claim)).await);

    assert_eq!(kind, StoreErrorKind::Corrupt);
    assert_eq!(
        said,
        "sealed store: a stored record cannot be read: sealed with key `b`, which is not in the \
         ring: add it back"
    );
    assert_eq!(replayed(&bed.after, &claim).await, b"stored");
}

#[tokio::test]
async fn with_a_missing_key_nothing_runs_even_where_the_policy_is_open() {
    let bed = bed().await;
    let (before, after) = (
        Engine::open(bed.before).await.unwrap(),
        Engine::open(bed.after).await.unwrap(),
    );
    let policy = Arc::new(Policy {
        store_down: StoreDown::Open,
        ..Policy::default()
    });
    let call = |engine: &Engine| {
        let key = onlyonce_core::Key::new("order-7-of-alice", &Default::default()).unwrap();
        let scope = engine.scope().with("test", "sealed");
        engine.call(&scope, &key, fingerprint(1), &policy, Who::doing("test"))
    };
    let outcome = || Outcome::from(Response::new(StatusCode::OK, "ran"));
    let first = after
        .once(call(&after), move |_| async move { outcome() })
        .await;
    assert!(matches!(first, Answer::Ran { .. }), "{first:?}");

    let second = before
        .once(call(&before), |_| async { panic!("it ran again") })
        .await;

    let Answer::Refused(refusal) = second else {
        panic!("{second:?}");
    };
    assert_eq!(refusal.reason, Reason::StoreDown);
}

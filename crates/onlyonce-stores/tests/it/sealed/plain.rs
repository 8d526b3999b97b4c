//! A store that was in use before it was sealed: its records count only where that is allowed.

use super::*;

/// A store in use, and a process that seals it from now on.
async fn bed(allow: bool) -> (Arc<MemoryStore>, Sealed) {
    let raw = Arc::new(MemoryStore::new());
    let ring = KeyRing::parse(KEY_A).unwrap();
    let ring = if allow { ring.allow_plain() } else { ring };
    let store = Sealed::open(raw.clone(), ring).await.unwrap();
    (raw, store)
}

#[tokio::test]
async fn an_answer_that_is_not_sealed_is_refused_unless_allowed() {
    let (raw, store) = bed(false).await;
    let claim = done(&*raw, "plain", LONG).await;

    let (kind, said) = failure(store.claim(&rival(&claim)).await);

    assert_eq!(kind, StoreErrorKind::Corrupt);
    assert!(
        said.contains("holds an answer that is not sealed"),
        "{said}"
    );
    assert!(said.contains("allow plain records"), "{said}");
}

#[tokio::test]
async fn where_it_is_allowed_what_was_stored_before_is_replayed() {
    let (raw, store) = bed(true).await;
    let claim = done(&*raw, "plain", LONG).await;

    let record = taken(&store, &claim).await;

    assert_eq!(record.fingerprint, claim.fingerprint);
    assert_eq!(record.response(), Some(&answer("plain")));
    let other = Claim {
        fingerprint: fingerprint(2),
        ..claim
    };
    assert_ne!(taken(&store, &other).await.fingerprint, other.fingerprint);
}

#[tokio::test]
async fn where_it_is_allowed_what_lapsed_before_can_be_taken_over() {
    let (raw, store) = bed(true).await;
    let lapsed = Claim {
        lease_for: Duration::ZERO,
        ..claim()
    };
    lease(&*raw, &lapsed).await;
    let next = Claim {
        lease_for: LONG,
        ..rival(&lapsed)
    };

    let lease = lease(&store, &next).await;
    store
        .complete(&lease, &answer("sealed"), LONG)
        .await
        .unwrap();

    assert_eq!(lease.attempt, 2);
    let kept = response_of(&stored(&*raw, &lapsed.slot).await);
    assert_eq!(kept.headers["onlyonce-sealed"], "1;key=a");
    assert_eq!(replayed(&store, &lapsed).await, b"sealed");
}

#[tokio::test]
async fn where_it_is_allowed_new_answers_are_sealed_all_the_same() {
    let (raw, store) = bed(true).await;

    let claim = done(&store, "hidden", LONG).await;

    let kept = response_of(&stored(&*raw, &claim.slot).await);
    assert!(!holds(&kept.body, b"hidden"));
    assert_eq!(replayed(&store, &claim).await, b"hidden");
}

/// The fingerprint keeps it from being replayed: it belongs to no request the process knows.
#[tokio::test]
async fn a_process_without_the_seal_does_not_take_a_sealed_answer_for_its_own() {
    let (raw, store) = bed(false).await;
    let claim = done(&store, "sealed", LONG).await;

    let record = taken(&*raw, &claim).await;

    assert_ne!(record.fingerprint, claim.fingerprint);
}

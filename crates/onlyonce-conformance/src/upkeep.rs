//! What keeps a store in order (T3): sweeping, counting, and agreeing on a value.

#![expect(missing_docs, reason = "the names are the sentences")]

use futures_util::future::join_all;
use onlyonce_core::{Claim, Completed, OnLapse, Release};

use super::TestBed;
use super::subject::{Subject, answer, body};
use super::timing::{LONG, PAST_SHORT, SHORT, SLACK};

pub async fn the_store_answers(bed: &dyn TestBed) {
    Subject::of(bed).ping().await;
}

pub async fn a_sweep_drops_no_more_than_it_is_told(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    for _ in 0..5 {
        let claim = Claim {
            lease_for: SHORT,
            keep_for: SHORT,
            ..store.fresh()
        };
        store.lease(&claim).await;
    }
    bed.advance(SHORT + PAST_SHORT).await;

    let swept = [
        store.sweep(0).await,
        store.sweep(2).await,
        store.sweep(2).await,
        store.sweep(100).await,
        store.sweep(100).await,
    ];

    if bed.expires_by_itself() {
        let most = [0, 2, 2, 100, 100];
        assert!(swept.iter().zip(most).all(|(&swept, most)| swept <= most));
    } else {
        assert_eq!(swept, [0, 2, 2, 1, 0]);
    }
}

pub async fn a_sweep_drops_only_what_has_expired(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let pending = store.fresh();
    store.lease(&pending).await;
    let unknown = store.unknown().await;
    let done = store.done("stored").await;
    let extended = store.done("extended").await;
    assert!(store.extend(&extended, LONG).await);
    store.expired().await;
    let lapsed = store.lapsed(OnLapse::Hold).await;

    let swept = store.sweep(100).await;

    assert!(swept <= 1, "{swept} dropped");
    for claim in [&pending, &lapsed, &unknown, &done, &extended] {
        store.record(claim).await;
    }
    assert_eq!(store.stats().await.records, 5);
}

/// A claim queued for the end of its retention expires earlier once it is completed for less, and
/// later once it is extended: both must be swept in their time.
pub async fn a_sweep_follows_a_record_whose_end_has_moved(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let sooner = store.fresh();
    let lease = store.lease(&sooner).await;
    store.stored(&lease, &answer("sooner"), SHORT).await;
    let given_up = Claim {
        on_lapse: OnLapse::Hold,
        lease_for: SHORT,
        keep_for: SHORT,
        ..store.fresh()
    };
    let lease = store.lease(&given_up).await;
    store.ended(&lease, Release::Unknown).await;
    let later = completed_for_longer(&store).await;
    bed.advance(SHORT + PAST_SHORT).await;

    let swept = store.sweep(100).await;

    assert!(swept >= 2 || bed.expires_by_itself(), "{swept} dropped");
    assert_eq!(store.sweep(100).await, 0);
    assert_eq!(store.stats().await.records, 1);
    assert_eq!(body(&store.record(&later).await), b"later");
}

/// Whether a sweep finds a record, or a claim has replaced it before: the first sweep after that is
/// handed its end. A store that hands over nothing leaves that to those who stored the records.
pub async fn what_has_ended_is_handed_over_once_with_what_was_known_of_it(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let done = store.done("kept").await;
    let pending = Claim {
        lease_for: SHORT,
        keep_for: SHORT,
        ..store.fresh()
    };
    store.lease(&pending).await;
    let replaced = store.expired().await;
    store.lease(&store.rival(&replaced)).await;
    let expired = store.fresh();
    let lease = store.lease(&expired).await;
    store.stored(&lease, &answer("expired"), SHORT).await;
    store.number_replays(&[(expired.slot, 2)]).await;
    bed.advance(SHORT + PAST_SHORT).await;

    let mut ended = store.sweep_ended(100).await.ended;

    if !store.hands_over_ended() {
        assert!(ended.is_empty(), "{ended:?}");
        return;
    }
    ended.sort_by_key(|ended| ended.slot != replaced.slot);
    let slots: Vec<_> = ended.iter().map(|ended| ended.slot).collect();
    assert_eq!(slots, [replaced.slot, expired.slot]);
    for (ended, claim) in ended.iter().zip([&replaced, &expired]) {
        assert_eq!(ended.meta, claim.meta);
        assert_eq!(ended.fingerprint, claim.fingerprint);
        assert!(ended.keep_for.abs_diff(SHORT) <= SLACK, "{ended:?}");
        assert!(ended.lifetime >= SHORT, "{:?}", ended.lifetime);
        let response = ended.response.as_ref();
        assert_eq!(response.map(|it| &*it.body), Some(&b"expired"[..]));
    }
    assert!(
        ended
            .iter()
            .all(|it| it.replays == 0 || it.slot == expired.slot)
    );
    assert_eq!(store.sweep_ended(100).await.ended.len(), 0);
    assert_eq!(body(&store.record(&done).await), b"kept");
}

pub async fn sweeps_at_the_same_time_are_handed_different_ends(bed: &dyn TestBed) {
    const RECORDS: usize = 30;
    let store = Subject::of(bed);
    let mut slots = Vec::new();
    for _ in 0..RECORDS {
        let claim = store.fresh();
        let lease = store.lease(&claim).await;
        store.stored(&lease, &answer("expired"), SHORT).await;
        slots.push(claim.slot);
    }
    bed.advance(SHORT + PAST_SHORT).await;

    let sweeps = (0..4).map(|_| store.sweep_ended(RECORDS));
    let swept = join_all(sweeps).await;

    if !store.hands_over_ended() {
        return;
    }
    let ended = swept.into_iter().flat_map(|swept| swept.ended);
    let mut handed: Vec<_> = ended.map(|ended| ended.slot).collect();
    // What another had in its hands just then is left for the next.
    let rest = store.sweep_ended(RECORDS).await.ended;
    handed.extend(rest.into_iter().map(|ended| ended.slot));
    handed.sort_unstable();
    slots.sort_unstable();
    assert_eq!(handed, slots);
}

/// A claim that would have expired soon, but was completed before that, for long. A slow machine
/// may come too late for that; it tries again.
async fn completed_for_longer(store: &Subject<'_>) -> Claim {
    const TRIES: usize = 10;
    for _ in 0..TRIES {
        let claim = Claim {
            lease_for: SHORT,
            keep_for: SHORT,
            ..store.fresh()
        };
        let lease = store.lease(&claim).await;
        let completed = store.complete(&lease, &answer("later"), LONG).await;
        if let Completed::Stored(_) = completed {
            return claim;
        }
    }
    panic!("{TRIES} completions in a row found nothing to complete");
}

pub async fn the_stats_count_what_is_live(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let empty = store.stats().await;
    store.lease(&store.fresh()).await;
    store.expired().await;
    store.lapsed(OnLapse::Rerun).await;
    let done = store.done("a body that takes some room").await;

    let stats = store.stats().await;
    store.forget(&done).await;
    let fewer = store.stats().await;

    assert_eq!((empty.records, empty.pending), (0, 0));
    assert_eq!((stats.records, stats.pending), (3, 2));
    assert!(stats.bytes > empty.bytes);
    assert_eq!((fewer.records, fewer.pending), (2, 2));
}

pub async fn an_unknown_outcome_does_not_count_as_pending(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    store.unknown().await;

    let stats = store.stats().await;

    assert_eq!((stats.records, stats.pending), (1, 0));
}

pub async fn replays_are_added_up(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let (one, two) = (store.done("one").await, store.done("two").await);
    let nowhere = store.fresh();
    let before = store.record(&one).await;

    let batch = [
        (one.slot, 2),
        (nowhere.slot, 9),
        (two.slot, 1),
        (one.slot, 3),
    ];
    store.count_replays(&batch).await;
    store.count_replays(&[(two.slot, 10)]).await;
    store.count_replays(&[]).await;

    let after = store.record(&one).await;
    assert_eq!(after.replays, 5);
    assert_eq!(store.record(&two).await.replays, 11);
    assert!(store.get(&nowhere).await.is_none());
    assert_eq!(after.expires_at, before.expires_at);
    assert_eq!(after.state, before.state);
    // A store that numbers replays says what the counts are with these.
    let mut numbers = store
        .number_replays(&[(one.slot, 1), (nowhere.slot, 1), (two.slot, 4)])
        .await;
    numbers.sort_unstable();
    let mut counted = [(one.slot, 6), (two.slot, 15)];
    counted.sort_unstable();
    assert!(numbers.is_empty() || numbers == counted, "{numbers:?}");
    assert_eq!(store.record(&two).await.replays, 15);
}

pub async fn a_new_record_has_no_replays_of_the_old_one(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.done("stored").await;
    store.count_replays(&[(claim.slot, 4)]).await;
    store.forget(&claim).await;

    store.lease(&store.rival(&claim)).await;

    assert_eq!(store.record(&claim).await.replays, 0);
}

pub async fn the_first_offer_is_agreed_on(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let first: Vec<u8> = (0..=255).collect();

    assert_eq!(store.agreed("secret").await, None);
    assert_eq!(store.agree("secret", &first).await, first);
    assert_eq!(store.agreed("secret").await.as_ref(), Some(&first));
    assert_eq!(store.agree("secret", b"second").await, first);
    assert_eq!(store.agree("other", b"").await, b"");
    assert_eq!(store.agree("other", b"late").await, b"");
    assert_eq!(store.agree("Secret", b"third").await, b"third");
    assert_eq!(store.agree("secret", &first).await, first);
}

pub async fn what_is_agreed_on_is_no_record(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    store.agree("secret", b"value").await;
    store.sweep(100).await;

    assert_eq!(store.stats().await.records, 0);
    assert_eq!(store.agree("secret", b"other").await, b"value");
}

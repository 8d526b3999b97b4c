//! How operators look through the records: in the order of their slots, page by page, filtered.

#![expect(missing_docs, reason = "the names are the sentences")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Filter, Newest, Page, StateName};
use onlyonce_core::{Claim, Key, KeyRule, Meta, OnLapse, Record, Response, Slot, SlotSecret};

use super::TestBed;
use super::subject::{Subject, answer, meta};
use super::timing::{LONG, PAST_SHORT, SHORT};

const ALL: Page = Page {
    after: None,
    records_max: 1000,
};

const NEWEST: Newest = Newest {
    before: None,
    records_max: 1000,
};

pub async fn an_empty_store_lists_nothing(bed: &dyn TestBed) {
    let store = Subject::of(bed);

    assert!(store.list(&Filter::default(), &ALL).await.is_empty());
    assert!(store.newest(&Filter::default(), &NEWEST).await.is_empty());
}

pub async fn a_list_is_in_the_order_of_the_slots(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let mut slots = BTreeSet::new();
    for _ in 0..20 {
        slots.insert(store.done("stored").await.slot);
    }

    let listed = store.list(&Filter::default(), &ALL).await;

    assert!(listed.iter().map(|(slot, _)| slot).eq(&slots));
}

pub async fn the_pages_of_a_list_hold_every_record_once(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let mut slots = BTreeSet::new();
    for _ in 0..11 {
        slots.insert(store.done("stored").await.slot);
    }

    let mut listed = Vec::new();
    let mut after = None;
    for _ in 0..=slots.len() {
        let page = Page {
            after,
            records_max: 4,
        };
        let found = store.list(&Filter::default(), &page).await;
        assert!(found.len() <= 4);
        let Some((last, _)) = found.last() else { break };
        after = Some(*last);
        listed.extend(found.into_iter().map(|(slot, _)| slot));
    }

    assert!(listed.iter().eq(&slots));
}

pub async fn a_page_may_begin_where_no_record_is(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.done("stored").await;
    let (lowest, highest) = ([0; Slot::BYTES], [255; Slot::BYTES]);

    for (after, count) in [(lowest, 1), (highest, 0), (*claim.slot.as_bytes(), 0)] {
        let page = Page {
            after: Some(Slot::from_bytes(after)),
            ..ALL
        };
        let found = store.list(&Filter::default(), &page).await;
        assert_eq!(found.len(), count, "{after:?}");
    }
}

pub async fn a_page_of_none_is_empty(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    store.done("stored").await;

    let page = Page {
        after: None,
        records_max: 0,
    };

    assert!(store.list(&Filter::default(), &page).await.is_empty());
}

pub async fn a_listed_record_is_the_record(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.done("stored").await;

    let listed = store.list(&Filter::default(), &ALL).await;

    let found = store.record(&claim).await;
    let [(slot, record)] = &listed[..] else {
        panic!("not one record: {listed:?}");
    };
    assert_eq!(*slot, claim.slot);
    let same_moment = Record {
        keep_left: found.keep_left,
        ..record.clone()
    };
    assert_eq!(same_moment, found);
}

pub async fn a_list_leaves_out_what_has_expired(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = store.done("stored").await;
    store.expired().await;

    let listed = store.list(&Filter::default(), &ALL).await;

    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].0, claim.slot);
}

pub async fn a_list_can_be_of_one_state(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let pending = store.fresh();
    store.lease(&pending).await;
    let failed = store.fresh();
    let lease = store.lease(&failed).await;
    let failure = Response::new(http::StatusCode::BAD_GATEWAY, "");
    store.stored(&lease, &Arc::new(failure), LONG).await;
    let states = [
        (StateName::Pending, pending),
        (StateName::Failed, failed),
        (StateName::Done, store.done("stored").await),
        (StateName::Unknown, store.unknown().await),
        (StateName::Lapsed, store.lapsed(OnLapse::Rerun).await),
    ];

    for (state, claim) in &states {
        let filter = Filter {
            state: Some(*state),
            ..Filter::default()
        };
        let listed = store.list(&filter, &ALL).await;

        let slots: Vec<_> = listed.iter().map(|(slot, _)| *slot).collect();
        assert_eq!(slots, [claim.slot], "{state:?}");
    }
}

pub async fn a_list_can_be_of_one_operation_or_actor(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let made = [
        ("POST /a", Some("alice")),
        ("POST /a", Some("bob")),
        ("POST /b", Some("alice")),
        ("post /a", Some("Alice")),
        ("POST /a", None),
        ("POST /a%", Some("")),
    ];
    for (operation, actor) in made {
        let meta = Meta {
            operation: operation.into(),
            actor: actor.map(Into::into),
            ..Meta::clone(&meta("holder"))
        };
        let claim = Claim {
            meta: Arc::new(meta),
            ..store.fresh()
        };
        store.lease(&claim).await;
    }

    for (operation, actor, count) in [
        (None, None, 6),
        (Some("POST /a"), None, 3),
        (Some("POST /a%"), None, 1),
        (None, Some("alice"), 2),
        (None, Some(""), 1),
        (Some("POST /a"), Some("alice"), 1),
        (Some("POST /b"), Some("bob"), 0),
        (Some("POST"), None, 0),
    ] {
        let filter = Filter {
            state: Some(StateName::Pending),
            operation: operation.map(Into::into),
            actor: actor.map(Into::into),
            ..Filter::default()
        };
        let listed = store.list(&filter, &ALL).await;
        assert_eq!(listed.len(), count, "{operation:?} by {actor:?}");
    }
}

pub async fn a_list_can_be_of_one_key(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let secret = SlotSecret::from_bytes([7; SlotSecret::BYTES]);
    let key = |text| secret.hint(&Key::new(text, &KeyRule::default()).expect("a key"));
    // The first two begin alike, the last two are too short to show anything.
    let hints = [
        key("550e8400-e29b-41d4-a716-446655440000"),
        key("550e8400-e29b-41d4-a716-446655440001"),
        key("a"),
        key("b"),
    ];
    let mut claims = Vec::new();
    for hint in hints {
        let meta = Meta {
            hint,
            ..Meta::clone(&meta("holder"))
        };
        let claim = Claim {
            meta: Arc::new(meta),
            ..store.fresh()
        };
        let lease = store.lease(&claim).await;
        store.stored(&lease, &answer("stored"), LONG).await;
        claims.push(claim);
    }

    for (hint, claim) in hints.into_iter().zip(&claims) {
        let filter = Filter {
            hint: Some(hint),
            ..Filter::default()
        };
        let listed = store.list(&filter, &ALL).await;

        let found: Vec<_> = listed
            .iter()
            .map(|(slot, it)| (*slot, it.meta.hint))
            .collect();
        assert_eq!(found, [(claim.slot, hint)]);
    }
    let unknown = Filter {
        hint: Some(key("c")),
        ..Filter::default()
    };
    assert!(store.list(&unknown, &ALL).await.is_empty());
}

pub async fn a_list_can_be_of_what_is_old_or_young(bed: &dyn TestBed) {
    const HOUR: Option<Duration> = Some(Duration::from_secs(3600));
    let store = Subject::of(bed);
    let old = store.done("stored").await;
    bed.advance(PAST_SHORT).await;
    let young = store.done("stored").await;
    let age = store.record(&old).await.age();

    let mut found = Vec::new();
    for (age_min, age_max) in [
        (Some(age), None),
        (None, Some(Duration::ZERO)),
        (None, HOUR),
        (HOUR, None),
    ] {
        let filter = Filter {
            age_min,
            age_max,
            ..Filter::default()
        };
        let listed = store.list(&filter, &ALL).await;
        found.push([&old, &young].map(|it| listed.iter().any(|(slot, _)| *slot == it.slot)));
    }

    assert!(age >= PAST_SHORT, "{age:?}");
    let [[is_old, _], [is_new, _], young_enough, aged] = found[..] else {
        panic!("four lists: {found:?}");
    };
    assert!(is_old && !is_new);
    assert_eq!((young_enough, aged), ([true; 2], [false; 2]));
}

pub async fn the_pages_of_a_filtered_list_are_full(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    for n in 0..12 {
        let claim = store.fresh();
        let lease = store.lease(&claim).await;
        if n % 3 == 0 {
            store.stored(&lease, &answer("stored"), LONG).await;
        }
    }

    let filter = Filter {
        state: Some(StateName::Done),
        ..Filter::default()
    };
    let page = Page {
        after: None,
        records_max: 3,
    };
    let first = store.list(&filter, &page).await;
    let after = first.last().map(|(slot, _)| *slot);
    let rest = store.list(&filter, &Page { after, ..page }).await;

    assert_eq!((first.len(), rest.len()), (3, 1));
}

pub async fn an_expired_lapse_is_in_no_list(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let claim = Claim {
        lease_for: SHORT,
        keep_for: SHORT,
        ..store.fresh()
    };
    store.lease(&claim).await;
    bed.advance(SHORT + PAST_SHORT).await;

    let lapsed = Filter {
        state: Some(StateName::Lapsed),
        ..Filter::default()
    };

    assert!(store.list(&lapsed, &ALL).await.is_empty());
}

pub async fn the_newest_records_come_first(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    let old = [store.done("old").await, store.unknown().await];
    bed.advance(PAST_SHORT).await;
    let young = [
        store.done("young").await,
        store.fresh(),
        store.done("young").await,
    ];
    store.lease(&young[1]).await;
    store.expired().await;

    let newest = store.newest(&Filter::default(), &NEWEST).await;

    let of = |claims: &[Claim]| -> BTreeSet<Slot> { claims.iter().map(|it| it.slot).collect() };
    let slots: Vec<Slot> = newest.iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots.len(), old.len() + young.len(), "{newest:?}");
    assert_eq!(
        slots[..young.len()]
            .iter()
            .copied()
            .collect::<BTreeSet<_>>(),
        of(&young)
    );
    assert_eq!(
        slots[young.len()..]
            .iter()
            .copied()
            .collect::<BTreeSet<_>>(),
        of(&old)
    );
    for (slot, record) in newest {
        let claim = young.iter().chain(&old).find(|it| it.slot == slot);
        let found = store.record(claim.expect("one of them")).await;
        assert_eq!(record.token, found.token);
        assert_eq!(StateName::of(&record), StateName::of(&found));
    }
}

pub async fn the_pages_of_the_newest_hold_every_record_once(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    for round in 0..4 {
        for _ in 0..3 {
            store.done("stored").await;
        }
        if round == 1 {
            bed.advance(PAST_SHORT).await;
        }
    }
    let mut all = store.newest(&Filter::default(), &NEWEST).await;

    let mut paged = Vec::new();
    let mut before = None;
    for _ in 0..=all.len() {
        let page = Newest {
            before,
            records_max: 5,
        };
        let found = store.newest(&Filter::default(), &page).await;
        assert!(found.len() <= 5);
        let Some((slot, last)) = found.last() else {
            break;
        };
        before = Some((last.created_at, *slot));
        paged.extend(found);
    }

    let place = |(slot, it): &(Slot, Record)| (it.created_at.as_millis(), *slot);
    assert_eq!(all.len(), 12);
    assert!(paged.iter().map(place).eq(all.iter().map(place)));
    all.sort_by_key(place);
    assert!(paged.iter().rev().map(place).eq(all.iter().map(place)));
}

pub async fn the_newest_can_be_of_one_state_operation_and_actor(bed: &dyn TestBed) {
    let store = Subject::of(bed);
    for (operation, actor) in [
        ("POST /a", "alice"),
        ("POST /b", "alice"),
        ("POST /a", "bob"),
    ] {
        for is_done in [false, true] {
            let meta = Meta {
                operation: operation.into(),
                actor: Some(actor.into()),
                ..Meta::clone(&meta("holder"))
            };
            let claim = Claim {
                meta: Arc::new(meta),
                ..store.fresh()
            };
            let lease = store.lease(&claim).await;
            if is_done {
                store.stored(&lease, &answer("stored"), LONG).await;
            }
        }
    }

    for (state, operation, actor, count) in [
        (None, None, None, 6),
        (Some(StateName::Done), None, None, 3),
        (Some(StateName::Pending), Some("POST /a"), None, 2),
        (None, Some("POST /a"), Some("alice"), 2),
        (Some(StateName::Done), Some("POST /b"), Some("alice"), 1),
        (Some(StateName::Done), Some("POST /b"), Some("bob"), 0),
        (Some(StateName::Lapsed), None, None, 0),
    ] {
        let filter = Filter {
            state,
            operation: operation.map(Into::into),
            actor: actor.map(Into::into),
            ..Filter::default()
        };
        let found = store.newest(&filter, &NEWEST).await;
        assert_eq!(found.len(), count, "{state:?} {operation:?} by {actor:?}");
    }
}

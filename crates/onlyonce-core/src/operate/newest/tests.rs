//! How little of a large store is read for a page of its newest records.

use std::sync::Arc;
use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::key::{Key, KeyRule};
use crate::record::{Meta, OnLapse, State, Token};

use super::*;

const PAGE: usize = 50;
const MANY: u64 = 100_000;

/// Slots are digests: their order says nothing of the order of the numbers.
fn slot(number: u64) -> Slot {
    let mut bytes = [0; Slot::BYTES];
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes[..8].copy_from_slice(&mixed.to_be_bytes());
    Slot::from_bytes(bytes)
}

/// What began in the order of the numbers, ten within a millisecond.
fn record(number: u64) -> Record {
    let created_at = Timestamp::from_millis(number / 10);
    Record {
        token: Token::from_bytes([1; Token::BYTES]),
        fingerprint: Fingerprint::new(1, [0; 32]),
        on_lapse: OnLapse::Rerun,
        attempt: 1,
        meta: Arc::new(Meta {
            hint: Key::new("key", &KeyRule::default()).unwrap().hint(),
            operation: "POST /orders".into(),
            actor: None,
            holder: "web-1".into(),
            trace: None,
            credential: None,
        }),
        created_at,
        completed_at: None,
        expires_at: created_at,
        keep_left: Duration::ZERO,
        replays: 0,
        state: State::Unknown,
    }
}

/// A page of `MANY` records that are looked at in the order of their slots, and how many were read.
fn page(before: Option<(Timestamp, Slot)>) -> (Vec<(Slot, Record)>, usize) {
    let asked = Newest {
        before,
        records_max: PAGE,
    };
    let mut numbers: Vec<u64> = (0..MANY).collect();
    numbers.sort_by_key(|number| slot(*number));
    let (mut page, mut read) = (NewestPage::new(asked), 0);
    for number in numbers {
        let created_at = Timestamp::from_millis(number / 10);
        if page.wants(created_at, &slot(number)) {
            read += 1;
            page.offer(slot(number), record(number));
        }
    }
    (page.into_records(), read)
}

#[test]
fn of_a_hundred_thousand_records_a_page_reads_less_than_one_in_a_hundred() {
    let mut newest: Vec<_> = (0..MANY).map(|it| Reverse((it / 10, slot(it)))).collect();
    newest.sort();
    let shown = |page: &[(Slot, Record)]| -> Vec<_> {
        let place = |(slot, it): &(Slot, Record)| Reverse((it.created_at.as_millis(), *slot));
        page.iter().map(place).collect()
    };

    let (first, read_first) = page(None);
    let (slot, last) = first.last().unwrap();
    let (second, read_second) = page(Some((last.created_at, *slot)));

    assert_eq!(shown(&first), newest[..PAGE]);
    assert_eq!(shown(&second), newest[PAGE..2 * PAGE]);
    for read in [read_first, read_second] {
        assert!((PAGE..1000).contains(&read), "{read} records were read");
    }
}

#[test]
fn a_page_of_none_wants_nothing() {
    let mut page = NewestPage::new(Newest {
        before: None,
        records_max: 0,
    });

    page.offer(slot(1), record(1));

    assert!(!page.wants(Timestamp::from_millis(1), &slot(1)));
    assert!(page.into_records().is_empty());
}

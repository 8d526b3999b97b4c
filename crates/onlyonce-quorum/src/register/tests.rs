use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::operate::Resolved;
use onlyonce_core::{Fingerprint, Key, KeyRule, Meta, OnLapse, Response, Slot};

use super::*;

const LEASE: Duration = Duration::from_secs(30);

fn claim(token: u8) -> Claim {
    let key = Key::new("key", &KeyRule::default()).expect("a key");
    Claim {
        slot: Slot::from_bytes([7; Slot::BYTES]),
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [1; 32]),
        token: Token::from_bytes([token; Token::BYTES]),
        on_lapse: OnLapse::Rerun,
        must_last: false,
        lease_for: LEASE,
        keep_for: LEASE,
        meta: Arc::new(Meta {
            hint: key.hint(),
            operation: "test".into(),
            actor: None,
            holder: "here".into(),
            trace: None,
            credential: None,
        }),
    }
}

fn claimed(by: &Claim) -> SlotRegister {
    let mut register = SlotRegister::default();
    let (granted, _) = register.claim(by, Duration::ZERO);
    assert!(matches!(granted, Claimed::Granted { .. }));
    register
}

/// Its first try was accepted by some, carried on by another process, and built upon.
#[test]
fn a_release_that_another_process_carried_on_has_happened() {
    let (first, second) = (claim(1), claim(2));
    let lease = first.lease();
    let mut register = claimed(&first);
    let mut releasing = Releasing::new(&lease, Release::NotRun);
    releasing.step(&mut register, Duration::from_secs(1));
    let (granted, _) = register.claim(&second, Duration::from_secs(2));
    assert!(matches!(granted, Claimed::Granted { .. }));

    let (released, change) = releasing.step(&mut register, Duration::from_secs(3));

    assert!(matches!(released, Released::Ended), "{released:?}");
    assert_eq!(change, Change::Nothing);
}

#[test]
fn a_release_that_came_too_late_finds_who_took_over() {
    let (first, second) = (claim(1), claim(2));
    let lease = first.lease();
    let mut register = claimed(&first);
    let mut releasing = Releasing::new(&lease, Release::NotRun);
    // What this try wrote was accepted by nobody.
    releasing.step(&mut register.clone(), Duration::from_secs(1));
    let late = LEASE + Duration::from_secs(1);
    let (granted, _) = register.claim(&second, late);
    assert!(matches!(granted, Claimed::Granted { .. }));

    for _ in 0..2 {
        let (released, _) = releasing.step(&mut register, late);

        let Released::Found(record) = released else {
            panic!("{released:?}");
        };
        assert_eq!(record.token, second.token);
    }
}

/// Servers count from when they accept: what is written back to them must not begin anew.
#[test]
fn a_value_that_is_written_back_keeps_the_time_that_has_passed() {
    let first = claim(1);
    let mut register = claimed(&first);
    register.settle(Duration::ZERO);
    let found = Found {
        value: Some(register.encode()),
        ballot: None,
        is_decided: false,
        elapsed: Duration::from_secs(20),
        is_of_one: false,
        wall: Duration::ZERO,
    };

    let decided = SlotRegister::step(&found, |_, _| ((), Change::Nothing));

    let back = Found {
        value: decided.unwrap().value,
        is_decided: true,
        elapsed: Duration::ZERO,
        ..found
    };
    let (mut register, now) = SlotRegister::read(&back).unwrap();
    assert_eq!(now, Duration::from_secs(20));
    let left = register.entry.lease_left_of(&first.token, now);
    assert_eq!(left, Some(Duration::from_secs(10)));
    let (taken, _) = register.claim(&claim(2), now);
    assert!(matches!(taken, Claimed::Taken(_)));
}

/// An answer that an operator gives.
fn found_out() -> Arc<Response> {
    Arc::new(Response::new(StatusCode::OK, "it happened"))
}

#[test]
fn what_another_process_carried_on_is_forgotten_and_nothing_else_is() {
    let (first, second) = (claim(1), claim(2));
    let mut register = claimed(&first);
    let mut forgetting = Forgetting::default();
    assert!(forgetting.step(&mut register, Duration::from_secs(1)).0);

    let nothing_there = forgetting.step(&mut register.clone(), Duration::from_secs(2));
    let (granted, _) = register.claim(&second, Duration::from_secs(2));
    let new_there = forgetting.step(&mut register, Duration::from_secs(3));

    assert!(matches!(granted, Claimed::Granted { .. }));
    assert_eq!(nothing_there, (true, Change::Nothing));
    assert_eq!(new_there, (true, Change::Nothing));
    let kept = register
        .entry
        .live(Duration::from_secs(3))
        .map(|it| it.token);
    assert_eq!(
        kept,
        Some(second.token),
        "it was never asked to forget this one"
    );
}

#[test]
fn what_was_overtaken_meanwhile_is_still_to_be_forgotten() {
    let (first, second) = (claim(1), claim(2));
    let mut register = claimed(&first);
    let mut forgetting = Forgetting::default();
    // What this try wrote was accepted by nobody.
    forgetting.step(&mut register.clone(), Duration::from_secs(1));
    let late = LEASE + Duration::from_secs(1);
    let (granted, _) = register.claim(&second, late);
    assert!(matches!(granted, Claimed::Granted { lease, .. } if lease.attempt == 2));

    assert_eq!(
        forgetting.step(&mut register, late),
        (true, Change::Settled)
    );

    assert!(register.entry.live(late).is_none());
    let mut other = Forgetting::default();
    assert_eq!(other.step(&mut register, late), (false, Change::Nothing));
}

#[test]
fn an_answer_of_an_operator_that_another_process_carried_on_is_stored() {
    let (late, answer) = (LEASE + Duration::from_secs(1), found_out());
    let mut register = claimed(&claim(1));
    let mut resolving = Resolving::new(&answer, LEASE);
    let (stored, _) = resolving.step(&mut register, late);
    assert!(matches!(stored, Resolved::Stored), "{stored:?}");
    register.entry.count_replays(1, late);

    let (again, change) = resolving.step(&mut register, late + Duration::from_secs(1));

    assert!(matches!(again, Resolved::Stored), "{again:?}");
    assert_eq!(change, Change::Nothing);
    // Another operator comes too late.
    let mut other = Resolving::new(&answer, LEASE);
    let (found, _) = other.step(&mut register, late + Duration::from_secs(1));
    assert!(matches!(found, Resolved::Found(_)), "{found:?}");
}

#[test]
fn an_answer_that_came_too_late_finds_the_other_one() {
    let (late, answer) = (LEASE + Duration::from_secs(1), found_out());
    let mut register = claimed(&claim(1));
    let mut resolving = Resolving::new(&answer, LEASE);
    // What this try wrote was accepted by nobody.
    resolving.step(&mut register.clone(), late);
    let other = Arc::new(Response::new(StatusCode::OK, "it did not"));
    register
        .entry
        .resolve(&other, LEASE, late + Duration::from_secs(1));

    let (found, _) = resolving.step(&mut register, late + Duration::from_secs(2));

    let Resolved::Found(record) = found else {
        panic!("{found:?}");
    };
    assert_eq!(record.response().map(|it| &it.body), Some(&other.body));
}

/// What one server has of a value that was never decided, in its words and in a majority's date.
fn told_by_one(value: Bytes, elapsed: u64, wall: u64) -> Found {
    let seen = |wall, held| crate::acceptor::Seen {
        wall: Duration::from_secs(wall),
        promised: None,
        accepted: held,
    };
    let held = crate::acceptor::Held {
        ballot: crate::Ballot::end_of(1),
        value,
        elapsed: Duration::from_secs(elapsed),
    };
    Found::of(&[seen(wall, Some(held)), seen(wall, None)], 2)
}

#[test]
fn what_only_one_server_has_ages_too() {
    let first = claim(1);
    let mut register = claimed(&first);
    register.settle(Duration::ZERO);

    let found = told_by_one(register.encode(), 31, 31);

    let (mut register, now) = SlotRegister::read(&found).unwrap();
    assert_eq!(now, Duration::from_secs(31));
    let (granted, _) = register.claim(&claim(2), now);
    assert!(matches!(granted, Claimed::Granted { .. }), "{granted:?}");
}

#[test]
fn neither_the_clock_of_one_server_nor_the_date_alone_ages_what_it_has() {
    let mut register = claimed(&claim(1));
    register.settle(Duration::ZERO);

    for (elapsed, wall) in [(9_999, 5), (5, 9_999)] {
        let found = told_by_one(register.encode(), elapsed, wall);
        let (_, now) = SlotRegister::read(&found).unwrap();
        assert_eq!(now, Duration::from_secs(5));
    }
}

/// The first try was carried on by another process, whose own step hides it.
#[test]
fn an_extension_that_another_process_carried_on_is_not_made_again() {
    let mut register = claimed(&claim(1));
    let mark = Token::from_bytes([9; Token::BYTES]);
    let mut extending = Extending::new(mark, LEASE);
    let before = register.entry.live(Duration::ZERO).map(|it| it.expires);
    extending.step(&mut register, Duration::ZERO);
    register.entry.count_replays(1, Duration::ZERO);

    let again = extending.step(&mut register, Duration::from_secs(1));

    assert_eq!(again, (true, Change::Nothing));
    let after = register.entry.live(Duration::ZERO).map(|it| it.expires);
    assert_eq!(after, before.map(|it| it + LEASE));
}

#[test]
fn replays_that_another_process_carried_on_are_not_counted_again() {
    let mut register = claimed(&claim(1));
    let mark = Token::from_bytes([9; Token::BYTES]);
    let mut counting = Counting::new(mark, 3);
    let counted = counting.step(&mut register, Duration::ZERO);
    register.entry.count_replays(1, Duration::ZERO);

    let again = counting.step(&mut register, Duration::from_secs(1));

    assert_eq!(counted.0, Some(3));
    assert_eq!(again, (Some(3), Change::Nothing));
    let replays = register.entry.live(Duration::ZERO).map(|it| it.replays);
    assert_eq!(replays, Some(4));
}

#[test]
fn what_was_tried_in_vain_is_still_done_once() {
    let mut register = claimed(&claim(1));
    let mut extending = Extending::new(Token::from_bytes([9; Token::BYTES]), LEASE);
    // What this try wrote was accepted by nobody.
    extending.step(&mut register.clone(), Duration::ZERO);

    let again = extending.step(&mut register, Duration::from_secs(1));

    assert_eq!(again, (true, Change::Written));
}

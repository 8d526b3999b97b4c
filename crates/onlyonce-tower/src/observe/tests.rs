#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use onlyonce_core::policy::Duplicate;
use onlyonce_core::{Fingerprint, Reason, Slot};

use super::ledger::{End, Ledger, Meaning, Run};
use super::{Observing, ROUTES_MAX, Sight};

const WAIT: Duplicate = Duplicate::Wait(Duration::from_secs(1));
const START: Duration = Duration::ZERO;
const HOUR: Duration = Duration::from_secs(3600);

fn slot(number: u8) -> Slot {
    Slot::from_bytes([number; 32])
}

fn meaning(of: &str) -> Meaning {
    Meaning {
        fingerprint: Fingerprint::new(Fingerprint::RECIPE, [of.as_bytes()[0]; 32]),
        credential: None,
    }
}

fn first(ledger: &mut Ledger, of: &str) -> Run {
    let (sight, run) = ledger.see(slot(1), meaning(of), WAIT, START);
    assert_eq!(sight, Sight::First);
    run.unwrap()
}

fn seen(ledger: &mut Ledger, of: &str) -> Sight {
    ledger.see(slot(1), meaning(of), WAIT, START).0
}

#[test]
fn a_repeat_is_judged_by_how_the_first_request_ended() {
    for (end, expected) in [
        (End::Stored, Sight::Replay),
        (End::TooLarge, Sight::Refused(Reason::ResponseTooLarge)),
        (End::InDoubt, Sight::Refused(Reason::OutcomeUnknown)),
        (End::Lapsed, Sight::Rerun),
        (End::Released, Sight::Rerun),
    ] {
        let mut ledger = Ledger::new(10);
        let run = first(&mut ledger, "a");
        ledger.end(run, end, HOUR);

        assert_eq!(seen(&mut ledger, "a"), expected, "{end:?}");
    }
}

#[test]
fn another_payload_is_a_conflict_in_every_state_but_a_free_key() {
    let mut ledger = Ledger::new(10);
    let run = first(&mut ledger, "a");
    assert_eq!(seen(&mut ledger, "b"), Sight::Refused(Reason::Mismatch));
    ledger.end(run, End::Stored, HOUR);
    assert_eq!(seen(&mut ledger, "b"), Sight::Refused(Reason::Mismatch));
    ledger.end(run, End::Released, HOUR);

    assert_eq!(seen(&mut ledger, "b"), Sight::First);
}

#[test]
fn a_repeat_while_the_first_request_runs_waits_or_is_refused_as_the_contract_says() {
    let mut ledger = Ledger::new(10);
    first(&mut ledger, "a");

    let (refused, _) = ledger.see(slot(1), meaning("a"), Duplicate::Refuse, START);

    assert_eq!(seen(&mut ledger, "a"), Sight::Attached);
    assert_eq!(refused, Sight::Refused(Reason::InProgress));
}

#[test]
fn a_key_whose_time_is_over_is_a_new_one() {
    let mut ledger = Ledger::new(10);
    let run = first(&mut ledger, "a");
    ledger.end(run, End::Stored, HOUR);

    let (before, _) = ledger.see(slot(1), meaning("a"), WAIT, HOUR - Duration::from_nanos(1));
    let (after, _) = ledger.see(slot(1), meaning("b"), WAIT, HOUR);

    assert_eq!(before, Sight::Replay);
    assert_eq!(after, Sight::First);
}

#[test]
fn the_end_of_an_earlier_run_says_nothing_about_a_later_one() {
    let mut ledger = Ledger::new(10);
    let earlier = first(&mut ledger, "a");
    ledger.end(earlier, End::Released, HOUR);
    assert_eq!(seen(&mut ledger, "a"), Sight::Rerun);

    ledger.end(earlier, End::Stored, HOUR);

    assert_eq!(seen(&mut ledger, "a"), Sight::Attached);
}

#[test]
fn the_oldest_keys_are_forgotten_and_counted_beyond_the_bound() {
    let mut ledger = Ledger::new(3);
    let runs: Vec<_> = (0..5)
        .map(|number| {
            ledger
                .see(slot(number), meaning("a"), WAIT, START)
                .1
                .unwrap()
        })
        .collect();
    for run in runs {
        ledger.end(run, End::Stored, HOUR);
    }

    assert_eq!((ledger.len(), ledger.forgotten()), (3, 2));
    let newest = ledger.see(slot(4), meaning("a"), WAIT, START).0;
    let oldest = ledger.see(slot(0), meaning("a"), WAIT, START).0;
    assert_eq!((newest, oldest), (Sight::Replay, Sight::First));
}

#[test]
fn routes_beyond_the_bound_share_one_name() {
    let observing = Observing::new();
    for number in 0..=ROUTES_MAX + 10 {
        let route = observing.route(&format!("POST /{number}"));
        route.saw(Sight::First, None, None);
    }

    let routes = observing.routes();

    assert_eq!(routes.len(), ROUTES_MAX + 1);
    let other = routes.iter().find(|it| &*it.name == "other").unwrap();
    assert_eq!(other.seen[&Sight::First].count, 11);
}

#[test]
fn the_newest_examples_are_kept_and_the_first_and_last_time() {
    let observing = Observing::new();
    let route = observing.route("POST /a");
    for number in 0..9 {
        route.saw(Sight::Replay, Some(&format!("key-{number}")), None);
    }

    let seen = observing
        .routes()
        .remove(0)
        .seen
        .remove(&Sight::Replay)
        .unwrap();

    assert_eq!(seen.count, 9);
    let keys: Vec<_> = seen.examples.iter().map(|it| it.key.as_deref()).collect();
    assert_eq!(keys.first(), Some(&Some("key-4")));
    assert_eq!(keys.last(), Some(&Some("key-8")));
    assert!(seen.first.as_millis() <= seen.last.as_millis());
}

#[test]
fn every_kind_has_a_name_of_its_own() {
    let others = [
        Sight::Unkeyed,
        Sight::First,
        Sight::Replay,
        Sight::Attached,
        Sight::Rerun,
        Sight::Unseen,
        Sight::WeakKey,
        Sight::AnswerTooLarge,
        Sight::RanAgain,
    ];
    let all = others.into_iter().chain(Reason::ALL.map(Sight::Refused));
    let names: std::collections::BTreeSet<_> = all.clone().map(Sight::name).collect();

    assert_eq!(names.len(), all.count());
}

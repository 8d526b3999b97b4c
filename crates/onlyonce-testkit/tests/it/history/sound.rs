//! Histories in which all is right, also where it looks odd.

use onlyonce_core::Reason;
use onlyonce_testkit::history::log::{Ask, Ending, Fault, Reply, SeenState, What};

use super::story::{Asks, Name, PLAIN, Story, id, token};

const A: Name = (0, 1);
const B: Name = (1, 1);
const C: Name = (2, 1);

const HOLD: Asks = Asks {
    hold: true,
    ..PLAIN
};
const OTHER: Asks = Asks {
    payload: 1,
    ..PLAIN
};
const FLEETING: Asks = Asks { keep: 500, ..PLAIN };

#[test]
fn one_runs_and_the_others_hear_it() {
    assert_sound(|story| {
        story.runs(10, A, &PLAIN);
        story.replays(50, B, A, &PLAIN);
        story.replays(90_000, C, A, &PLAIN);
    });
}

#[test]
fn a_duplicate_that_is_attached_hears_what_its_process_stored() {
    assert_sound(|story| {
        story.runs(10, A, &PLAIN);
        story.calls(15, (0, 2), &PLAIN);
        story.hears_of(24, (0, 2), A, true);
    });
}

#[test]
fn a_killed_holder_is_overtaken_after_its_lease() {
    assert_sound(|story| {
        story.begins(10, A, &PLAIN).killed(20, 0);
        story.calls(30, B, &PLAIN);
        story.takes_over((1012, 1013), B, A).starts(1014, B);
        story.ends(1020, B, true);
        story.completes((1021, 1022), B, Reply::Stored);
        story.hears_own(1023, B, true);
        story.replays(2000, C, B, &PLAIN);
    });
}

#[test]
fn a_stopped_holder_is_overtaken_and_hears_the_stored_answer() {
    assert_sound(|story| {
        story.begins(10, A, &PLAIN);
        story.fault(20, Fault::Stop { node: 0, life: 0 });
        story.fault(1500, Fault::Continued { node: 0, life: 0 });
        story.calls(30, B, &PLAIN);
        story.takes_over((1100, 1101), B, A).starts(1102, B);
        story.ends(1110, B, true);
        story.completes((1111, 1112), B, Reply::Stored);
        story.hears_own(1113, B, true);
        story.ends(1510, A, true);
        let found = Reply::Found(story.finished(B));
        story.completes((1511, 1512), A, found);
        story.hears_of(1513, A, B, true);
    });
}

#[test]
fn a_holder_that_renews_is_not_overtaken_for_long() {
    assert_sound(|story| {
        story.begins(10, A, &PLAIN);
        story.verb((340, 341), A, Ask::Renew, Reply::Kept);
        story.verb((680, 681), A, Ask::Renew, Reply::Kept);
        story.calls(900, B, &PLAIN);
        let held = Reply::Taken(story.seen(A, SeenState::Pending(780)));
        story.claims((901, 902), B, held);
        story.ends(1300, A, true);
        story.completes((1301, 1302), A, Reply::Stored);
        story.hears_own(1303, A, true);
        let stored = Reply::Taken(story.finished(A));
        story.claims((1304, 1305), B, stored);
        story.hears_of(1306, B, A, true);
    });
}

#[test]
fn a_late_completion_that_nobody_overtook_is_welcome() {
    assert_sound(|story| {
        story.begins(10, A, &PLAIN);
        story.fault(20, Fault::Stop { node: 0, life: 0 });
        story.fault(2400, Fault::Continued { node: 0, life: 0 });
        story.ends(2401, A, true);
        story.completes((2402, 2403), A, Reply::Stored);
        story.hears_own(2404, A, true);
    });
}

#[test]
fn what_is_not_stored_may_run_again_even_under_hold() {
    assert_sound(|story| {
        story.begins(10, A, &HOLD).ends(20, A, false);
        story.verb((21, 22), A, Ask::GiveBack, Reply::Over);
        story.hears_own(23, A, false);
        story.runs(30, B, &OTHER);
    });
}

#[test]
fn an_answer_that_is_not_stored_is_shared_with_those_who_waited() {
    assert_sound(|story| {
        story.begins(10, A, &PLAIN);
        story.calls(15, (0, 2), &PLAIN);
        story.ends(20, A, false);
        story.verb((21, 22), A, Ask::GiveBack, Reply::Over);
        story.hears_own(23, A, false);
        story.hears_of(23, (0, 2), A, false);
    });
}

#[test]
fn two_claims_under_way_together_may_be_granted_in_either_order() {
    assert_sound(|story| {
        story.calls(10, A, &PLAIN).calls(10, B, &PLAIN);
        // A hears first, but B was first and gave the slot back at once.
        story.is_granted((11, 15), A);
        story.is_granted((11, 30), B);
        story.verb((12, 31), B, Ask::GiveBack, Reply::Over);
        story.starts(16, A).ends(20, A, true);
        story.completes((21, 22), A, Reply::Stored);
        story.hears_own(23, A, true);
    });
}

#[test]
fn an_expired_answer_makes_room() {
    assert_sound(|story| {
        story.runs(10, A, &FLEETING);
        story.replays(300, C, A, &FLEETING);
        story.runs(600, B, &OTHER);
    });
}

/// One of its servers took the answer only when it went on, and counts from then.
#[test]
fn an_answer_that_was_stored_while_the_store_was_disturbed_may_last_as_much_longer() {
    assert_sound(|story| {
        story.fault(15, Fault::Store);
        story.runs(10, A, &FLEETING);
        story.fault(450, Fault::StoreOver("a server hung".to_owned()));
        story.replays(900, C, A, &FLEETING);
    });
}

#[test]
fn a_claim_without_a_reply_may_have_held_the_slot_or_not() {
    assert_sound(|story| {
        story.calls(10, A, &PLAIN);
        story.sends(11, A, Ask::Claim { call: id(A) });
        story.killed(12, 0);
        story.runs(30, B, &OTHER);
    });
}

#[test]
fn a_doubtful_claim_that_took_over_and_was_given_back_leaves_nothing() {
    assert_sound(|story| {
        story.begins(10, A, &PLAIN).killed(20, 0);
        story.calls(1100, B, &PLAIN);
        story.claims((1101, 1150), B, Reply::Failed);
        story.verb((1151, 1152), B, Ask::GiveBack, Reply::Over);
        story.is_refused(1153, B, Reason::StoreDown);
        story.runs(1200, C, &OTHER);
    });
}

#[test]
fn an_unknown_outcome_is_run_again_at_once_under_rerun() {
    assert_sound(|story| {
        story.begins(10, A, &PLAIN).ends_as(20, A, Ending::Unknown);
        story.verb((21, 22), A, Ask::Doubt, Reply::Over);
        story.is_refused(23, A, Reason::OutcomeUnknown);
        story.calls(30, B, &PLAIN);
        story.takes_over((31, 32), B, A).starts(33, B);
    });
}

#[test]
fn a_handler_is_dropped_at_its_deadline_or_with_its_process() {
    assert_sound(|story| {
        story.begins(10, A, &PLAIN);
        story.verb((400, 401), A, Ask::Renew, Reply::Kept);
        story.note(2520, 0, What::Dropped { call: id(A) });
        story.verb((2521, 2522), A, Ask::Doubt, Reply::Over);
        story.is_refused(2523, A, Reason::TimedOut);
        story.calls(10, B, &Asks { key: 8, ..PLAIN });
        story.is_granted((11, 12), B).starts(13, B);
        story.note(20, 1, What::Closed);
        story.note(21, 1, What::Dropped { call: id(B) });
    });
}

#[test]
fn a_busy_store_excuses_a_lost_lease() {
    assert_sound(|story| {
        story.begins(10, A, &PLAIN);
        story.verb((340, 900), A, Ask::Renew, Reply::Failed);
        story.calls(1000, B, &PLAIN);
        story.takes_over((1020, 1021), B, A).starts(1022, B);
    });
}

#[test]
fn a_starved_process_excuses_a_lost_lease() {
    assert_sound(|story| {
        story.begins(10, A, &PLAIN);
        story.note(1200, 0, What::Late { since: 20_000 });
        story.calls(1000, B, &PLAIN);
        story.takes_over((1020, 1021), B, A).starts(1022, B);
    });
}

#[test]
fn hold_keeps_what_is_unknown_and_the_last_round_hears_so() {
    assert_sound(|story| {
        story.begins(10, A, &HOLD).killed(20, 0);
        story.fault(30, Fault::Healed);
        let last = Asks {
            sweep: true,
            ..HOLD
        };
        story.calls(2000, B, &last);
        let held = Reply::Taken(story.seen(A, SeenState::Pending(0)));
        story.claims((2001, 2002), B, held);
        story.is_refused(2003, B, Reason::OutcomeUnknown);
    });
}

#[test]
fn a_stand_in_for_a_panic_is_known_by_its_call() {
    assert_sound(|story| {
        let panicked = || "panicked".to_owned();
        story.begins(10, A, &PLAIN);
        story.ends_as(20, A, Ending::Panicked { storable: true });
        let complete = Ask::Complete {
            said: panicked(),
            keep: 3_600_000,
        };
        story.verb((21, 22), A, complete, Reply::Stored);
        story.calls(30, B, &PLAIN);
        let stored = Reply::Taken(story.seen(A, SeenState::Finished(panicked())));
        story.claims((31, 32), B, stored);
        let heard = onlyonce_testkit::history::log::Heard::Replayed {
            said: panicked(),
            original: Some(id(A)),
            stored: true,
        };
        story.hears(33, B, heard);
        assert_ne!(token(A), token(B));
    });
}

fn assert_sound(tell: impl FnOnce(&mut Story)) {
    let mut story = Story::new();
    tell(&mut story);

    let report = story.report();

    assert!(report.is_clean(), "{report}");
}

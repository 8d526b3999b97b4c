//! What counts as a lapse that really happened, and what does not.

use super::*;
use crate::history::Stall;

/// Gateway 0 is stopped with its claim granted and its request not sent; gateway 1 takes over and
/// answers; gateway 0 goes on and sends its request.
fn overtaken() -> History {
    let mut history = history(
        OnLapse::Rerun,
        vec![
            attempt(1, 0, 1.0, 1.5, Answer::Nothing),
            attempt(1, 1, 1.6, 3.6, Answer::Done(1)),
            attempt(1, 0, 9.0, 9.1, Answer::Done(1)),
        ],
        vec![execution(1, 1, 3.5), execution(2, 0, 6.0)],
    );
    history.executions[0].ended = Some(at(3.55));
    history.troubles = vec![trouble(Kind::Pause, Whom::Gateway(0), 1.05, 5.9)];
    history
}

#[test]
fn a_second_execution_without_trouble_is_found() {
    let mut history = taken_over();
    history.troubles.clear();

    assert_eq!(rules(&history), [AFTER_A_LAPSE]);
}

#[test]
fn a_second_execution_before_the_lease_can_have_ended_is_found() {
    let mut history = taken_over();
    history.executions[1].started = at(2.0);

    assert_eq!(rules(&history), [AFTER_A_LAPSE]);
}

/// What happens to so few of a quorum's servers is to be noticed by nobody; to more, it excuses as much
/// as with one server.
#[test]
fn trouble_of_a_minority_excuses_nothing() {
    let cut_off = |whom| {
        let mut history = taken_over();
        history.troubles = vec![trouble(Kind::StoreHang, whom, 1.2, 2.0)];
        rules(&history)
    };

    assert_eq!(cut_off(Whom::Minority), [AFTER_A_LAPSE]);
    assert_eq!(cut_off(Whom::Store), Vec::<&str>::new());
}

/// Of a store that one process at a time can use.
#[test]
fn the_claims_of_a_killed_owner_end_with_it() {
    let mut history = taken_over();
    history.executions[1].started = at(2.0);
    history.has_one_owner = true;

    assert_eq!(rules(&history), Vec::<&str>::new());
}

#[test]
fn trouble_of_clients_or_clocks_or_of_who_did_not_hold_the_claim_excuses_nothing() {
    for other in [
        trouble(Kind::ClientLoss, Whom::Gateway(0), 1.2, 2.0),
        trouble(Kind::Clock, Whom::Gateway(0), 1.2, 2.0),
        trouble(Kind::Kill, Whom::Gateway(1), 1.2, 2.0),
        trouble(Kind::StoreCut, Whom::Gateway(1), 1.2, 2.0),
    ] {
        let mut history = taken_over();
        history.troubles = vec![other];

        assert_eq!(rules(&history), [AFTER_A_LAPSE]);
    }
}

#[test]
fn trouble_before_the_claim_excuses_nothing() {
    for before in [
        trouble(Kind::Kill, Whom::Gateway(0), 0.2, 0.9),
        trouble(Kind::Pause, Whom::Gateway(0), 0.0, 0.05),
        trouble(Kind::StoreKill, Whom::Store, 0.2, 0.7),
    ] {
        let mut history = taken_over();
        history.troubles = vec![before];

        assert_eq!(rules(&history), [AFTER_A_LAPSE]);
    }
}

#[test]
fn a_store_counts_as_troubled_until_every_gateway_ran_a_new_key() {
    let mut history = taken_over();
    history.troubles = vec![trouble(Kind::StoreKill, Whom::Store, 0.2, 0.7)];

    history.troubles[0].back_after = Some(at(0.5));

    assert_eq!(rules(&history), [""; 0]);
}

#[test]
fn trouble_after_the_answer_was_stored_excuses_nothing() {
    let mut history = taken_over();
    history.executions[0].ended = Some(at(1.15));
    history.executions[1].started = at(7.0);
    history.attempts[1].heard = at(7.1);
    history.troubles = vec![trouble(Kind::Kill, Whom::Gateway(0), 4.0, 4.5)];

    let stored = rules(&history);
    let hang = trouble(Kind::StoreHang, Whom::Store, 1.0, 4.1);
    history.troubles.insert(0, hang);
    let not_yet = rules(&history);

    assert_eq!(stored, [AFTER_A_LAPSE]);
    assert_eq!(not_yet, [""; 0]);
}

#[test]
fn a_rerun_that_only_a_stalled_machine_excuses_is_counted() {
    let mut history = taken_over();
    history.troubles.clear();
    history.stalls = vec![Stall {
        from: at(1.2),
        to: at(3.4),
    }];

    let verdict = check(&history);

    assert_eq!(verdict.violations, []);
    assert_eq!(verdict.stalled, 1);
}

#[test]
fn an_execution_after_the_answer_is_found_unless_its_gateway_had_been_stopped() {
    let mut history = overtaken();

    let excused = rules(&history);
    history.troubles[0].kind = Kind::StoreCut;
    let cut_off = rules(&history);
    history.troubles.clear();
    let alone = rules(&history);

    assert_eq!(excused, [""; 0]);
    assert_eq!(cut_off, [AFTER_A_LAPSE, NOT_AFTER_ITS_ANSWER]);
    assert_eq!(alone, [AFTER_A_LAPSE, NOT_AFTER_ITS_ANSWER]);
}

#[test]
fn who_lost_its_claim_before_it_ran_is_not_the_holder_afterwards() {
    let mut history = overtaken();
    history.executions[0].ended = None;
    history.executions.push(execution(3, 0, 9.05));
    history.attempts = vec![
        attempt(1, 0, 1.0, 1.5, Answer::Nothing),
        attempt(1, 1, 1.6, 6.3, Answer::Nothing),
        attempt(1, 0, 9.0, 9.1, Answer::Done(3)),
    ];

    let alone = rules(&history);
    let kill = trouble(Kind::Kill, Whom::Gateway(1), 6.2, 6.4);
    history.troubles.push(kill);
    let killed = rules(&history);

    assert_eq!(alone, [AFTER_A_LAPSE]);
    assert_eq!(killed, [""; 0]);
}

#[test]
fn an_unknown_outcome_is_right_with_hold_after_a_lapse_only() {
    let unknown = |heard| vec![attempt(1, 0, 1.0, heard, Answer::Unknown)];
    let ran = || vec![execution(1, 0, 1.1)];
    let with = |whom, heard, executions| {
        let mut history = history(OnLapse::Hold, unknown(heard), executions);
        history.troubles = vec![trouble(Kind::Kill, Whom::Gateway(whom), 1.2, 1.4)];
        rules(&history)
    };

    assert_eq!(with(0, 3.0, ran()), [""; 0]);
    assert_eq!(with(0, 3.0, vec![]), [""; 0]);
    assert_eq!(with(0, 1.5, ran()), [UNKNOWN], "its lease has not ended");
    assert_eq!(with(0, 1.5, vec![]), [UNKNOWN], "nor that of a claim");
    assert_eq!(with(1, 3.0, ran()), [UNKNOWN], "another gateway");
    assert_eq!(with(1, 3.0, vec![]), [UNKNOWN], "which was not asked");
}

#[test]
fn an_unknown_outcome_is_no_end_with_rerun() {
    let mut history = history(
        OnLapse::Rerun,
        vec![attempt(1, 0, 1.0, 3.0, Answer::Unknown)],
        vec![execution(1, 0, 1.1)],
    );
    history.troubles = vec![trouble(Kind::Kill, Whom::Gateway(0), 1.2, 1.4)];

    assert_eq!(rules(&history), [ANSWERED]);
}

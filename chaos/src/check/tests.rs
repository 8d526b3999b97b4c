//! Histories made by hand: good ones pass, and each way to go wrong is found.

mod lapses;

use super::*;
use crate::fault::Kind;
use crate::history::{Trouble, Whom};
use crate::manner::Manner;

const LEASE: Micros = millis(2000);

fn at(seconds: f64) -> Micros {
    (seconds * 1e6) as Micros
}

fn attempt(key: u64, gateway: usize, sent: f64, heard: f64, answer: Answer) -> Attempt {
    Attempt {
        key,
        gateway,
        manner: Manner::Plain,
        sent: at(sent),
        heard: at(heard),
        answer,
    }
}

fn execution(number: u64, gateway: usize, started: f64) -> Execution {
    Execution {
        number,
        key: 1,
        gateway,
        started: at(started),
        ended: None,
    }
}

fn trouble(kind: Kind, whom: Whom, from: f64, to: f64) -> Trouble {
    Trouble {
        kind,
        whom,
        from: at(from),
        to: at(to),
        back_after: Some(1),
        missed: None,
    }
}

fn history(on_lapse: OnLapse, attempts: Vec<Attempt>, executions: Vec<Execution>) -> History {
    History {
        on_lapse,
        lease: LEASE,
        has_one_owner: false,
        attempts,
        executions,
        troubles: Vec::new(),
        stalls: Vec::new(),
        crashes: Vec::new(),
    }
}

fn rules(history: &History) -> Vec<&'static str> {
    let violations = check(history).violations;
    violations.into_iter().map(|it| it.rule).collect()
}

/// Gateway 0 dies with execution 1, gateway 1 runs it again; both clients hear execution 2.
fn taken_over() -> History {
    let mut history = history(
        OnLapse::Rerun,
        vec![
            attempt(1, 0, 1.0, 1.5, Answer::Nothing),
            attempt(1, 1, 1.6, 3.6, Answer::Done(2)),
            attempt(1, 0, 9.0, 9.1, Answer::Done(2)),
        ],
        vec![execution(1, 0, 1.1), execution(2, 1, 3.5)],
    );
    history.troubles = vec![trouble(Kind::Kill, Whom::Gateway(0), 1.2, 2.0)];
    history
}

#[test]
fn one_execution_with_one_answer_is_right() {
    let attempts = vec![
        attempt(1, 0, 1.0, 1.2, Answer::Refused(503)),
        attempt(1, 1, 1.3, 1.5, Answer::Done(1)),
        attempt(1, 0, 5.0, 5.1, Answer::Done(1)),
    ];

    let verdict = check(&history(
        OnLapse::Hold,
        attempts,
        vec![execution(1, 1, 1.4)],
    ));

    assert_eq!(verdict.violations, []);
    assert_eq!((verdict.reruns, verdict.unknown), (0, 0));
}

#[test]
fn a_rerun_after_the_death_of_its_gateway_is_right() {
    let verdict = check(&taken_over());

    assert_eq!(verdict.violations, []);
    assert_eq!((verdict.reruns, verdict.stalled), (1, 0));
}

#[test]
fn two_executions_with_hold_are_found_whatever_happened() {
    let mut history = taken_over();
    history.on_lapse = OnLapse::Hold;

    assert_eq!(rules(&history), [ONCE]);
}

#[test]
fn two_answers_are_found() {
    let mut history = taken_over();
    let late = attempt(1, 0, 2.1, 4.0, Answer::Done(1));
    history.attempts.push(late);

    assert_eq!(rules(&history), [ONE_ANSWER]);
}

#[test]
fn an_answer_that_nobody_made_is_found() {
    let made_up = vec![attempt(1, 0, 1.0, 1.5, Answer::Done(7))];
    let garbled = vec![attempt(1, 0, 1.0, 1.5, Answer::Garbled)];
    let run = || vec![execution(1, 0, 1.1)];

    assert_eq!(
        rules(&history(OnLapse::Hold, made_up, run())),
        [REAL_ANSWER]
    );
    assert_eq!(
        rules(&history(OnLapse::Hold, garbled, run())),
        [REAL_ANSWER]
    );
}

#[test]
fn an_answer_that_is_forgotten_later_is_found() {
    let attempts = vec![
        attempt(1, 0, 1.0, 1.5, Answer::Done(1)),
        attempt(1, 1, 4.0, 4.1, Answer::Unknown),
    ];
    let mut history = history(OnLapse::Hold, attempts, vec![execution(1, 0, 1.1)]);
    history.troubles = vec![trouble(Kind::Failover, Whom::Store, 1.6, 1.9)];

    assert_eq!(rules(&history), [KEPT]);
}

#[test]
fn an_operation_without_an_answer_is_found() {
    let attempts = vec![attempt(1, 0, 1.0, 1.5, Answer::Refused(503))];

    assert_eq!(rules(&history(OnLapse::Hold, attempts, vec![])), [ANSWERED]);
}

#[test]
fn availability_that_does_not_return_and_gateways_that_end_are_found() {
    let mut history = history(OnLapse::Hold, vec![], vec![]);
    history.troubles = vec![trouble(Kind::DiskFull, Whom::Gateway(0), 1.0, 2.0)];
    history.troubles[0].back_after = None;
    history.troubles[0].missed = Some("nothing was refused");
    history.crashes = vec!["gateway 1 ended".to_owned()];

    assert_eq!(rules(&history), [TO_THE_POINT, BACK, ALIVE]);
}

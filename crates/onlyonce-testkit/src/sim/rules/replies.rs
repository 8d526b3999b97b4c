//! The store's replies against the model's predictions.

use onlyonce_core::event::Verb;
use onlyonce_core::{Claim, Claimed, Completed, OnLapse, Record, Released, Renewed, State};

use crate::sim::history::Reply;
use crate::sim::report::{Checked, require};

pub(in crate::sim) fn of_claim(claimed: &Claimed) -> Reply {
    match claimed {
        Claimed::Granted { overtook: None, .. } => Reply::Granted,
        Claimed::Granted {
            overtook: Some(_), ..
        } => Reply::TookOver,
        Claimed::Taken(_) => Reply::Taken,
        Claimed::Dead => Reply::Dead,
    }
}

pub(in crate::sim) fn of_renewal(renewed: &Renewed) -> Reply {
    match renewed {
        Renewed::Kept => Reply::Kept,
        Renewed::Lost => Reply::Lost,
        Renewed::Busy => Reply::Busy,
    }
}

pub(in crate::sim) fn of_completion(completed: &Completed) -> Reply {
    match completed {
        Completed::Stored(_) => Reply::Stored,
        Completed::Found(_) => Reply::Found,
        Completed::Absent => Reply::Absent,
    }
}

pub(in crate::sim) fn of_release(released: &Released) -> Reply {
    match released {
        Released::Ended => Reply::Ended,
        Released::Found(_) => Reply::Found,
    }
}

/// The rule that a wrong record after `verb` breaks.
pub(in crate::sim) fn after(verb: Verb) -> &'static str {
    match verb {
        Verb::Claim => "a claim changes the record as the protocol says, or not at all",
        Verb::Renew => "a renewal that is acknowledged prolongs lease and record",
        Verb::Complete => {
            "a completion that is acknowledged is stored, and its retention counts from it"
        }
        Verb::Release => "a release ends the lease, and shortens no promise",
        Verb::Settled => "a read changes nothing",
        Verb::Get
        | Verb::List
        | Verb::Forget
        | Verb::Extend
        | Verb::Resolve
        | Verb::Sweep
        | Verb::Stats
        | Verb::Ping
        | Verb::Recheck
        | Verb::CountReplays
        | Verb::Agree => "what operators do is not part of a run",
    }
}

pub(in crate::sim) fn claimed(
    claim: &Claim,
    before: Option<&Record>,
    expected: &Claimed,
    actual: &Claimed,
) -> Checked {
    let same = match (expected, actual) {
        (
            Claimed::Granted { lease, overtook },
            Claimed::Granted {
                lease: given,
                overtook: from,
            },
        ) => lease == given && overtook == from,
        (Claimed::Taken(expected), Claimed::Taken(actual)) => expected == actual,
        (Claimed::Dead, Claimed::Dead) => true,
        // What is in the way of a dead token may be named instead: it is not granted either way.
        (Claimed::Dead, Claimed::Taken(actual)) => before == Some(actual),
        (Claimed::Granted { .. } | Claimed::Taken(_) | Claimed::Dead, _) => false,
    };
    require(same, broken_claim(claim, expected, actual), || {
        format!(
            "claim of {:?}\n  expected {expected:?}\n  was      {actual:?}",
            claim.token
        )
    })
}

/// Which rule a wrong reply to a claim breaks.
fn broken_claim(claim: &Claim, expected: &Claimed, actual: &Claimed) -> &'static str {
    match (expected, actual) {
        (Claimed::Dead, Claimed::Granted { .. }) => {
            "a released token stays dead for one lease: a late copy of its claim revives nothing"
        }
        (Claimed::Taken(record), Claimed::Granted { .. }) => match record.state {
            State::Done(_) | State::Failed(_) => {
                "a finished record neither becomes pending nor goes before it expires"
            }
            _ if record.fingerprint != claim.fingerprint => {
                "a different fingerprint never takes over"
            }
            State::Pending { lease_left } if !lease_left.is_zero() => {
                "a slot has at most one live lease"
            }
            State::Pending { .. } | State::Unknown => {
                debug_assert!(
                    record.on_lapse == OnLapse::Hold
                        || claim.on_lapse == OnLapse::Hold
                        || matches!(record.state, State::Unknown)
                );
                "when two sides differ, hold wins: what may have happened is not run again"
            }
        },
        (Claimed::Granted { .. } | Claimed::Taken(_) | Claimed::Dead, _) => {
            "a claim is granted iff the slot is free, expired, its own, or lapsed for both sides"
        }
    }
}

pub(in crate::sim) fn renewed(expected: &Renewed, actual: &Renewed) -> Checked {
    let same = of_renewal(expected) == of_renewal(actual);
    require(same, "only the holder keeps its lease", || {
        format!("expected {expected:?}, was {actual:?}")
    })
}

pub(in crate::sim) fn completed(expected: &Completed, actual: &Completed) -> Checked {
    let same = match (expected, actual) {
        (Completed::Stored(expected), Completed::Stored(actual)) => expected == actual,
        (Completed::Found(expected), Completed::Found(actual)) => expected == actual,
        (Completed::Absent, Completed::Absent) => true,
        (Completed::Stored(_) | Completed::Found(_) | Completed::Absent, _) => false,
    };
    let rule = match (expected, actual) {
        (Completed::Found(_) | Completed::Absent, Completed::Stored(_)) => {
            "a lost lease never completes"
        }
        (Completed::Stored(_), Completed::Stored(_)) => {
            "retention counts from the completion, on the store's clock"
        }
        (Completed::Stored(_) | Completed::Found(_) | Completed::Absent, _) => {
            "the holder completes, and everyone else learns what is stored"
        }
    };
    require(same, rule, || {
        format!("complete\n  expected {expected:?}\n  was      {actual:?}")
    })
}

pub(in crate::sim) fn released(expected: &Released, actual: &Released) -> Checked {
    let same = match (expected, actual) {
        (Released::Ended, Released::Ended) => true,
        (Released::Found(expected), Released::Found(actual)) => expected == actual,
        (Released::Ended | Released::Found(_), _) => false,
    };
    require(
        same,
        "a release ends its own claim and touches no other",
        || format!("release\n  expected {expected:?}\n  was      {actual:?}"),
    )
}

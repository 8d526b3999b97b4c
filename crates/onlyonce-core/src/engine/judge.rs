//! What the engine decides, as functions of what it was told: no store, no clock, no waiting. The
//! engine does what they say, and so does the model that is explored exhaustively (`docs/model.md`).

use std::time::Duration;

use crate::policy::{Duplicate, Fate, Policy};
use crate::record::{OnLapse, Record, Replay, State};
use crate::refusal::{Reason, Refusal};
use crate::response::{Origin, Response};
use crate::store::{Lease, Release};

use super::begin::{in_progress, mismatched};
use super::call::Call;

/// What a record in the way means for a call.
#[derive(Debug)]
pub enum Judgement {
    /// It is the answer.
    Replay(Replay),
    /// There is none for this call.
    Refuse(Refusal),
    /// Running under a live lease, and this caller waits.
    Wait {
        /// The lease that is left.
        at_most: Duration,
    },
    /// Lapsed, and ours to take: the store will grant it.
    ClaimAgain,
}

/// The one place where a taken slot is judged.
pub fn judge(record: &Record, call: &Call) -> Judgement {
    if record.fingerprint != call.fingerprint {
        return Judgement::Refuse(mismatched(record, call));
    }
    match &record.state {
        State::Done(_) | State::Failed(_) => match Replay::of(record) {
            Some(replay) => Judgement::Replay(replay),
            None => Judgement::Refuse(held()),
        },
        State::Unknown => Judgement::Refuse(held()),
        State::Pending { lease_left } if !lease_left.is_zero() => match call.policy.duplicate {
            Duplicate::Wait(_) => Judgement::Wait {
                at_most: *lease_left,
            },
            Duplicate::Refuse => Judgement::Refuse(in_progress(call)),
        },
        State::Pending { .. } if record.on_lapse.both_rerun(call.on_lapse()) => {
            Judgement::ClaimAgain
        }
        State::Pending { .. } => Judgement::Refuse(held()),
    }
}

/// Whether too much of a lease passed on the way for a handler to start on what is left of it.
pub fn is_stale(lease: &Lease, passed: Duration) -> bool {
    passed > lease.lease_for / 3
}

/// What becomes of the key once its handler gave this answer, unless the handler says otherwise.
pub fn fate(call: &Call, response: &Response) -> Fate {
    let Policy {
        stored, on_lapse, ..
    } = &*call.policy;
    match response.origin {
        // A marker is always stored: the operation ran, and skipping the record would run it again.
        Origin::TooLarge => Fate::Stored,
        Origin::Handler | Origin::Panicked => stored.fate(response.status.as_u16(), *on_lapse),
    }
}

/// How a claim ends whose answer has this fate: released, or, if nothing is said here, completed.
pub fn release_of(fate: Fate, lease: &Lease) -> Option<Release> {
    match fate {
        Fate::Stored => None,
        Fate::Released => Some(lease.unused()),
        Fate::InDoubt => Some(Release::Unknown),
    }
}

/// What the slot holds, to a claim that was to end there.
#[derive(Debug)]
pub enum Met {
    /// The answer of this very attempt.
    Ours(Replay),
    /// The answer of an attempt that overtook this one: it counts.
    Overtaken(Replay),
    /// An operation of another meaning.
    Mismatch,
    /// An attempt of which it is unknown whether it happened.
    InDoubt,
    /// An attempt that overtook this one, and still runs.
    Running,
}

/// The one place where what is found at the end of a claim is judged.
pub fn judge_end(record: &Record, call: &Call, lease: &Lease) -> Met {
    if record.fingerprint != call.fingerprint {
        return Met::Mismatch;
    }
    let is_ours = record.token == lease.token;
    match (Replay::of(record), &record.state) {
        (Some(replay), _) if is_ours => Met::Ours(replay),
        (Some(replay), _) => Met::Overtaken(replay),
        (None, State::Pending { lease_left }) if !lease_left.is_zero() && !is_ours => Met::Running,
        (None, State::Pending { .. } | State::Unknown | State::Done(_) | State::Failed(_)) => {
            Met::InDoubt
        }
    }
}

/// A record in doubt that one side at least wants held.
fn held() -> Refusal {
    Refusal::in_doubt(Reason::OutcomeUnknown, OnLapse::Hold)
}

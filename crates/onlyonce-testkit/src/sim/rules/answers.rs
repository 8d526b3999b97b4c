//! Answers: each equals what was durable at some moment of its call, and nothing else.

use std::sync::Arc;

use onlyonce_core::policy::Fate;
use onlyonce_core::response::Origin;
use onlyonce_core::store::Receipt;
use onlyonce_core::{Answer, Replay, Response, Timestamp};

use super::refusals;
use super::tenancy::body;
use crate::sim::clock::{Ms, wall};
use crate::sim::history::Ending;
use crate::sim::kinds::Heard;
use crate::sim::ledger::{Ledger, Run};
use crate::sim::model::{Tenure, Window};
use crate::sim::report::{Broken, Checked, require};

/// How long a waiter may need from the change that answers it to its answer: a few ordinary
/// latencies of its verbs, never a poll.
const WAKE_MS: Ms = 40;

/// The longest pause between two tries of a claim, with their latencies.
const BACKOFF_MS: Ms = 60;

/// What kind of answer it is.
pub(in crate::sim) fn kind(ledger: &Ledger, call: usize, answer: &Answer) -> Heard {
    match answer {
        Answer::Ran {
            receipt: Some(_), ..
        } => Heard::Ran,
        Answer::Ran { receipt: None, .. } => match own_run(ledger, call) {
            Ok((_, run)) if run.token.is_none() => Heard::RanUnprotected,
            Ok(_) | Err(_) => Heard::RanUnstored,
        },
        Answer::Replayed(replay) if replay.expires_at.is_some() => Heard::Replayed,
        Answer::Replayed(_) => Heard::Shared,
        Answer::Refused(refusal) => Heard::refused(refusal.reason),
    }
}

/// A caller hears `answer`: is it true?
pub(in crate::sim) fn heard(ledger: &mut Ledger, call: usize, answer: &Answer, now: Ms) -> Checked {
    for cell in ledger.halves(ledger.calls[call].key) {
        ledger.cells[cell].current(now);
    }
    let ledger = &*ledger;
    match answer {
        Answer::Ran {
            response,
            receipt: Some(receipt),
            as_returned,
            ..
        } => ran(ledger, call, response, receipt, *as_returned, now),
        Answer::Ran {
            response,
            receipt: None,
            ..
        } => {
            let (id, run) = own_run(ledger, call)?;
            unstored(id, run, response)
        }
        Answer::Replayed(replay) => match replay.expires_at {
            Some(expiry) => replayed(ledger, call, replay, expiry, now),
            None => shared(ledger, call, replay, now),
        },
        Answer::Refused(refusal) => {
            refusals::refused(ledger, call, Heard::refused(refusal.reason), now)
        }
    }
}

/// The handler ran for this call, and its answer is what the store has.
fn ran(
    ledger: &Ledger,
    call: usize,
    response: &Response,
    receipt: &Receipt,
    as_returned: bool,
    now: Ms,
) -> Checked {
    let (id, run) = own_run(ledger, call)?;
    let caller = &ledger.calls[call];
    let tenures = ledger.tenures(caller).rev();
    // An operator may have resolved it meanwhile: then that is the answer, under the same token, or
    // in a rotation under that of the claim around it.
    let mut stored = tenures.filter(|it| ledger.run_of(&it.token) == Some(id));
    let during = Window::new(caller.started, now);
    let equal = |tenure: &Tenure| {
        tenure.response().is_some_and(|it| **it == *response)
            && tenure.fingerprint == caller.fingerprint
            && tenure.stored().is_some_and(|stored| stored.meets(during))
            && receipt.created_at == wall(tenure.created)
            && Some(receipt.completed_at) == tenure.finished.map(wall)
            && tenure.showed(receipt.expires_at)
    };
    require(
        stored.any(equal) && as_returned == is_own(id, run, response),
        "an answer is sent only once it is stored, and equals what is stored",
        || format!("call {call}, run {id}: heard {response:?}, {receipt:?}"),
    )
}

/// Whether `response` is what this run answered.
fn is_own(id: usize, run: &Run, response: &Response) -> bool {
    match run.ended {
        Some((_, Ending::Finished { .. })) => response.body == body(id),
        Some((_, Ending::Panicked { .. })) => response.origin == Origin::Panicked,
        Some((_, _)) | None => false,
    }
}

/// The handler ran, and nothing is stored: was that right?
fn unstored(id: usize, run: &Run, response: &Response) -> Checked {
    let storable = match run.ended {
        Some((_, Ending::Finished { fate } | Ending::Panicked { fate })) => fate == Fate::Stored,
        Some((_, _)) | None => true,
    };
    // Forgotten or expired under its feet, or taken over by one who then gave the slot back:
    // nothing is stored, so the holder's own answer is all there is.
    let right = run.token.is_none() || !storable || run.told_absent;
    require(
        right && is_own(id, run, response),
        "an answer is left unstored only if it is not one to store, or its record is gone",
        || format!("run {id} ended {:?}, heard {response:?}", run.ended),
    )?;
    require(
        !run.told_of_another,
        "an overtaken holder answers with the stored result, never its own",
        || format!("run {id}: its release found another's stored answer"),
    )
}

/// An answer from the store, or of a flight that stored it.
fn replayed(ledger: &Ledger, call: usize, replay: &Replay, expiry: Timestamp, now: Ms) -> Checked {
    let caller = &ledger.calls[call];
    let during = ledger.answerable(call, now);
    let stored = |tenure: &&Tenure| {
        tenure
            .response()
            .is_some_and(|it| is_same(it, &replay.response))
            && tenure.stored().is_some_and(|stored| stored.meets(during))
    };
    let named = |tenure: &&Tenure| {
        replay.original_at == Some(wall(tenure.created))
            && replay.original_trace == tenure.meta.trace
            && tenure.showed(expiry)
    };
    // The stand-ins of two panics can be alike: the one that is named counts.
    let tenures = ledger.tenures(caller).rev();
    let stored: Vec<_> = tenures.filter(stored).collect();
    require(!stored.is_empty(), "a replay equals what is stored", || {
        format!(
            "call {call}: {:?} was not stored during the call",
            replay.response
        )
    })?;
    let Some(tenure) = stored.into_iter().find(named) else {
        return require(
            false,
            "a replay names its original, and the same expiry each time",
            || format!("call {call}: {replay:?}"),
        );
    };
    require(
        tenure.fingerprint == caller.fingerprint,
        "a different fingerprint never replays",
        || format!("call {call} got the answer of {:?}", tenure.token),
    )?;
    woken(ledger, call, tenure, now)
}

/// Who waits for an answer gets it as soon as it is there.
fn woken(ledger: &Ledger, call: usize, tenure: &Tenure, now: Ms) -> Checked {
    let caller = &ledger.calls[call];
    let Some(finished) = tenure.finished.filter(|at| *at >= caller.started) else {
        return Ok(());
    };
    let since = Window::new(finished, now);
    // An overtaken holder, and who waits with it, hears only when its own handler has ended.
    let overtaken = || {
        let mut flights = ledger.flights(call, since);
        flights.any(|run| run.token != Some(tenure.token))
    };
    // A run without protection, of whatever meaning, keeps its slot's other callers waiting: the
    // store was down when it began, so nobody can say yet whose the slot is.
    let unprotected = || {
        let mut runs = ledger.runs.iter().filter(|run| run.token.is_none());
        runs.any(|run| {
            let leader = &ledger.calls[run.call];
            let here = (leader.process, leader.key) == (caller.process, caller.key);
            here && ledger.flight(run).meets(since)
        })
    };
    // A claim that failed is sent again only after a pause.
    let before = Window::new(finished.saturating_sub(BACKOFF_MS), now);
    // In a rotation it waits under the old secret first, though the answer is under the new one.
    let around = || {
        let last = Window::new(now.saturating_sub(WAKE_MS), now);
        ledger.nested(caller).is_some_and(|[outer, inner]| {
            let is_inside = inner.iter().any(|it| std::ptr::eq(it, tenure));
            is_inside && outer.iter().any(|it| it.live().meets(last))
        })
    };
    let excused =
        || ledger.troubled(caller.process, before) || overtaken() || unprotected() || around();
    require(
        now <= finished + WAKE_MS || excused(),
        "a waiter wakes within a bound when its answer is there",
        || format!("call {call} heard at {now} ms what was stored at {finished} ms"),
    )
}

/// An answer that was not stored, shared with those who waited for the same flight.
fn shared(ledger: &Ledger, call: usize, replay: &Replay, now: Ms) -> Checked {
    let during = Window::new(ledger.calls[call].started, now);
    let mut flights = ledger.flights(call, during);
    let found = flights.find_map(|run| {
        let id = ledger.runs.iter().position(|it| std::ptr::eq(it, run))?;
        unstored(id, run, &replay.response).ok()
    });
    // In a rotation a flight under the old secret may find the answer under the new one, and share
    // it until the store has let go of the old slot.
    let caller = &ledger.calls[call];
    let found_since = |from: Ms| {
        let inner = ledger.nested(caller).map_or(&[][..], |[_, inner]| inner);
        inner.iter().any(|it| {
            it.fingerprint == caller.fingerprint
                && it.response().is_some_and(|it| says(it, &replay.response))
                && it
                    .stored()
                    .is_some_and(|it| it.meets(Window::new(from, now)))
        })
    };
    let elsewhere = || {
        let mut around = ledger.around(call, ledger.answerable(call, now));
        around.any(|(leader, held)| {
            let from = held.map_or(leader.started, |it| it.granted);
            leader.fingerprint == caller.fingerprint && found_since(from)
        })
    };
    require(
        found.is_some() || elsewhere(),
        "an answer that is not stored is shared only with those who waited for it",
        || format!("call {call}: {:?}", replay.response),
    )
}

fn own_run(ledger: &Ledger, call: usize) -> Result<(usize, &Run), Broken> {
    let mut runs = ledger.runs.iter().enumerate().rev();
    runs.find(|(_, run)| run.call == call)
        .ok_or_else(|| Broken {
            rule: "who is told that the handler ran for it, it ran for",
            detail: format!("call {call} never ran"),
        })
}

/// Whether they say the same, whatever time each took.
fn says(stored: &Response, heard: &Response) -> bool {
    let took = stored.took;
    *stored
        == Response {
            took,
            ..heard.clone()
        }
}

fn is_same(stored: &Arc<Response>, heard: &Arc<Response>) -> bool {
    Arc::ptr_eq(stored, heard) || stored == heard
}

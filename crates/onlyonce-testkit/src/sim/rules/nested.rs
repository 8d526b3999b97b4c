//! A rotation of the slot secret: a process with both claims under the old one, and inside of that
//! under the new one. The two halves must be as one.

use std::sync::Arc;

use onlyonce_core::{Release, Response};

use crate::sim::clock::{Ms, wall};
use crate::sim::history::Ending;
use crate::sim::ledger::{Ledger, Run, call_id};
use crate::sim::model::{Closing, Phase, Tenure, Window};
use crate::sim::report::{Checked, require};

/// In a rotation, a run's call holds the slot that every process finds, whatever else it holds.
pub(super) fn started(ledger: &mut Ledger, id: usize, now: Ms) -> Checked {
    if ledger.common_half.is_none() {
        return Ok(());
    }
    let own_trace = Some(ledger.runs[id].call.to_string());
    let own = |it: &Tenure| it.meta.trace.as_deref() == own_trace.as_deref();
    let common = ledger.common(ledger.calls[ledger.runs[id].call].key);
    let held = ledger.cells[common].current(now).is_some_and(|held| {
        own(held) && matches!(held.phase, Phase::Pending) && held.lease_until > now
    });
    let ledger = &*ledger;
    let call = &ledger.calls[ledger.runs[id].call];
    let since = Window::new(call.started, now);
    // A late copy of its claim may have been granted anew to nobody since.
    let tenures = || ledger.cells[common].tenures.iter().filter(|it| own(it));
    let forgotten = |it: &Tenure| matches!(it.closed, Some((_, Closing::Forgotten)));
    let excused = match tenures().next_back() {
        Some(lost) => {
            tenures().any(forgotten)
                || ledger.jumped(call.process, since)
                || ledger.endangered(call.process, &lost.token, since)
        }
        None => call.terms.open && ledger.failed(call.process, since),
    };
    require(
        held || excused,
        "while the secret is rotated, a handler starts only with the slot that every process finds",
        || format!("run {id} of process {}", call.process),
    )
}

/// The old secret's slot gets what is stored under the new one, for as long as that is kept: mostly
/// what the handler answered, and sometimes an operator, or a call that this one was attached to.
pub(super) fn completed(
    ledger: &Ledger,
    outer: &Tenure,
    response: &Arc<Response>,
    keep: Ms,
) -> Checked {
    let mut inner = inner(ledger, outer).iter();
    let is_copy = inner.any(|it| {
        it.fingerprint == outer.fingerprint
            && it.response().is_some_and(|it| it.body == response.body)
            && it.finished.is_some_and(|at| it.showed(wall(at + keep)))
    });
    require(
        is_copy,
        "what is stored under the old secret is what is stored under the new one, and kept as long",
        || format!("{:?}: {response:?} for {keep} ms", outer.token),
    )
}

/// The claim under the old secret ends like the one inside of it: it is given back only if nothing
/// ran or nothing is stored there, and left in doubt only if that one is.
pub(super) fn released(ledger: &Ledger, outer: &Tenure, why: Release, now: Ms) -> Checked {
    let run = ledger.run_of(&outer.token).map(|id| &ledger.runs[id]);
    // It goes by what it was told: a late copy of its claim may have been granted anew since, as a first
    // attempt.
    let mut tenures = ledger.cells.iter().flat_map(|cell| &cell.tenures);
    let took_over = tenures.any(|it| it.token == outer.token && it.attempt > 1);
    let true_words = match (why, run) {
        // The store leaves it in doubt, whatever the word: the record after it is checked.
        (Release::NotRun | Release::Unknown, _) if took_over => true,
        (Release::NotRun, None) => true,
        (Release::NotRun, Some(run)) => nothing_is_left(ledger, run, now),
        (Release::Unknown, _) => is_in_doubt(ledger, outer, now),
    };
    require(
        true_words,
        "a claim under the old secret ends like the one under the new secret inside of it",
        || {
            let ended = run.map(|run| run.ended);
            format!(
                "{:?} was released as {why:?}, its run: {ended:?}",
                outer.token
            )
        },
    )
}

/// Whether a run has left nothing of its own under the new secret.
fn nothing_is_left(ledger: &Ledger, run: &Run, now: Ms) -> bool {
    let nothing_to_store = run.ended.is_some_and(|(_, ending)| ending.may_run_again());
    let call = &ledger.calls[run.call];
    let tenure = run.token.and_then(|token| {
        let cell = ledger.cell_of(call, &token);
        ledger.cells[cell].tenure_of(&token)
    });
    // Overtaken, forgotten or expired: whatever is there now is not of this call.
    let gone = |it: &Tenure| run.told_absent || it.closed.is_some() || it.expires <= now;
    // An operator answered under the new secret what ended without an answer: it is found there.
    let unanswered = matches!(
        run.ended,
        Some((_, Ending::Unknown | Ending::TimedOut | Ending::Abandoned))
    );
    let resolved = |it: &Tenure| unanswered && it.finished.is_some();
    // A claim that failed was not the run's: that goes without one where the policy is open.
    let since = Window::new(call.started, now);
    let unprotected = call.terms.open && ledger.failed(call.process, since);
    nothing_to_store || unprotected || tenure.is_none_or(|it| gone(it) || resolved(it))
}

/// Whether what the call with this claim found, ran or was attached to under the new secret is in
/// doubt, or was not stored.
fn is_in_doubt(ledger: &Ledger, outer: &Tenure, now: Ms) -> bool {
    let Some(id) = call_id(&outer.meta) else {
        return false;
    };
    let during = Window::new(ledger.calls[id].started, now);
    let mut inner = inner(ledger, outer).iter();
    let mut flights = ledger.flights(id, during);
    inner.any(|it| it.in_doubt(during))
        || flights.any(|run| {
            let unknown = run.ended.is_some_and(|(_, ending)| ending.is_in_doubt());
            unknown || run.failing.is_some() || run.told_absent
        })
}

/// Who held the new secret's slot of the key that `outer` claimed under the old one.
fn inner<'a>(ledger: &'a Ledger, outer: &Tenure) -> &'a [Tenure] {
    let call = ledger.call_of(&outer.meta);
    let nested = call.and_then(|call| ledger.nested(call));
    nested.map_or(&[], |[_, inner]| inner)
}

//! Refusals are true: a linearised read at some moment of the call would agree.

use onlyonce_core::OnLapse;

use crate::sim::clock::Ms;
use crate::sim::history::Ending;
use crate::sim::kinds::Heard;
use crate::sim::ledger::{Call, Ledger, READ_AGE_MAX, Run, STALL_MAX};
use crate::sim::model::Window;
use crate::sim::report::{Checked, require};

/// A caller was refused with `heard`.
pub(in crate::sim) fn refused(ledger: &Ledger, call: usize, heard: Heard, now: Ms) -> Checked {
    let caller = &ledger.calls[call];
    let during = ledger.answerable(call, now);
    let ended = |wanted: Ending| {
        let mut flights = ledger.flights(call, during);
        flights.any(|run| run.ended.is_some_and(|(_, ending)| ending == wanted))
    };
    let (is_true, rule) = match heard {
        Heard::Mismatch => (
            mismatched(ledger, call, during, |same| same),
            "a mismatch is told only of a fingerprint the store confirmed during the call",
        ),
        Heard::OtherCredential => (
            mismatched(ledger, call, during, |same| !same),
            "another credential is told only of one the store confirmed during the call",
        ),
        Heard::InProgress => return in_progress(ledger, call, now),
        Heard::TooManyWaiters => (
            crowded(ledger, call, during),
            "too many waiters is told only when so many wait",
        ),
        Heard::OutcomeUnknown => (
            in_doubt(ledger, call, during),
            "outcome unknown is told only of what is lapsed, released as unknown or abandoned",
        ),
        Heard::TimedOut => (
            ended(Ending::TimedOut),
            "timed out is told only of a timeout",
        ),
        Heard::NotRun => (
            ended(Ending::NotRun) || refused_inside(ledger, call, during),
            "not run is told only if nothing ran",
        ),
        Heard::NotStored => (
            unsettled(ledger, call, now),
            "not stored is told only if the store failed after a run",
        ),
        Heard::StoreDown => (
            ledger.failed(caller.process, during),
            "store down is told only if the store failed",
        ),
        Heard::ShuttingDown => (
            ledger.lives[caller.process].closing.is_some(),
            "shutting down is told only by a process that is",
        ),
        Heard::Impossible
        | Heard::Ran
        | Heard::RanUnstored
        | Heard::RanUnprotected
        | Heard::Replayed
        | Heard::Shared
        | Heard::HungUp
        | Heard::CutOff => (false, "a refusal has a reason that can apply"),
    };
    require(is_true, rule, || {
        format!(
            "call {call}, from {} to {now} ms, was told: {}",
            caller.started,
            heard.name()
        )
    })
}

/// In a rotation, whether it may have been attached to a flight under the old secret that was
/// refused under the new one.
fn refused_inside(ledger: &Ledger, call: usize, during: Window) -> bool {
    let mut around = ledger.around(call, during);
    around.any(|(leader, _)| leader.fingerprint == ledger.calls[call].fingerprint)
}

fn mismatched(ledger: &Ledger, call: usize, during: Window, fits: impl Fn(bool) -> bool) -> bool {
    let caller = &ledger.calls[call];
    let other = |it: &Call| {
        it.fingerprint != caller.fingerprint && fits(it.credential == caller.credential)
    };
    let mut tenures = ledger.tenures(caller);
    let stored = tenures.any(|it| {
        it.fingerprint != caller.fingerprint
            && fits(it.meta.credential == caller.credential)
            && it.whole().meets(during)
    });
    // A flight of this process that was granted its claim: the store confirmed its fingerprint,
    // and as long as nothing says that the lease is lost, the process may believe it (docs/protocol.md#rule-12).
    let mut runs = ledger.runs.iter();
    // In a rotation a flight may be granted its claim under the old secret alone, and run nothing.
    let mut around = ledger.around(call, during);
    stored
        || around.any(|(leader, held)| other(leader) && held.is_some())
        || runs.any(|run| {
            let leader = &ledger.calls[run.call];
            leader.process == caller.process
                && leader.key == caller.key
                && other(leader)
                && ledger.flight(run).meets(during)
                && run.lost.is_none_or(|at| at >= during.from)
        })
}

fn in_progress(ledger: &Ledger, call: usize, now: Ms) -> Checked {
    let caller = &ledger.calls[call];
    let during = Window::new(caller.started, now);
    let recent = Window::new(now.saturating_sub(READ_AGE_MAX).max(caller.started), now);
    let window = if ledger.disturbed(caller.process, recent) {
        during
    } else {
        recent
    };
    let mut tenures = ledger.tenures(caller);
    let running = tenures.any(|it| it.live().meets(window));
    let beside = ledger.beside(call, window).next().is_some();
    require(
        running || beside,
        "in progress is told only of what is running",
        || {
            format!(
                "call {call}: nothing was pending from {} to {now} ms",
                window.from
            )
        },
    )?;
    // Who is attached to a flight shares its refusal, and who was overtaken waits anew; only a
    // lone caller's patience is known.
    let patience = caller.terms.patience.unwrap_or(0);
    let cut_short = now < caller.started + patience
        && !beside
        && ledger.beside(call, during).next().is_none()
        && ledger.lives[caller.process].closing.is_none()
        && !ledger.jumped(caller.process, during);
    require(
        !cut_short,
        "a duplicate waits as long as its policy says",
        || {
            format!(
                "call {call} was refused after {} of {patience} ms",
                now - caller.started
            )
        },
    )
}

fn crowded(ledger: &Ledger, call: usize, during: Window) -> bool {
    let terms = &ledger.calls[call].terms;
    let room = terms
        .local_waiters_max
        .min(terms.waiters_max.saturating_sub(1));
    // One of those beside it leads the flight and is no waiter.
    ledger.beside(call, during).count() > room
}

fn in_doubt(ledger: &Ledger, call: usize, during: Window) -> bool {
    let caller = &ledger.calls[call];
    let mut tenures = ledger.tenures(caller);
    let mut flights = ledger.flights(call, during);
    tenures.any(|it| it.in_doubt(during))
        || flights.any(|run| {
            let leader = &ledger.calls[run.call];
            let dropped = leader.by_hand && leader.hung_up;
            let unknown = matches!(run.ended, Some((_, Ending::Unknown | Ending::Abandoned)));
            dropped || unknown || (run.call != call && is_doubted_around(ledger, run))
        })
}

/// In a rotation, whether it ran too long under the new secret, or its result was not stored: of the
/// flight around it, which others are attached to, that is an unknown outcome.
fn is_doubted_around(ledger: &Ledger, run: &Run) -> bool {
    let too_long = matches!(run.ended, Some((_, Ending::TimedOut)));
    let nested = ledger.nested(&ledger.calls[run.call]).is_some();
    nested && (too_long || run.failing.is_some() || run.told_absent)
}

fn unsettled(ledger: &Ledger, call: usize, now: Ms) -> bool {
    let caller = &ledger.calls[call];
    let since = Window::new(caller.started.saturating_sub(STALL_MAX), now);
    let failed = ledger.failed(caller.process, since) || ledger.troubled(caller.process, since);
    // Who was overtaken, or forgotten and replaced, may find the other's claim given back.
    let mut flights = ledger.flights(call, Window::new(caller.started, now));
    flights.any(|run| failed || run.told_absent)
}

/// Whether `hold`, on either side, kept a lapsed claim from running again for this call.
pub(in crate::sim) fn held_back(ledger: &Ledger, call: usize, now: Ms) -> bool {
    let caller = &ledger.calls[call];
    let during = Window::new(caller.started, now);
    let mut tenures = ledger.tenures(caller);
    tenures.any(|it| {
        let holds = it.on_lapse == OnLapse::Hold || caller.terms.on_lapse == OnLapse::Hold;
        holds && it.in_doubt(during)
    })
}

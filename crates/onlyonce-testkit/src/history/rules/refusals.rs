//! Refusals have a reason: those that can be decided from a process's own log. How many wait, and
//! what runs beside a call in its process, a log does not tell.

use onlyonce_core::Reason;

use crate::history::check::{Broken, Case};
use crate::history::ledger::{Call, Ledger};
use crate::history::log::{Ask, Heard, Reply};

pub(crate) const MISMATCH: &str = "a mismatch is told only of a record of another payload";
pub(crate) const STORE_DOWN: &str = "store down is told only if the store failed";
pub(crate) const NOT_STORED: &str = "not stored is told only if a completion failed";

pub(crate) fn check(case: &mut Case<'_>) {
    let ledger = case.ledger;
    for call in ledger.calls.values() {
        let Some((at, Heard::Refused(reason))) = call.heard else {
            continue;
        };
        let is = |it: Reason| *reason == it.name();
        let (is_true, rule) = if is(Reason::Mismatch) {
            (mismatched(ledger, call), MISMATCH)
        } else if is(Reason::StoreDown) {
            let mut failures = ledger.lives[call.life].failures.iter();
            (failures.any(|failed| *failed <= at.us), STORE_DOWN)
        } else if is(Reason::NotStored) {
            (incomplete(ledger, call), NOT_STORED)
        } else {
            continue;
        };
        if !is_true {
            let broken = Broken {
                rule,
                detail: format!("call {} was told: {reason}", call.id),
                events: vec![call.called, at],
            };
            case.tell(call.key, broken);
        }
    }
}

/// Its process had been told of another payload, or held the slot for one.
fn mismatched(ledger: &Ledger<'_>, call: &Call<'_>) -> bool {
    let by = call.heard.map_or(0, |(at, _)| at.us);
    let mut here = ledger.keys[&call.key]
        .tenures
        .iter()
        .map(|token| &ledger.tenures[token])
        .filter(|it| it.life == call.life);
    here.any(|it| {
        it.deeds.iter().any(|deed| match deed.replied {
            Some((at, _)) if at.us > by => false,
            Some((_, Reply::Granted { .. })) => it.payload != call.payload,
            Some(_) => deed.seen().is_some_and(|seen| seen.payload != call.payload),
            None => false,
        })
    })
}

/// A completion for its key failed in its process, or found nothing after it had been overtaken.
fn incomplete(ledger: &Ledger<'_>, call: &Call<'_>) -> bool {
    let mut here = ledger.keys[&call.key]
        .tenures
        .iter()
        .map(|token| &ledger.tenures[token])
        .filter(|it| it.life == call.life);
    here.any(|it| {
        it.deeds.iter().any(|deed| {
            matches!(deed.ask, Ask::Complete { .. })
                && matches!(deed.replied, Some((_, Reply::Failed | Reply::Absent)))
        })
    })
}

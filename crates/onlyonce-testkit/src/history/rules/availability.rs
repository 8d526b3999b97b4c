//! When all is well again, every key is answered: by its stored answer, by a run, or by "outcome
//! unknown" where hold forbids another.

use onlyonce_core::Reason;

use crate::history::check::{Broken, Case};
use crate::history::clock::{Micros, micros};
use crate::history::ledger::{Call, Ledger};
use crate::history::log::Heard;

pub(crate) const ANSWERED: &str = "when all is well again, every key is answered within its time";

/// What a call of the last round may take beyond its patience: a busy machine, not a stuck key.
const BEYOND: Micros = micros(10_000);

pub(crate) fn check(case: &mut Case<'_>) {
    let ledger = case.ledger;
    // Without a last round, nothing can be said.
    if !ledger.calls.values().any(|call| call.sweep) {
        return;
    }
    for (key, keyed) in &ledger.keys {
        let last: Vec<_> = keyed
            .calls
            .iter()
            .map(|id| &ledger.calls[id])
            .filter(|call| call.sweep)
            .collect();
        if last.iter().any(|call| is_answered(ledger, call)) {
            continue;
        }
        let told = last.iter().filter_map(|call| call.heard);
        let broken = Broken {
            rule: ANSWERED,
            detail: match last.is_empty() {
                true => "nobody asked for it in the last round".to_owned(),
                false => "nobody who asked for it in the last round was answered".to_owned(),
            },
            events: last
                .iter()
                .map(|call| call.called)
                .chain(told.map(|(at, _)| at))
                .collect(),
        };
        case.tell(*key, broken);
    }
}

fn is_answered(ledger: &Ledger<'_>, call: &Call<'_>) -> bool {
    let Some((at, heard)) = call.heard else {
        return false;
    };
    let in_time = at.us - call.called.us <= micros(call.terms.patience) + BEYOND;
    in_time
        && match heard {
            Heard::Ran { .. } | Heard::Replayed { .. } => true,
            Heard::Refused(reason) => {
                *reason == Reason::OutcomeUnknown.name() && may_be_unknown(ledger, call)
            }
        }
}

/// Somebody began and did not finish, and one of the two sides says hold.
fn may_be_unknown(ledger: &Ledger<'_>, call: &Call<'_>) -> bool {
    let tokens = ledger.keys[&call.key].tenures.iter();
    let mut others = tokens
        .map(|token| &ledger.tenures[token])
        .filter(|it| it.call != call.id);
    others.any(|it| {
        (it.hold || call.terms.hold)
            && it.payload == call.payload
            && it.may_be_granted()
            && it.finished().is_none()
    })
}

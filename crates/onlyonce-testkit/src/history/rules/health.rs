//! A holder that nothing disturbs keeps its lease: it renews in time, whatever its handler does.

use crate::history::check::{Broken, Case};
use crate::history::ledger::{At, Grant, Ledger, Tenure, Window};

pub(crate) const HEALTHY: &str = "a healthy holder never loses its lease";

pub(crate) fn check(case: &mut Case<'_>) {
    let ledger = case.ledger;
    for new in ledger.tenures.values() {
        let Some(grant) = new.granted() else {
            continue;
        };
        if let Some(old) = overtaken(ledger, new, &grant)
            && let Some(proof) = lost_in_health(ledger, old, &grant)
        {
            let broken = Broken {
                rule: HEALTHY,
                detail: format!(
                    "{:?} took over from {:?}, whose process had been well since it last \
                     prolonged its lease",
                    new.token, old.token
                ),
                events: vec![proof, grant.from, grant.to],
            };
            case.tell(new.key, broken);
        }
    }
}

/// The claim that was taken over, as the grant names it: by its call.
fn overtaken<'l, 'h>(
    ledger: &'l Ledger<'h>,
    new: &Tenure<'_>,
    grant: &Grant,
) -> Option<&'l Tenure<'h>> {
    let call = grant.overtook?;
    let tokens = ledger.keys[&new.key].tenures.iter();
    let of_call = tokens
        .map(|token| &ledger.tenures[token])
        .filter(|it| it.call == call && it.token != new.token);
    let by = grant.to.us;
    of_call
        .filter(|it| it.granted().is_some_and(|before| before.from.us <= by))
        .max_by_key(|it| it.granted().map(|before| before.to.us))
}

/// The last prolongation, if nothing since then excuses the loss.
fn lost_in_health(ledger: &Ledger<'_>, old: &Tenure<'_>, grant: &Grant) -> Option<At> {
    let by = grant.to.us;
    let ended = |at: Option<At>| at.is_some_and(|at| at.us <= by);
    if ended(old.doubted()) || ended(old.given_back()) {
        return None;
    }
    let (sent, _) = old
        .prolonged()
        .filter(|(sent, _)| sent.us <= by)
        .max_by_key(|(sent, _)| sent.us)?;
    let since = Window {
        from: sent.us,
        to: by,
    };
    // A verb that failed or was slow: the store was not there for it.
    let refused = old.deeds.iter().any(|deed| {
        let replied = deed.replied.map_or(by, |(at, _)| at.us);
        let slow = replied.saturating_sub(deed.sent.us) > old.lease / 4;
        let after = replied >= since.from && deed.sent.us <= by;
        after && (deed.is_in_doubt() || slow)
    });
    (!refused && !ledger.disturbed(old.life, since)).then_some(sent)
}

//! Who may hold a slot after whom. Two claims that were both granted came one after the other,
//! and the later one needs a reason: a lapse, an expiry, or that the slot was given back.

use crate::history::check::{Broken, Case};
use crate::history::clock::Micros;
use crate::history::ledger::{Grant, Ledger, SLACK, Tenure};
use crate::history::log::{Ask, Reply, Short};

pub(crate) const ONE_LEASE: &str = "a slot has at most one live lease";
pub(crate) const OVERLAP: &str = "two runs overlap only if the lease of the first had lapsed";
pub(crate) const SECOND_RUN: &str = "a second run starts only after a lapse that can have happened, or after the first ended unstored";
pub(crate) const FINISHED_STAYS: &str =
    "a finished record neither becomes pending nor goes before it expires";
pub(crate) const LOST_LEASE: &str = "a lost lease never completes";
pub(crate) const HOLD: &str = "when either side says hold, what may have run is not run again";
pub(crate) const FINGERPRINT: &str = "a different payload never takes over";
pub(crate) const ATTEMPTS: &str = "a take-over counts one attempt more";
pub(crate) const DEAD: &str = "a released token stays dead for one lease";

pub(crate) fn check(case: &mut Case<'_>, key: u32) {
    let ledger = case.ledger;
    let tokens = &ledger.keys[&key].tenures;
    for broken in tokens.iter().filter_map(|it| revived(&ledger.tenures[it])) {
        case.tell(key, broken);
    }
    let mut granted: Vec<(&Tenure<'_>, Grant)> = tokens
        .iter()
        .map(|token| &ledger.tenures[token])
        .filter_map(|tenure| Some((tenure, tenure.granted()?)))
        .collect();
    granted.sort_by_key(|(_, grant)| grant.to.us);
    for (at, first) in granted.iter().enumerate() {
        for second in &granted[at + 1..] {
            if let Err(broken) = succession(ledger, tokens, first, second) {
                case.tell(key, broken);
            }
        }
    }
}

/// `first` heard of its grant before `second` did. That is the order, unless their claims were
/// under way together: then either order will do.
fn succession(
    ledger: &Ledger<'_>,
    tokens: &[Short],
    first: &(&Tenure<'_>, Grant),
    second: &(&Tenure<'_>, Grant),
) -> Result<(), Broken> {
    let held = follows(ledger, tokens, first, second);
    if held.is_err() && second.1.from.us <= first.1.to.us {
        return follows(ledger, tokens, second, first).or(held);
    }
    held
}

/// Whether `new` can have been granted after `old` was.
fn follows(
    ledger: &Ledger<'_>,
    tokens: &[Short],
    (old, before): &(&Tenure<'_>, Grant),
    (new, grant): &(&Tenure<'_>, Grant),
) -> Result<(), Broken> {
    let by = grant.to.us;
    let broken = |rule, detail: String, proof: Option<_>| {
        let grants = [before.from, before.to, grant.from, grant.to];
        let events = grants.into_iter().chain(proof).collect();
        Err(Broken {
            rule,
            detail,
            events,
        })
    };
    if old.given_back().is_some_and(|at| at.us <= by) {
        return Ok(());
    }
    if let Some(finish) = old.finished() {
        if finish.may_have_expired(by) {
            return Ok(());
        }
        let rule = if finish.from.us > by {
            LOST_LEASE
        } else {
            FINISHED_STAYS
        };
        let detail = format!("{:?} was granted after {:?} finished", new.token, old.token);
        return broken(rule, detail, Some(finish.to));
    }
    if old.doubted().is_none_or(|at| at.us > by)
        && !ledger.ended_with_its_owner(old, by)
        && let Some((until, proof)) = old.leased_until()
        && by.saturating_add(SLACK) < until
    {
        let early = (until - by) / 1000;
        let detail = format!(
            "{:?} was granted at least {early} ms before the lease of {:?} can have lapsed",
            new.token, old.token
        );
        return broken(lapse_rule(ledger, old, new), detail, Some(proof));
    }
    if old.may_have_expired(by) || gave_way(ledger, tokens, old, new, by) {
        return Ok(());
    }
    let detail = format!("{:?} followed {:?}", new.token, old.token);
    if old.hold || new.hold {
        return broken(HOLD, detail, None);
    }
    if old.payload != new.payload {
        return broken(FINGERPRINT, detail, None);
    }
    if grant.attempt <= before.attempt {
        return broken(ATTEMPTS, detail, None);
    }
    Ok(())
}

/// Which rule a grant breaks that came before the lapse: it depends on what ran.
fn lapse_rule(ledger: &Ledger<'_>, old: &Tenure<'_>, new: &Tenure<'_>) -> &'static str {
    let (Some(first), Some(second)) = (ledger.run_of(old), ledger.run_of(new)) else {
        return ONE_LEASE;
    };
    let over = ledger.run_over(&ledger.calls[&old.call], first);
    if second.started.us < over {
        OVERLAP
    } else {
        SECOND_RUN
    }
}

/// Whether a third claim can have taken over from `old`, and have left nothing at `by`.
fn gave_way(
    ledger: &Ledger<'_>,
    tokens: &[Short],
    old: &Tenure<'_>,
    new: &Tenure<'_>,
    by: Micros,
) -> bool {
    let others = tokens.iter().map(|token| &ledger.tenures[token]);
    !old.hold
        && others
            .filter(|it| it.token != old.token && it.token != new.token)
            .any(|it| {
                !it.hold
                    && it.payload == old.payload
                    && it.may_be_granted()
                    && it.deeds.first().is_some_and(|deed| deed.sent.us <= by)
                    && it.may_be_gone(by)
            })
}

/// A claim that was granted although its token had been released less than a lease before.
fn revived(tenure: &Tenure<'_>) -> Option<Broken> {
    let mut releases = tenure
        .deeds
        .iter()
        .filter_map(|it| match (it.ask, it.replied?) {
            (Ask::GiveBack | Ask::Doubt, (at, Reply::Over)) => Some((it.sent, at)),
            (_, _) => None,
        });
    let (released, over) = releases.next()?;
    let claim = tenure.deeds.iter().find_map(|it| match it.replied? {
        (at, Reply::Granted { .. })
            if it.sent.us > over.us && at.us + SLACK < released.us + tenure.lease =>
        {
            Some(at)
        }
        (_, _) => None,
    })?;
    Some(Broken {
        rule: DEAD,
        detail: format!("{:?} was granted after it was released", tenure.token),
        events: vec![released, over, claim],
    })
}

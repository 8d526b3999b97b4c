//! Runs: each under a live claim of its own, to its end; and what is done with a claim afterwards
//! is what its handler said.

use std::collections::BTreeMap;

use crate::history::check::{Broken, Case};
use crate::history::clock::micros;
use crate::history::ledger::{Call, Deed, Ledger, Run, SLACK, Tenure, Window};
use crate::history::log::{Ask, Ending, PANICKED};

pub(crate) const OWN_CLAIM: &str =
    "a handler starts only under a claim of its own that was granted";
pub(crate) const ONE_ATTEMPT: &str = "a token is for one attempt";
pub(crate) const LIVE_LEASE: &str = "a handler starts only while its lease lives";
pub(crate) const TO_ITS_END: &str =
    "a started handler goes on to its end, whether or not its caller waits";
pub(crate) const AS_ANSWERED: &str = "what is stored is what the handler answered";
pub(crate) const GIVEN_BACK: &str =
    "a claim is given back only if nothing ran or nothing is to be stored";

pub(crate) fn check(case: &mut Case<'_>) {
    let ledger = case.ledger;
    let mut seen = BTreeMap::new();
    for call in ledger.calls.values() {
        let Some(run) = &call.run else {
            continue;
        };
        let held = started(ledger, call, run).and_then(|()| to_its_end(ledger, call, run));
        if let Err(broken) = held {
            case.tell(call.key, broken);
        }
        if let Some(token) = run.token
            && let Some(first) = seen.insert(token, run.started)
        {
            let broken = Broken {
                rule: ONE_ATTEMPT,
                detail: format!("two handlers started under {token:?}"),
                events: vec![first, run.started],
            };
            case.tell(call.key, broken);
        }
    }
    for tenure in ledger.tenures.values() {
        let run = ledger.run_of(tenure);
        let broken = tenure.deeds.iter().find_map(|deed| said(tenure, run, deed));
        if let Some(broken) = broken {
            case.tell(tenure.key, broken);
        }
    }
}

fn started(ledger: &Ledger<'_>, call: &Call<'_>, run: &Run<'_>) -> Result<(), Broken> {
    let held = run.token.and_then(|token| ledger.tenures.get(&token));
    let at = run.started;
    let granted = held.filter(|it| {
        let before = it.granted().is_some_and(|grant| grant.to.us <= at.us);
        it.call == call.id && before
    });
    let Some(held) = granted else {
        return Err(Broken {
            rule: OWN_CLAIM,
            detail: format!("call {} had been granted nothing", call.id),
            events: vec![call.called, at],
        });
    };
    let prolonged = held.prolonged().filter(|(_, heard)| heard.us <= at.us);
    let Some((sent, heard)) = prolonged.max_by_key(|(_, heard)| heard.us) else {
        return Ok(());
    };
    let waited = Window {
        from: sent.us,
        to: at.us,
    };
    let over = at.us > heard.us + held.lease + SLACK;
    if over && !ledger.disturbed(call.life, waited) {
        return Err(Broken {
            rule: LIVE_LEASE,
            detail: format!("the lease of {:?} was over", held.token),
            events: vec![sent, heard, at],
        });
    }
    Ok(())
}

/// Only its deadline, its process's end, or a caller who runs it by hand stops a handler.
fn to_its_end(ledger: &Ledger<'_>, call: &Call<'_>, run: &Run<'_>) -> Result<(), Broken> {
    let Some(dropped) = run.dropped else {
        return Ok(());
    };
    let deadline = run.started.us + micros(call.terms.execution);
    let closed = ledger.lives[call.life].closed;
    let excused = call.by_hand
        || dropped.us + SLACK >= deadline
        || closed.is_some_and(|closed| dropped.us >= closed);
    if excused {
        return Ok(());
    }
    Err(Broken {
        rule: TO_ITS_END,
        detail: format!("the handler of call {} was dropped", call.id),
        events: vec![run.started, dropped],
    })
}

/// Whether a run ended without anything to store.
fn is_unstored(ending: Option<&Ending>, storable: bool) -> bool {
    let ended = matches!(
        ending,
        Some(Ending::NotRun | Ending::Finished { .. } | Ending::Panicked { .. })
    );
    ended && !storable
}

/// What the engine tells the store of a run is what the run was.
fn said(tenure: &Tenure<'_>, run: Option<&Run<'_>>, deed: &Deed<'_>) -> Option<Broken> {
    let ended = run.and_then(|run| run.ended);
    let ended = ended.filter(|(at, _)| at.us <= deed.sent.us);
    let ending = ended.map(|(_, ending)| ending);
    let storable = run.is_some_and(Run::is_storable);
    let dropped = run.is_some_and(|run| run.dropped.is_some_and(|at| at.us <= deed.sent.us));
    let (fits, rule) = match deed.ask {
        Ask::Claim { .. } | Ask::Renew => return None,
        Ask::Complete { said, .. } => {
            let own = match ending {
                Some(Ending::Finished { said: own, .. }) => own == said,
                Some(Ending::Panicked { .. }) => said == PANICKED,
                Some(Ending::NotRun | Ending::Unknown) | None => false,
            };
            (own && storable, AS_ANSWERED)
        }
        Ask::GiveBack => {
            let none = run.is_none_or(|run| run.started.us > deed.sent.us);
            (none || is_unstored(ending, storable), GIVEN_BACK)
        }
        // Who runs it by hand and goes away before the start leaves it in doubt too; and so does an
        // answer that is not stored, under `hold` or after an attempt that may have done something.
        Ask::Doubt => {
            let began = ending != Some(&Ending::NotRun);
            let earlier = tenure.granted().is_some_and(|grant| grant.attempt > 1);
            let unstored = is_unstored(ending, storable) && (earlier || (tenure.hold && began));
            let unknown = ending == Some(&Ending::Unknown);
            (run.is_none() || dropped || unknown || unstored, GIVEN_BACK)
        }
    };
    (!fits).then(|| Broken {
        rule,
        detail: format!("{:?}: its run ended {ending:?}", tenure.token),
        events: run
            .map(|run| run.started)
            .into_iter()
            .chain(ended.map(|(at, _)| at))
            .chain([deed.sent])
            .collect(),
    })
}

//! Replies are true: what they show was claimed and completed like that, and what is finished is
//! shown by every later reply until it expires.

use crate::history::check::{Broken, Case};
use crate::history::ledger::{At, Finish, Ledger, Read, Tenure};
use crate::history::log::{Ask, PANICKED, Reply, Seen, SeenState};

use super::tenancy::FINISHED_STAYS;

pub(crate) const CLAIMED: &str = "what a reply shows was claimed for that key";
pub(crate) const COMPLETED: &str = "a reply shows only an answer that its holder sent";
pub(crate) const STALE: &str = "a reply shows what is there, not what was";
pub(crate) const EXPIRED: &str = "an expired record is absent";

pub(crate) fn check(case: &mut Case<'_>, key: u32) {
    let ledger = case.ledger;
    let keyed = &ledger.keys[&key];
    let tenures = || keyed.tenures.iter().map(|token| &ledger.tenures[token]);
    let finished: Vec<_> = tenures()
        .filter_map(|it| Some((it, it.finished()?)))
        .collect();
    for read in &keyed.reads {
        let held = match read.seen {
            Some(seen) => truth(ledger, key, read, seen)
                .and_then(|shown| gone(ledger, read, seen, shown, tenures())),
            None => Ok(()),
        };
        let held = held.and_then(|()| kept(read, &finished));
        if let Err(broken) = held {
            case.tell(key, broken);
        }
    }
}

/// What is shown was claimed for this key, with this payload, and completed with this answer,
/// before the reply came.
fn truth<'l, 'h>(
    ledger: &'l Ledger<'h>,
    key: u32,
    read: &Read<'_>,
    seen: &Seen,
) -> Result<&'l Tenure<'h>, Broken> {
    let shown = ledger.tenures.get(&seen.token).filter(|it| {
        let claimed = it.deeds.first().map(|deed| deed.sent.us);
        it.key == key
            && it.payload == seen.payload
            && Some(it.call) == seen.call
            && claimed.is_some_and(|at| at <= read.replied.us)
    });
    let Some(shown) = shown else {
        return Err(Broken {
            rule: CLAIMED,
            detail: format!("{seen} was never claimed so"),
            events: vec![read.sent, read.replied],
        });
    };
    let SeenState::Finished(answer) = &seen.state else {
        return Ok(shown);
    };
    let sent = shown.deeds.iter().any(|deed| {
        matches!(deed.ask, Ask::Complete { said, .. } if said == answer)
            && deed.sent.us <= read.replied.us
    });
    if !sent {
        return Err(Broken {
            rule: COMPLETED,
            detail: format!("{:?} never sent {answer:?}", seen.token),
            events: vec![read.sent, read.replied],
        });
    }
    debug_assert!(answer != PANICKED || seen.call == Some(shown.call));
    Ok(shown)
}

/// What is shown was not over before the question was sent.
fn gone<'l, 'h: 'l>(
    ledger: &Ledger<'_>,
    read: &Read<'_>,
    seen: &Seen,
    shown: &Tenure<'_>,
    mut tenures: impl Iterator<Item = &'l Tenure<'h>>,
) -> Result<(), Broken> {
    let broken = |rule, detail: String, proof: &[At]| {
        let events = [&[read.sent, read.replied], proof].concat();
        Err(Broken {
            rule,
            detail,
            events,
        })
    };
    if let (SeenState::Finished(_), Some(finish)) = (&seen.state, shown.finished())
        && finish.has_expired(read.sent.us, &ledger.store_faults)
    {
        let detail = format!("{:?} was still shown", seen.token);
        return broken(EXPIRED, detail, &[finish.from, finish.to]);
    }
    let released = shown
        .deeds
        .iter()
        .find_map(|it| match (it.ask, it.replied?) {
            (Ask::GiveBack, (at, Reply::Over)) if at.us < read.sent.us => Some(at),
            (_, _) => None,
        });
    // What may have taken over is not emptied by that: the attempt before it stays in doubt.
    let took_over = shown.granted().is_none_or(|grant| grant.attempt > 1);
    let in_doubt = took_over && seen.state == SeenState::Pending(0);
    if let Some(at) = released.filter(|_| !in_doubt) {
        let detail = format!("{:?} had been given back", seen.token);
        return broken(STALE, detail, &[at]);
    }
    let Some(own) = shown.granted() else {
        return Ok(());
    };
    let later = tenures.find_map(|it| {
        let grant = it.granted()?;
        let after = own.to.us < grant.from.us && grant.to.us < read.sent.us;
        after.then_some(grant)
    });
    match later {
        Some(grant) => {
            let detail = format!("{:?} had lost the slot", seen.token);
            broken(STALE, detail, &[own.to, grant.from, grant.to])
        }
        None => Ok(()),
    }
}

/// What was known to be finished before the question was sent is what is shown.
fn kept(read: &Read<'_>, finished: &[(&Tenure<'_>, Finish)]) -> Result<(), Broken> {
    for (tenure, finish) in finished {
        let known = finish.to.us < read.sent.us && !finish.may_have_expired(read.replied.us);
        let shown = read.seen.is_some_and(|seen| {
            seen.token == tenure.token && matches!(seen.state, SeenState::Finished(_))
        });
        if known && !shown {
            let found = read.seen.map_or("nothing".to_owned(), ToString::to_string);
            return Err(Broken {
                rule: FINISHED_STAYS,
                detail: format!("{:?} was finished, and found was {found}", tenure.token),
                events: vec![finish.from, finish.to, read.sent, read.replied],
            });
        }
    }
    Ok(())
}

//! Answers: each was made by a run of its key and payload, told as stored only once it is, and
//! the same for everyone until it expires.

use std::collections::BTreeMap;

use crate::history::check::{Broken, Case};
use crate::history::handler::word;
use crate::history::ledger::{At, Call, Ledger, Run};
use crate::history::log::{CallId, Ending, Heard, PANICKED, Reply, SeenState};

pub(crate) const MADE: &str = "an answer was made by a run of its key";
pub(crate) const PAYLOAD: &str = "a different payload never gets another's answer";
pub(crate) const ACKNOWLEDGED: &str =
    "an answer is told as stored only once the store has acknowledged it";
pub(crate) const SAME: &str = "every caller hears the same stored answer, as long as it is kept";
pub(crate) const LOST: &str = "what was told as stored is not run again before it expires";
pub(crate) const UNSTORED: &str =
    "an answer is left unstored only if it is not one to store, or its record is gone";
pub(crate) const SHARED: &str = "an answer that is not stored is shared only in its process";

/// A stored answer: who first heard it, and when.
type Told = BTreeMap<CallId, At>;

pub(crate) fn check(case: &mut Case<'_>, key: u32) {
    let ledger = case.ledger;
    let mut told = Told::new();
    for id in &ledger.keys[&key].calls {
        let call = &ledger.calls[id];
        let Some((at, heard)) = call.heard else {
            continue;
        };
        match hear(ledger, call, at, heard) {
            Ok(Some(maker)) => {
                let first = told.entry(maker).or_insert(at);
                if at.us < first.us {
                    *first = at;
                }
            }
            Ok(None) => {}
            Err(broken) => case.tell(key, broken),
        }
    }
    for broken in agree(ledger, &told).chain(not_again(ledger, key, &told)) {
        case.tell(key, broken);
    }
}

/// Checks one answer; says which run made it, if it is told as stored.
fn hear(
    ledger: &Ledger<'_>,
    call: &Call<'_>,
    at: At,
    heard: &Heard,
) -> Result<Option<CallId>, Broken> {
    let (said, original, stored) = match heard {
        Heard::Ran { said, stored } => (said, Some(call.id), *stored),
        Heard::Replayed {
            said,
            original,
            stored,
        } => (said, *original, *stored),
        Heard::Refused(_) => return Ok(None),
    };
    let broken = |rule, detail: String| Broken {
        rule,
        detail,
        events: vec![call.called, at],
    };
    let maker = original.and_then(|id| ledger.calls.get(&id));
    let run = maker.and_then(|maker| made(maker, said, at));
    let (Some(maker), Some(run)) = (maker, run) else {
        let detail = format!("nobody made {said:?} for it");
        return Err(broken(MADE, detail));
    };
    if maker.key != call.key {
        let detail = format!("{said:?} was made for key {}", maker.key);
        return Err(broken(MADE, detail));
    }
    if maker.payload != call.payload {
        let detail = format!("{said:?} was made for payload {}", maker.payload);
        return Err(broken(PAYLOAD, detail));
    }
    if stored {
        if !acknowledged(ledger, call, maker, at) {
            let detail = format!("nothing had told its process that {said:?} is stored");
            return Err(broken(ACKNOWLEDGED, detail));
        }
        return Ok(Some(maker.id));
    }
    if maker.life != call.life {
        let detail = format!("{said:?} was made in another process");
        return Err(broken(SHARED, detail));
    }
    if run.is_storable() && !is_gone(ledger, maker) {
        return Err(broken(UNSTORED, format!("{said:?} was to be stored")));
    }
    Ok(None)
}

/// The run of `maker`, if it had ended with this answer.
fn made<'l, 'h>(maker: &'l Call<'h>, said: &str, by: At) -> Option<&'l Run<'h>> {
    let run = maker.run.as_ref()?;
    let (ended, ending) = run.ended?;
    let same = match ending {
        Ending::Finished { said: own, .. } => {
            own == said && said == word(maker.key, maker.payload, maker.id)
        }
        Ending::Panicked { .. } => said == PANICKED,
        Ending::NotRun | Ending::Unknown => false,
    };
    (same && ended.us <= by.us).then_some(run)
}

/// Whether a reply of the store had told the caller's process that the answer is stored.
fn acknowledged(ledger: &Ledger<'_>, call: &Call<'_>, maker: &Call<'_>, by: At) -> bool {
    let Some(held) = ledger.tenure_of_run(maker.id) else {
        return false;
    };
    let tokens = ledger.keys[&call.key].tenures.iter();
    let here = tokens
        .map(|token| &ledger.tenures[token])
        .filter(|it| it.life == call.life);
    here.flat_map(|it| it.deeds.iter().map(move |deed| (it, deed)))
        .any(|(it, deed)| match deed.replied {
            Some((at, Reply::Stored)) => it.token == held.token && at.us <= by.us,
            Some((at, Reply::Taken(seen) | Reply::Found(seen))) => {
                seen.token == held.token
                    && matches!(seen.state, SeenState::Finished(_))
                    && at.us <= by.us
            }
            Some(_) | None => false,
        })
}

/// Whether the holder was told that there is nothing to complete any more.
fn is_gone(ledger: &Ledger<'_>, maker: &Call<'_>) -> bool {
    ledger.tenure_of_run(maker.id).is_some_and(|held| {
        let mut deeds = held.deeds.iter();
        deeds.any(|deed| matches!(deed.replied, Some((_, Reply::Absent))))
    })
}

/// Two stored answers of one key: the first had expired when the second was begun.
fn agree(ledger: &Ledger<'_>, told: &Told) -> impl Iterator<Item = Broken> {
    let mut finished: Vec<_> = told
        .iter()
        .filter_map(|(maker, heard)| {
            let held = ledger.tenure_of_run(*maker)?;
            Some((*maker, *heard, held.finished()?, held.granted()?))
        })
        .collect();
    finished.sort_by_key(|(_, _, finish, _)| finish.from.us);
    let pairs: Vec<_> = finished
        .windows(2)
        .filter_map(|pair| {
            let [(first, heard, finish, _), (second, also, _, grant)] = pair else {
                return None;
            };
            (!finish.may_have_expired(grant.to.us)).then(|| Broken {
                rule: SAME,
                detail: format!("the answers of calls {first} and {second} were both told"),
                events: vec![finish.to, *heard, grant.to, *also],
            })
        })
        .collect();
    pairs.into_iter()
}

/// No run of the key was claimed after an answer was told as stored, until that expired.
fn not_again(ledger: &Ledger<'_>, key: u32, told: &Told) -> impl Iterator<Item = Broken> {
    let answers: Vec<_> = told
        .iter()
        .filter_map(|(maker, heard)| {
            let finish = ledger.tenure_of_run(*maker)?.finished()?;
            Some((*maker, *heard, finish))
        })
        .collect();
    let calls = ledger.keys[&key].calls.iter();
    let runs = calls.filter_map(|id| {
        let run = ledger.calls[id].run.as_ref()?;
        let grant = ledger.tenures.get(&run.token?)?.granted()?;
        Some((*id, run.started, grant))
    });
    let mut broken = Vec::new();
    for (id, started, grant) in runs {
        let again = answers.iter().find(|(maker, heard, finish)| {
            *maker != id && grant.from.us > heard.us && !finish.may_have_expired(grant.to.us)
        });
        broken.extend(again.map(|(maker, heard, finish)| Broken {
            rule: LOST,
            detail: format!("call {id} ran after the answer of call {maker} was told"),
            events: vec![finish.to, *heard, grant.from, grant.to, started],
        }));
    }
    broken.into_iter()
}

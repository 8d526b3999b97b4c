//! Who may hold a slot, run for it, and end it: the promises that the verbs together must keep.

use std::sync::Arc;

use onlyonce_core::policy::Fate;
use onlyonce_core::response::Origin;
use onlyonce_core::{Claim, Claimed, OnLapse, Release, Response, State, Token};

use super::nested;
use crate::sim::clock::{Ms, millis};
use crate::sim::history::Ending;
use crate::sim::ledger::{Ledger, Run};
use crate::sim::model::{Closing, Phase, Tenure, Window};
use crate::sim::report::{Broken, Checked, require};
use crate::sim::world::short;

/// How long a release may take when nothing disturbs it: two tries and their latencies.
const RELEASE_MS: Ms = 60;

/// A claim asks for what its call asked for.
pub(in crate::sim) fn asked(ledger: &Ledger, claim: &Claim) -> Checked {
    let same = ledger.call_of(&claim.meta).is_some_and(|call| {
        claim.fingerprint == call.fingerprint
            && claim.on_lapse == call.terms.on_lapse
            && claim.lease_for == millis(call.terms.lease)
            && claim.keep_for == millis(call.keep)
    });
    require(same, "a claim asks for what its call asked for", || {
        format!("{claim:?}")
    })
}

/// A claim whose reply was lost is repeated with its own token: with another, a call would wait for
/// itself. A late copy may bring an old token back; that is nobody's claim.
pub(in crate::sim) fn not_behind_itself(
    ledger: &Ledger,
    claim: &Claim,
    claimed: &Claimed,
) -> Checked {
    let Claimed::Taken(record) = claimed else {
        return Ok(());
    };
    let own = record.meta.trace == claim.meta.trace && record.token != claim.token;
    let live = matches!(record.state, State::Pending { lease_left } if !lease_left.is_zero());
    let known = || {
        let mut cells = ledger.cells.iter().filter(|cell| cell.slot == claim.slot);
        cells.any(|cell| cell.tenure_of(&record.token).is_some_and(|it| !it.orphan))
    };
    require(
        !(own && live && known()),
        "a call does not wait behind its own claim",
        || {
            format!(
                "{:?} was refused for {:?} of the same call",
                claim.token, record.token
            )
        },
    )
}

/// After a claim: a take-over needs a holder that was really in trouble.
pub(in crate::sim) fn granted(ledger: &Ledger, key: usize, claimed: &Claimed, now: Ms) -> Checked {
    let Claimed::Granted {
        overtook: Some(_), ..
    } = claimed
    else {
        return Ok(());
    };
    let [.., old, new] = &ledger.cells[key].tenures[..] else {
        return Ok(());
    };
    succession(old, new)?;
    given_back(ledger, old, now)?;
    let since = Window::new(old.renewed, now);
    let excused =
        old.orphan || old.doubted.is_some() || ledger.endangered(old.process, &old.token, since);
    require(excused, "a healthy holder never loses its lease", || {
        format!(
            "key {key}: {:?} of process {} was taken over, though nothing disturbed it since its \
             lease was last prolonged at {} ms",
            old.token, old.process, old.renewed
        )
    })
}

/// A claim that nobody will run for, because its caller was refused or went away, does not hold
/// the slot until it lapses.
fn given_back(ledger: &Ledger, old: &Tenure, now: Ms) -> Checked {
    let ran = ledger.run_of(&old.token).is_some();
    let call = ledger.call_of(&old.meta);
    let left = call.and_then(|call| call.left);
    // In a rotation it is held for as long as the call inside of it waits, with or without a caller.
    let waits_on = call.is_some_and(|call| call.hung_up && !call.by_hand);
    let waits_inside = waits_on && ledger.outer(&old.token).is_some();
    let given_back = old.doubted.is_some();
    let excused = ran || old.orphan || given_back || waits_inside;
    let Some(left) = left.filter(|_| !excused) else {
        return Ok(());
    };
    // Releases are tried on with growing pauses: never longer than the trouble lasted.
    let calm = ledger.calm_since(old.process, &old.token, Window::new(left, now));
    let by = calm.map_or(Ms::MAX, |calm| calm + (calm - left) + RELEASE_MS);
    require(
        now <= by,
        "a claim that nobody runs for is given back",
        || {
            format!(
                "{:?} of process {} was left at {left} ms",
                old.token, old.process
            )
        },
    )
}

/// How a slot may pass from one holder to the next.
fn succession(old: &Tenure, new: &Tenure) -> Checked {
    let Some((at, how)) = old.closed else {
        return require(false, "a slot has at most one live lease", || {
            format!("{:?} and {:?} both hold it", old.token, new.token)
        });
    };
    let fits = match how {
        Closing::TakenOver => {
            old.lease_until <= at
                && old.finished.is_none()
                && old.fingerprint == new.fingerprint
                && old.on_lapse == OnLapse::Rerun
                && new.on_lapse == OnLapse::Rerun
        }
        Closing::Expired => {
            let answered = old.finished.is_some() && !old.resolved;
            let kept = old.on_lapse != OnLapse::Hold || answered;
            kept || at >= old.promised
        }
        Closing::NotRun | Closing::Forgotten => true,
    };
    require(
        fits,
        "a second run only after a lapse that both sides re-run with equal fingerprints, or after \
         the slot was given back, expired or forgotten; under hold never within lease and \
         retention of the claim",
        || {
            format!(
                "{:?} followed {:?}, which was {how:?} at {at} ms",
                new.token, old.token
            )
        },
    )
}

/// A handler starts: only under its own pending token, once a token, and with a fit succession.
pub(in crate::sim) fn started(ledger: &mut Ledger, id: usize, now: Ms) -> Checked {
    let run = &ledger.runs[id];
    let call = &ledger.calls[run.call];
    let since = Window::new(call.started, now);
    let closing = ledger.lives[call.process].closing;
    require(
        closing.is_none_or(|at| now <= at),
        "a process that shuts down starts nothing more",
        || format!("run {id} of process {}", call.process),
    )?;
    let Some(token) = run.token else {
        let excused = call.terms.open && ledger.failed(call.process, since);
        return require(
            excused,
            "nothing runs without protection, unless the policy is open and the store is down",
            || format!("run {id}"),
        );
    };
    let others = ledger.runs.iter().enumerate();
    let twice = others
        .filter(|(_, other)| other.token == Some(token))
        .count()
        > 1;
    require(!twice, "a token is for one attempt", || {
        format!("run {id}, {token:?}")
    })?;
    // Only its own clock tells a process how long its claim was under way.
    let jumped = ledger.jumped(call.process, since);
    let key = ledger.cell_of(call, &token);
    let cell = &mut ledger.cells[key];
    let ours = cell.current(now).is_some_and(|held| {
        held.token == token && matches!(held.phase, Phase::Pending) && held.lease_until > now
    });
    let forgotten = cell
        .tenure_of(&token)
        .is_some_and(|it| matches!(it.closed, Some((_, Closing::Forgotten))));
    require(
        ours || forgotten || jumped,
        "a handler starts only with its own pending token in the store",
        || {
            format!(
                "run {id}, {token:?}, key {key}: the store has {:?}",
                cell.record(now)
            )
        },
    )?;
    for pair in cell.tenures.windows(2) {
        succession(&pair[0], &pair[1])?;
    }
    nested::started(ledger, id, now)
}

/// A handler was dropped before its end, and nobody crashed.
pub(in crate::sim) fn dropped(ledger: &Ledger, run: &Run, now: Ms) -> Result<Ending, Broken> {
    let call = &ledger.calls[run.call];
    let timed_out = now >= run.started + call.terms.execution_max;
    if call.by_hand {
        return Ok(Ending::Abandoned);
    }
    require(
        timed_out,
        "a started handler goes on to its end, whether or not its caller waits",
        || format!("run of call {} was dropped", run.call),
    )?;
    Ok(Ending::TimedOut)
}

/// What is stored is what the handler answered, for as long as it or its caller asked.
pub(in crate::sim) fn completed(
    ledger: &Ledger,
    token: &Token,
    response: &Arc<Response>,
    keep: Ms,
) -> Checked {
    if let Some(outer) = ledger.outer(token) {
        return nested::completed(ledger, outer, response, keep);
    }
    let Some(id) = ledger.run_of(token) else {
        return require(false, "only what ran is completed", || {
            format!("{token:?} never ran")
        });
    };
    let run = &ledger.runs[id];
    let own = match run.ended {
        Some((_, Ending::Finished { fate: Fate::Stored })) => response.body == body(id),
        Some((_, Ending::Panicked { fate: Fate::Stored })) => response.origin == Origin::Panicked,
        Some(_) | None => false,
    };
    require(
        own && keep == run.keep,
        "what is stored is what the handler answered, kept as long as was asked",
        || {
            let asked = run.keep;
            format!(
                "run {id} ended {:?}, {response:?} for {keep} of {asked} ms",
                run.ended
            )
        },
    )
}

/// Whether a claim that nobody ran follows another attempt that may have done something.
fn took_over(ledger: &Ledger, token: &Token) -> bool {
    let mut tenures = ledger.cells.iter().filter_map(|cell| cell.tenure_of(token));
    tenures.any(|it| it.attempt > 1)
}

/// A claim is given back only by who did not run, or whose answer says that it may run again; it is
/// left in doubt only by who does not know, or must not run again. One that took over from another
/// leaves what that one may have done in doubt.
pub(in crate::sim) fn released(ledger: &Ledger, token: &Token, why: Release, now: Ms) -> Checked {
    if let Some(outer) = ledger.outer(token) {
        return nested::released(ledger, outer, why, now);
    }
    let run = ledger.run_of(token).map(|id| &ledger.runs[id]);
    // Who ran goes by what it was told: a late copy of its claim may have been granted anew since.
    let took_over = run.map_or_else(|| took_over(ledger, token), |run| run.attempt > 1);
    let true_words = match (why, run.map(|run| run.ended)) {
        // Who does not know what it claimed gives it back as it is.
        (Release::NotRun, None) => true,
        (Release::Unknown, None) => took_over,
        (Release::NotRun, Some(Some((_, ending)))) => ending.may_run_again() && !took_over,
        (Release::Unknown, Some(Some((_, ending)))) => {
            ending.is_in_doubt() || (ending.may_run_again() && took_over)
        }
        (Release::NotRun | Release::Unknown, Some(None)) => false,
    };
    require(
        true_words,
        "a claim is given back only if nothing ran or nothing is to be stored",
        || {
            format!(
                "{token:?} was released as {why:?}, its run: {:?}",
                run.map(|run| run.ended)
            )
        },
    )
}

/// What run `id` answers: no two runs of a seed answer alike.
pub(in crate::sim) fn body(id: usize) -> Vec<u8> {
    let id: u16 = short(id);
    id.to_be_bytes().to_vec()
}

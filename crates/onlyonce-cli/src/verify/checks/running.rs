//! Requests that meet while one of them runs.

use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_core::Reason;
use onlyonce_core::policy::Duplicate;

use super::payloads::is_mismatch;
use super::refusals::says_when;
use crate::verify::answer::Answer;
use crate::verify::ask::Ask;
use crate::verify::cause::Code;
use crate::verify::check::Ruling;
use crate::verify::client::Trouble;
use crate::verify::probe::{Probe, SLOW_MIN, Slow, silent};
use crate::verify::report::Judged;

/// How often to try to meet a running request, on a busy machine.
const TRIES: usize = 4;

pub(crate) async fn of_many_duplicates_at_once_one_runs(probe: &Probe<'_>) -> Ruling {
    let slow = probe.slow().await?;
    let ask = probe.ask("a duplicate").path(&slow.path);
    let ask = ask.key(&probe.fresh_key());
    let mut connections = Vec::new();
    for _ in 0..probe.plan().concurrency {
        connections.push(probe.connect().await?);
    }

    let sending = connections.into_iter().map(|it| probe.send_on(it, &ask));
    let answers = join_all(sending).await;

    let (mut ran, mut told_to_wait) = (Vec::new(), 0);
    for answer in answers {
        match answer {
            Ok(answer) if answer.is_success() => ran.push(answer),
            Ok(answer) if probe.is_told_to_wait(&answer) => told_to_wait += 1,
            Ok(answer) => {
                let judged = Judged::fail(format!("a duplicate was answered {}", answer.status));
                return Ok(judged.code(Code::GoodRefused));
            }
            Err(trouble) => return Ok(silent(format!("a duplicate: {trouble}"))),
        }
    }
    let settled = probe.settled(&ask.labelled("a retry afterwards")).await?;
    one_ran(probe, slow, &ran, &settled, told_to_wait)
}

fn one_ran(
    probe: &Probe<'_>,
    slow: &Slow,
    ran: &[Answer],
    settled: &Answer,
    told_to_wait: usize,
) -> Ruling {
    for answer in ran {
        probe
            .is_of(settled, answer, "a duplicate", slow.is_telling)
            .map_err(|_| Judged::fail("duplicates got different answers: more than one ran"))?;
    }
    let originals = ran
        .iter()
        .filter(|answer| answer.is_flagged(probe.policy()) == Some(false))
        .count();
    // Where answers tell, they have told; a missing mark is another check's.
    if originals > 1 && !slow.is_telling {
        return Ok(Judged::fail(format!(
            "{originals} answers claim to be the first"
        )));
    }
    let told = probe.is_of(settled, settled, "a duplicate", slow.is_telling)?;
    Ok(told.conclude(format!(
        "{} got the one answer, {told_to_wait} were told to come back",
        ran.len()
    )))
}

/// A request that was met while it ran.
struct Met {
    original: Answer,
    other: Answer,
    /// Whether the other was answered well before the original, not just when it ended.
    is_sooner: bool,
}

/// Sends `other` while `original` runs.
async fn meet(probe: &Probe<'_>, slow: &Slow, original: &Ask, other: &Ask) -> Result<Met, Judged> {
    let (one, two) = (probe.connect().await?, probe.connect().await?);
    let started = probe.now();
    let running = probe.send_on(one, original);
    let meeting = async {
        tokio::time::sleep(slow.takes / 4).await;
        let answer = probe.send_on(two, other).await;
        (answer, probe.now())
    };
    let running = async {
        let answer = running.await;
        (answer, probe.now())
    };
    let ((original, ended), (other, met)) = tokio::join!(running, meeting);
    let whole =
        |answer: Result<Answer, Trouble>| answer.map_err(|trouble| silent(trouble.to_string()));
    let original = whole(original)?;
    if !original.is_success() {
        return Err(Judged::inconclusive(format!(
            "a new key was answered {} after {:?}",
            original.status,
            ended.saturating_sub(started)
        )));
    }
    Ok(Met {
        original,
        other: whole(other)?,
        is_sooner: met + slow.takes / 4 < ended,
    })
}

/// The slow endpoint, if it is slow enough to be met while it runs.
pub(super) async fn slow_enough<'a>(probe: &'a Probe<'_>) -> Result<&'a Slow, Judged> {
    let slow = probe.slow().await?;
    if slow.takes < SLOW_MIN {
        return Err(Judged::inconclusive(format!(
            "the endpoint answers within {} ms and cannot be met while it runs: name a slower one with --slow-path",
            slow.takes.as_millis() + 1
        )));
    }
    Ok(slow)
}

pub(crate) async fn a_duplicate_of_a_running_request_gets_what_the_profile_says(
    probe: &Probe<'_>,
) -> Ruling {
    let slow = slow_enough(probe).await?;
    for _ in 0..TRIES {
        let ask = probe.ask("a new key").path(&slow.path);
        let ask = ask.key(&probe.fresh_key());
        let duplicate = ask.clone().labelled("a duplicate while it runs");
        let met = meet(probe, slow, &ask, &duplicate).await?;
        if met.other.is_success() {
            probe.is_of(&met.original, &met.other, "a duplicate", slow.is_telling)?;
        }
        match probe.policy().duplicate {
            Duplicate::Wait(at_most) => return waited(probe, slow, &met, at_most),
            Duplicate::Refuse if met.other.is_success() => {}
            Duplicate::Refuse => {
                probe.refuses(&met.other, Reason::InProgress, "a duplicate")?;
                if !says_when(&met.other) {
                    let judged = Judged::fail("the refusal has no Retry-After");
                    return Ok(judged.code(Code::RetryAfter));
                }
                return Ok(Judged::pass("it was told at once, and when to come back"));
            }
        }
    }
    Ok(
        Judged::fail("a duplicate waited for the answer, the profile says that it is told at once")
            .code(Code::WaitsWrong),
    )
}

fn waited(probe: &Probe<'_>, slow: &Slow, met: &Met, at_most: Duration) -> Ruling {
    if probe.is_told_to_wait(&met.other) && met.other.took < at_most {
        return Ok(Judged::fail(format!(
            "a duplicate was answered {} after {} ms, the profile says that it waits up to {}",
            met.other.status,
            met.other.took.as_millis(),
            humantime::format_duration(at_most)
        ))
        .code(Code::WaitsWrong));
    }
    let told = probe.replays_telling(&met.original, &met.other, "a duplicate", slow.is_telling)?;
    Ok(told.conclude("it waited and got the answer"))
}

pub(crate) async fn another_payload_is_refused_while_the_original_runs(
    probe: &Probe<'_>,
) -> Ruling {
    if !probe.plan().compares_bodies() {
        return Ok(Judged::not_applicable(
            "the profile does not compare bodies",
        ));
    }
    let slow = slow_enough(probe).await?;
    for _ in 0..TRIES {
        let ask = probe.ask("a new key").path(&slow.path);
        let ask = ask.key(&probe.fresh_key());
        let other = ask.clone().payload(probe.plan().other_payload.clone());
        let other = other.labelled("another payload while it runs");
        let met = meet(probe, slow, &ask, &other).await?;
        is_mismatch(probe, &met.original, &met.other, "another payload")?;
        if met.is_sooner {
            return Ok(Judged::pass("it was refused before the original ended"));
        }
    }
    let judged = Judged::fail("it was refused only after the original ended");
    Ok(judged.code(Code::WaitsWrong))
}

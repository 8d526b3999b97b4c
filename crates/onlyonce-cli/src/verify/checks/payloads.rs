//! What makes two requests the same: another meaning is refused, another spelling is not.

use onlyonce_core::Reason;

use crate::verify::answer::Answer;
use crate::verify::ask::Ask;
use crate::verify::cause::Code;
use crate::verify::check::Ruling;
use crate::verify::probe::Probe;
use crate::verify::report::Judged;

pub(crate) async fn another_payload_gets_what_the_profile_says(probe: &Probe<'_>) -> Ruling {
    let ask = probe.ask("a new key").key(&probe.fresh_key());
    let first = probe.run(&ask).await?;
    let other = ask
        .clone()
        .payload(probe.plan().other_payload.clone())
        .labelled("another payload under the same key");

    let answer = probe.send(&other).await?;

    if probe.plan().compares_bodies() {
        is_mismatch(probe, &first, &answer, "another payload")?;
    } else {
        let told = probe.replays(&first, &answer, "another payload")?;
        return Ok(told.conclude("the profile does not compare bodies, and it was replayed"));
    }
    unharmed(probe, &first, &ask).await
}

pub(crate) async fn another_query_is_another_request(probe: &Probe<'_>) -> Ruling {
    if !probe.policy().fingerprint.query {
        return Ok(Judged::not_applicable(
            "the profile does not compare queries",
        ));
    }
    let ask = probe.ask("a new key").key(&probe.fresh_key());
    let first = probe.run(&ask).await?;
    let other = ask
        .clone()
        .more_query("onlyonce=verify")
        .labelled("another query under the same key");

    let answer = probe.send(&other).await?;

    is_mismatch(probe, &first, &answer, "another query")?;
    unharmed(probe, &first, &ask).await
}

pub(crate) async fn another_spelling_of_the_same_json_is_a_retry(probe: &Probe<'_>) -> Ruling {
    if probe.policy().fingerprint.body == onlyonce_core::fingerprint::BodyRule::Bytes {
        return Ok(Judged::not_applicable(
            "the profile compares bodies by bytes",
        ));
    }
    let Some(respelled) = probe.plan().payload.respelled() else {
        return Ok(Judged::not_applicable("the body is no JSON object"));
    };
    let ask = probe.ask("a new key").key(&probe.fresh_key());
    let first = probe.run(&ask).await?;
    let other = ask.payload(respelled).labelled("the same JSON, respelled");

    let answer = probe.send(&other).await?;

    let told = probe.replays(&first, &answer, "the same JSON in another spelling")?;
    Ok(told.conclude("it was a retry"))
}

/// Holds `answer` to be the profile's refusal of another payload; says what it was instead.
pub(crate) fn is_mismatch(
    probe: &Probe<'_>,
    first: &Answer,
    answer: &Answer,
    what: &str,
) -> Result<(), Judged> {
    let policy = probe.policy();
    if answer.is_success() {
        let is_replay = answer.is_flagged(policy) == Some(true) || first.is_like(answer, policy);
        let did = if is_replay {
            "was given the first answer"
        } else {
            "was run"
        };
        let expected = policy.http.refusals.row(Reason::Mismatch).status;
        let judged = Judged::fail(format!("{what} {did}, the profile says {expected}"));
        return Err(if is_replay {
            judged
        } else {
            judged.code(Code::PayloadRuns)
        });
    }
    probe.refuses(answer, Reason::Mismatch, what)
}

/// A refusal changes nothing: the original is still replayed.
async fn unharmed(probe: &Probe<'_>, first: &Answer, ask: &Ask) -> Ruling {
    let retry = ask.clone().labelled("the first payload again");
    let answer = probe.send(&retry).await?;
    probe
        .replays(first, &answer, "the first payload after the refusal")
        .map_err(|judged| Judged {
            code: judged.code.or(Some(Code::RunsAgain)),
            ..judged
        })?;
    Ok(Judged::pass(
        "it was refused, and the original still replays",
    ))
}

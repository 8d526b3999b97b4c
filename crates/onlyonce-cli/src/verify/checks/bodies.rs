//! Bodies that stores get wrong: binary, empty, large.

use onlyonce_core::Reason;

use super::payloads::is_mismatch;
use crate::verify::answer::Answer;
use crate::verify::check::Ruling;
use crate::verify::payload::Payload;
use crate::verify::probe::Probe;
use crate::verify::report::Judged;

/// No policy's bound makes us send more than this.
const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Why a request whose body is no JSON object cannot be tried, if so.
fn has_no_place(probe: &Probe<'_>) -> Option<Judged> {
    let place = probe.plan().key_place.as_ref()?;
    Some(Judged::not_applicable(format!(
        "the key is at {place} of a JSON body"
    )))
}

pub(crate) async fn a_binary_request_replays_byte_for_byte(probe: &Probe<'_>) -> Ruling {
    if let Some(judged) = has_no_place(probe) {
        return Ok(judged);
    }
    let (first, judged) = twice(probe, Payload::binary(), "a binary body").await?;
    let is_text = std::str::from_utf8(&first.body).is_ok();
    Ok(if is_text && judged.because.ends_with("replays") {
        Judged {
            because: format!("{}; the answer itself is text", judged.because),
            ..judged
        }
    } else {
        judged
    })
}

pub(crate) async fn binary_payloads_are_not_compared_as_text(probe: &Probe<'_>) -> Ruling {
    if let Some(judged) = has_no_place(probe) {
        return Ok(judged);
    }
    if !probe.plan().compares_bodies() {
        return Ok(Judged::not_applicable(
            "the profile does not compare bodies",
        ));
    }
    let ask = probe.ask("a binary body").key(&probe.fresh_key());
    let ask = ask.payload(Payload::binary());
    let first = taken(probe.send(&ask).await?, "a binary body")?;
    let other = ask
        .payload(Payload::other_binary())
        .labelled("another binary body under the same key");

    let answer = probe.send(&other).await?;

    is_mismatch(probe, &first, &answer, "another binary payload")?;
    Ok(Judged::pass("it was refused"))
}

pub(crate) async fn a_request_without_a_body_replays(probe: &Probe<'_>) -> Ruling {
    if let Some(judged) = has_no_place(probe) {
        return Ok(judged);
    }
    let (_, judged) = twice(probe, Payload::empty(), "no body").await?;
    Ok(judged)
}

pub(crate) async fn a_large_request_replays(probe: &Probe<'_>) -> Ruling {
    let bytes = probe.policy().limits.request_bytes_max / 4 * 3;
    let body = probe.plan().payload.padded(bytes.min(REQUEST_BYTES_MAX));
    let label = format!("a body of {} bytes", body.bytes.len());
    let (_, judged) = twice(probe, body, &label).await?;
    Ok(judged)
}

pub(crate) async fn a_request_over_the_bound_never_runs_twice(probe: &Probe<'_>) -> Ruling {
    let bytes = probe.policy().limits.request_bytes_max.saturating_add(1);
    if bytes > REQUEST_BYTES_MAX {
        return Ok(Judged::not_applicable("the bound is too large to be tried"));
    }
    let body = probe.plan().payload.padded(bytes);
    let label = format!("a body of {bytes} bytes");
    let ask = probe.ask(&label).key(&probe.fresh_key()).payload(body);
    let Ok(first) = probe.try_send(&ask).await else {
        return Ok(Judged::inconclusive(
            "the server closed the connection while the body was sent",
        ));
    };
    let refusal = probe.policy().http.refusals.row(Reason::RequestTooLarge);
    if first.status == refusal.status {
        return Ok(Judged::pass("it was refused as too large"));
    }
    if !first.is_success() {
        return Ok(Judged::inconclusive(format!(
            "it was answered {}, neither run nor refused with {}",
            first.status, refusal.status
        )));
    }

    // The server takes more than the profile's default: then it must replay it too.
    let retry = probe.send(&ask.labelled("its retry")).await?;
    let told = probe.replays(&first, &retry, "its retry")?;
    Ok(told.conclude("the server takes larger requests, and replays them"))
}

/// Sends `body` twice under one key and once under another, to see whether the second was run.
async fn twice(probe: &Probe<'_>, body: Payload, label: &str) -> Result<(Answer, Judged), Judged> {
    let ask = probe
        .ask(label)
        .key(&probe.fresh_key())
        .payload(body.clone());
    let first = taken(probe.send(&ask).await?, label)?;
    let retry = probe.send(&ask.labelled("its retry")).await?;
    let other = probe.ask("the same, another key").key(&probe.fresh_key());
    let other = probe.send(&other.payload(body)).await?;

    let is_telling = !first.is_like(&other, probe.policy());
    let told = probe.replays_telling(&first, &retry, "its retry", is_telling)?;
    let judged = told.conclude("the endpoint takes it, and it replays");
    Ok((first, judged))
}

/// An endpoint need not take every kind of body.
fn taken(answer: Answer, label: &str) -> Result<Answer, Judged> {
    if answer.is_success() {
        return Ok(answer);
    }
    let status = answer.status;
    Err(match status {
        400..500 => Judged::not_applicable(format!(
            "the endpoint takes something else: it answers {status} to {label}"
        )),
        _ => Judged::inconclusive(format!("{label} was answered {status}")),
    })
}

//! How the server says no: the shape of its errors, and when to come back.

use onlyonce_core::Reason;

use crate::verify::answer::Answer;
use crate::verify::check::Ruling;
use crate::verify::probe::Probe;
use crate::verify::refusal::check_envelope;
use crate::verify::report::Judged;

pub(crate) async fn errors_have_the_shape_of_the_profile(probe: &Probe<'_>) -> Ruling {
    let mut refused = Vec::new();
    let bad = probe.ask("two keys").key(&probe.fresh_key());
    let bad = probe.send(&bad.key(&probe.fresh_key())).await?;
    refused.push((Reason::BadKey, bad));
    if probe.plan().compares_bodies() {
        let ask = probe.ask("a new key").key(&probe.fresh_key());
        probe.run(&ask).await?;
        let other = ask.payload(probe.plan().other_payload.clone());
        let other = other.labelled("another payload under the same key");
        refused.push((Reason::Mismatch, probe.send(&other).await?));
    }
    refused.retain(|(_, answer)| answer.status >= 400);
    if refused.is_empty() {
        return Ok(Judged::inconclusive("the server refused nothing"));
    }

    let rules = &probe.policy().http;
    for (reason, answer) in &refused {
        check_envelope(rules.envelope, answer, rules.refusals.row(*reason))
            .map_err(|problem| Judged::fail(format!("{}: {problem}", reason.name())))?;
    }
    let names: Vec<_> = refused.iter().map(|(reason, _)| reason.name()).collect();
    Ok(Judged::pass(format!("well formed: {}", names.join(", "))))
}

/// Judges every answer of the run so far.
pub(crate) async fn retry_after_is_at_least_a_second(probe: &Probe<'_>) -> Ruling {
    let journal = probe.journal();
    let seen = journal.retry_afters();
    if seen.is_empty() {
        return Ok(Judged::not_applicable("no answer had a Retry-After"));
    }
    for (sent, value) in seen {
        if !is_wait(value.to_str().unwrap_or_default()) {
            return Ok(Judged::fail(format!(
                "the answer to {sent}: Retry-After is neither a second or more nor a date"
            )));
        }
    }
    Ok(Judged::pass(format!("seen on {} answers", seen.len())))
}

/// Whether a value tells when to come back: whole seconds, or a date.
fn is_wait(value: &str) -> bool {
    match value.parse::<u64>() {
        Ok(seconds) => seconds >= 1,
        Err(_) => value.ends_with("GMT"),
    }
}

/// Whether an answer says when to come back.
pub(crate) fn says_when(answer: &Answer) -> bool {
    let value = answer.header(&http::header::RETRY_AFTER);
    value.is_some_and(is_wait)
}

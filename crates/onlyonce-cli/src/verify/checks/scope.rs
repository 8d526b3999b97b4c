//! Whose key it is, and where keys mean nothing.

use http::Method;
use onlyonce_core::Reason;
use onlyonce_core::policy::ScopePart;

use crate::verify::check::Ruling;
use crate::verify::probe::Probe;
use crate::verify::report::Judged;

pub(crate) async fn two_callers_do_not_share_a_key(probe: &Probe<'_>) -> Ruling {
    let others = &probe.plan().other_headers;
    if others.is_empty() {
        return Ok(Judged::not_applicable(
            "--other-header 'Authorization: …' would make a second caller",
        ));
    }
    if !probe.policy().http.scope.contains(&ScopePart::Caller) {
        return Ok(Judged::not_applicable("the profile keeps no callers apart"));
    }
    let other_ask = |label: &str| probe.ask(label).caller(others);
    probe
        .run(&other_ask("the other caller, a new key").key(&probe.fresh_key()))
        .await?;
    let key = probe.fresh_key();
    let first = probe.run(&probe.ask("one caller").key(&key)).await?;

    let answer = probe
        .send(&other_ask("the other caller, the same key").key(&key))
        .await?;

    let refusals = &probe.policy().http.refusals;
    if answer.status == refusals.row(Reason::OtherCredential).status {
        return Ok(Judged::pass("the other caller was refused"));
    }
    Ok(probe.runs_anew(&first, &answer, "the other caller"))
}

pub(crate) async fn methods_that_are_not_covered_pass_through(probe: &Probe<'_>) -> Ruling {
    let policy = probe.policy();
    if policy.http.methods.need(&Method::GET).is_some() {
        return Ok(Judged::not_applicable(
            "the profile covers safe methods too",
        ));
    }
    let ask = probe.ask("GET without a key").method(Method::GET);
    let keyed = ask.clone().key("").key(&probe.fresh_key());
    let keyed = keyed.labelled("GET with two bad key lines");

    // An endless stream is a good answer to GET, but none to compare.
    let (Ok(plain), Ok(keyed)) = (probe.try_send(&ask).await, probe.try_send(&keyed).await) else {
        return Ok(Judged::inconclusive("GET gave no whole answer"));
    };

    if keyed.is_flagged(policy) == Some(true) {
        return Ok(Judged::fail("GET got a replay"));
    }
    if plain.status == keyed.status {
        return Ok(Judged::pass(format!(
            "GET is answered {} with and without a key",
            plain.status
        )));
    }
    if keyed.status == policy.http.refusals.row(Reason::BadKey).status {
        return Ok(Judged::fail("GET was refused for its key"));
    }
    Ok(Judged::inconclusive(format!(
        "GET was answered {} without and {} with a key",
        plain.status, keyed.status
    )))
}

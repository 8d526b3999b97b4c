//! The heart of it: a new key runs, the same key replays, and a replay says so.

use onlyonce_core::policy::{BodyMarks, Mark};

use crate::verify::answer::Answer;
use crate::verify::check::Ruling;
use crate::verify::probe::Probe;
use crate::verify::report::Judged;

pub(crate) async fn a_new_key_runs_anew(probe: &Probe<'_>) -> Ruling {
    let soundings = &probe.soundings();
    Ok(probe.runs_anew(&soundings.first, &soundings.second, "another new key"))
}

pub(crate) async fn the_same_key_gets_the_same_answer(probe: &Probe<'_>) -> Ruling {
    let soundings = &probe.soundings();
    let retry = probe.ask("a retry").key(&soundings.key);

    let mut told = None;
    for label in ["a retry", "a second retry"] {
        let answer = probe.send(&retry.clone().labelled(label)).await?;
        told = Some(probe.replays(&soundings.first, &answer, label)?);
    }

    let told = told.ok_or_else(|| Judged::inconclusive("nothing was sent"))?;
    Ok(told.conclude("both retries got the first answer"))
}

pub(crate) async fn answers_and_replays_carry_the_marks(probe: &Probe<'_>) -> Ruling {
    let rules = &probe.policy().http;
    if rules.replay_marks.is_empty() && rules.first_marks.is_empty() && rules.body_marks.is_none() {
        return Ok(Judged::not_applicable("the profile has no marks"));
    }
    let key = probe.fresh_key();
    let ask = probe.ask("a new key").key(&key);

    let first = probe.run(&ask).await?;
    let replay = probe.send(&ask.labelled("a retry")).await?;

    marked(&first, &rules.first_marks, &key, "the first answer")?;
    if first.is_flagged(probe.policy()) == Some(true) {
        return Err(Judged::fail("the first answer says that it is a replay"));
    }
    marked(&replay, &rules.replay_marks, &key, "the replay")?;
    if let Some(marks) = &rules.body_marks {
        if first.members().is_none() {
            return Ok(Judged::not_applicable(
                "the profile marks JSON objects, and the answer is none",
            ));
        }
        marked_body(&replay, marks)?;
    }
    Ok(Judged::pass("all marks are there and well formed"))
}

/// Holds an answer to carry `marks`.
fn marked(answer: &Answer, marks: &[Mark], key: &str, what: &str) -> Result<(), Judged> {
    for mark in marks {
        let (name, expected) = match mark {
            Mark::Flag(name) => (name, "true"),
            Mark::Text(name, text) => (name, text.to_str().unwrap_or_default()),
            Mark::Key(name) => (name, "the key as it was sent"),
            Mark::Expires(name) | Mark::OriginalTime(name) => (name, "an RFC 3339 time"),
        };
        let Some(value) = answer.header(name) else {
            return Err(Judged::fail(format!("{what} has no {name}")));
        };
        let is_right = match mark {
            Mark::Flag(_) => value == "true",
            Mark::Text(_, text) => value.as_bytes() == text.as_bytes(),
            Mark::Key(_) => value == key,
            Mark::Expires(_) | Mark::OriginalTime(_) => is_time(value),
        };
        if !is_right {
            return Err(Judged::fail(format!("{what}: {name} is not {expected}")));
        }
    }
    Ok(())
}

fn marked_body(replay: &Answer, marks: &BodyMarks) -> Result<(), Judged> {
    let text =
        |name: &str| -> Option<String> { serde_json::from_str(replay.members()?.get(name)?).ok() };
    let wrong = |name: &str, expected: &str| {
        Judged::fail(format!("the replay's member {name:?} is not {expected}"))
    };
    let members = replay.members();
    if members.and_then(|it| Some(it.get(&marks.flag)? == "true")) != Some(true) {
        return Err(wrong(&marks.flag, "true"));
    }
    if !text(&marks.submitted_at).is_some_and(|time| is_time(&time)) {
        return Err(wrong(&marks.submitted_at, "an RFC 3339 time"));
    }
    if text(&marks.message).is_none_or(|message| message.is_empty()) {
        return Err(wrong(&marks.message, "a message"));
    }
    Ok(())
}

fn is_time(text: &str) -> bool {
    humantime::parse_rfc3339(text).is_ok()
}

//! What must hold after a kill and the client's retries. A pure function: its tests are stories made
//! by hand.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::plan::Kind;

/// What the ledger wrote down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) number: u64,
    pub(crate) what: String,
    /// The effect that was recognised by its key: then this is not another one.
    pub(crate) repeats: Option<u64>,
}

/// What the client heard in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// An answer.
    Answered(Value),
    /// That the outcome is unknown, and that it is not run again.
    Held,
    /// Nothing final, for as long as it asked; this is the last it heard.
    Unsettled(String),
}

/// What an operator saw of an outcome that is held, and could do about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) is_listed: bool,
    /// The client gets what the operator said.
    pub(crate) is_resolved: bool,
}

/// All that came of one operation.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) kills: usize,
    pub(crate) ending: Ending,
    pub(crate) hold: Option<Hold>,
    /// What each front says to a further retry.
    pub(crate) replays: Vec<Ending>,
    /// What was written down, after all of this.
    pub(crate) effects: Vec<Effect>,
}

impl Story {
    /// The effects, without what was recognised.
    pub(crate) fn made(&self) -> impl Iterator<Item = &Effect> {
        self.effects.iter().filter(|it| it.repeats.is_none())
    }
}

/// What is wrong with a story.
pub(crate) fn judge(kind: Kind, story: &Story) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for effect in story.made() {
        *times.entry(&effect.what).or_default() += 1;
    }
    let doubled = times.iter().filter(|(_, times)| **times > 1);
    wrong.extend(doubled.map(|(what, times)| format!("{what} happened {times} times")));
    match &story.ending {
        Ending::Answered(answer) => wrong.extend(unfounded(kind, story, answer)),
        Ending::Held if kind == Kind::Opaque => wrong.extend(unresolved(story)),
        Ending::Held => wrong.push("its outcome was left in doubt".to_owned()),
        Ending::Unsettled(last) => wrong.push(format!("it was not settled; last heard: {last}")),
    }
    if story.replays.iter().any(|it| it != &story.ending) && story.hold.is_none() {
        wrong.push(format!(
            "a further retry got another answer: {:?}",
            story.replays
        ));
    }
    let repeated = story.effects.len() - story.made().count();
    if kind == Kind::Steps && repeated > story.kills {
        wrong.push(format!(
            "{repeated} steps were run again after {} kills: only the one that was cut off may be",
            story.kills
        ));
    }
    wrong
}

/// An answer says what happened, and all of it did.
fn unfounded(kind: Kind, story: &Story, answer: &Value) -> Option<String> {
    let made = story.made().count();
    if made != kind.effects() {
        return Some(format!("it was answered with {made} effects"));
    }
    let last = story.made().last().map(|effect| effect.number);
    (answer["charge"].as_u64() != last)
        .then(|| format!("the answer {answer} is not that of the effect {last:?}"))
}

/// What is held must be seen by an operator, who can settle it.
fn unresolved(story: &Story) -> Option<String> {
    match &story.hold {
        Some(hold) if !hold.is_listed => Some("it is held, and no operator sees it".to_owned()),
        Some(hold) if !hold.is_resolved => Some("it is held, and cannot be resolved".to_owned()),
        Some(_) => None,
        None => Some("it is held, and nobody looked".to_owned()),
    }
}

#[cfg(test)]
mod tests;

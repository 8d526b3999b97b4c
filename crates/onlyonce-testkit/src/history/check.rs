//! The checker: puts the logs together, asks every rule, and names what was broken.

use std::time::Duration;

use super::ledger::{At, Call, Ledger};
use super::log::{Heard, What};
use super::record::History;
use super::report::{Report, Violation};
use super::rules;

/// Checks a recorded history against the rules of the protocol.
pub fn check(history: &History) -> Report {
    let ledger = Ledger::of(history);
    let mut case = Case {
        ledger: &ledger,
        history,
        report: count(history, &ledger),
    };
    for key in ledger.keys.keys() {
        rules::tenancy::check(&mut case, *key);
        rules::reads::check(&mut case, *key);
        rules::answers::check(&mut case, *key);
    }
    rules::runs::check(&mut case);
    rules::refusals::check(&mut case);
    rules::health::check(&mut case);
    rules::availability::check(&mut case);
    case.report
}

/// A history under examination.
pub(crate) struct Case<'h> {
    pub(crate) ledger: &'h Ledger<'h>,
    history: &'h History,
    report: Report,
}

/// A rule that was broken, before it is known for which key.
pub(crate) struct Broken {
    pub(crate) rule: &'static str,
    pub(crate) detail: String,
    pub(crate) events: Vec<At>,
}

impl Case<'_> {
    /// Takes down that a rule was broken.
    pub(crate) fn tell(&mut self, key: u32, broken: Broken) {
        let began = self.history.began();
        let mut events = broken.events;
        events.sort_by_key(|at| at.us);
        events.dedup();
        let lines = events
            .iter()
            .map(|at| self.history.logs[at.log].line(at.entry, began));
        self.report.tell(Violation {
            rule: broken.rule,
            key,
            detail: broken.detail,
            events: lines.collect(),
        });
    }
}

fn count(history: &History, ledger: &Ledger<'_>) -> Report {
    let ends = history.logs.iter().filter_map(|log| log.entries.last());
    let end = ends.map(|entry| entry.at).max().unwrap_or_default();
    let runs = || {
        let calls = ledger.calls.values();
        calls.filter_map(|call| call.run.as_ref())
    };
    let granted = ledger.tenures.values().filter_map(|it| it.granted());
    let mut report = Report {
        lasted: Duration::from_micros(end - history.began()),
        calls: ledger.calls.len() as u64,
        runs: runs().count() as u64,
        verbs: ledger.verbs,
        verbs_in_doubt: ledger.verbs_in_doubt,
        take_overs: granted.filter(|it| it.overtook.is_some()).count() as u64,
        endless: runs()
            .filter(|run| run.ended.is_none() && run.dropped.is_none())
            .count() as u64,
        clocks_apart: clocks_apart(history),
        faults: ledger.faults.clone(),
        ..Report::default()
    };
    for call in ledger.calls.values() {
        report.unanswered += u64::from(call.heard.is_none());
        *report.heard.entry(heard(call)).or_default() += 1;
    }
    report
}

fn heard(call: &Call<'_>) -> String {
    match call.heard {
        Some((_, Heard::Ran { stored: true, .. })) => "ran".to_owned(),
        Some((_, Heard::Ran { stored: false, .. })) => "ran, not stored".to_owned(),
        Some((_, Heard::Replayed { stored: true, .. })) => "replayed".to_owned(),
        Some((_, Heard::Replayed { stored: false, .. })) => "shared, not stored".to_owned(),
        Some((_, Heard::Refused(reason))) => reason.clone(),
        None if call.hung_up => "(hung up)".to_owned(),
        None => "(cut off)".to_owned(),
    }
}

fn clocks_apart(history: &History) -> Duration {
    let entries = history.logs.iter().filter_map(|log| log.entries.first());
    let ahead = entries.filter_map(|entry| match entry.what {
        What::Opened { wall, .. } => Some((wall * 1000).saturating_sub(entry.at)),
        What::Called { .. }
        | What::Sent { .. }
        | What::Replied { .. }
        | What::Started { .. }
        | What::Ended { .. }
        | What::Dropped { .. }
        | What::Heard { .. }
        | What::HungUp { .. }
        | What::Late { .. }
        | What::Closed
        | What::Fault(_) => None,
    });
    let ahead: Vec<_> = ahead.collect();
    let apart = ahead.iter().max().zip(ahead.iter().min());
    Duration::from_micros(apart.map_or(0, |(most, least)| most - least))
}

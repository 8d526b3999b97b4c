//! What happened in a round, as it was written down: every attempt of every client, every execution
//! of the upstream, every fault. Times are microseconds on one clock.

use std::fmt;

use serde::Serialize;

use crate::fault::Kind;
use crate::manner::Manner;

pub(crate) type Micros = u64;

/// What a gateway does with an operation whose lease lapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnLapse {
    /// It is never run again.
    Hold,
    /// It is run again.
    Rerun,
}

impl OnLapse {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Rerun => "rerun",
        }
    }
}

/// What a client heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The answer that this execution made, byte for byte.
    Done(u64),
    /// A success that no execution can have made.
    Garbled,
    /// Whether it happened is unknown; do not retry.
    Unknown,
    /// Any other answer: retry with the same key.
    Refused(u16),
    /// No answer: the connection failed, or the client's patience was over.
    Nothing,
}

/// One request of a client, with what came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) key: u64,
    pub(crate) gateway: usize,
    pub(crate) manner: Manner,
    pub(crate) sent: Micros,
    pub(crate) heard: Micros,
    pub(crate) answer: Answer,
}

/// One execution by the upstream; it has its effect when it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Execution {
    pub(crate) number: u64,
    pub(crate) key: u64,
    /// Whose upstream was asked.
    pub(crate) gateway: usize,
    pub(crate) started: Micros,
    pub(crate) ended: Option<Micros>,
}

/// Who is troubled by a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// One gateway, or its way to the store.
    Gateway(usize),
    /// The store, and so all gateways.
    Store,
    /// So few of a quorum's servers that nobody is to notice.
    Minority,
}

/// A fault that was injected, from just before its start to just after its end.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) kind: Kind,
    pub(crate) whom: Whom,
    pub(crate) from: Micros,
    pub(crate) to: Micros,
    /// How long after its end every gateway ran a new key again, if they did.
    pub(crate) back_after: Option<Micros>,
    /// What it was to do and did not.
    pub(crate) missed: Option<&'static str>,
}

/// A time in which this machine did not run what was due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    pub(crate) from: Micros,
    pub(crate) to: Micros,
}

/// All of a round.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) on_lapse: OnLapse,
    pub(crate) lease: Micros,
    /// Whether one process at a time uses the store: its claims lapse with it.
    pub(crate) has_one_owner: bool,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) executions: Vec<Execution>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) stalls: Vec<Stall>,
    /// Processes that ended without being stopped, in words.
    pub(crate) crashes: Vec<String>,
}

impl History {
    /// All that is known of a key, in order of time; for people.
    pub(crate) fn story(&self, key: u64) -> String {
        let mut lines = Vec::new();
        for it in self.attempts.iter().filter(|it| it.key == key) {
            let (to, at) = (it.gateway, seconds(it.heard));
            let how = it.manner;
            let text = format!(
                "sent to gateway {to} ({how:?}), heard {:?} at {at}",
                it.answer
            );
            lines.push((it.sent, text));
        }
        for it in self.executions.iter().filter(|it| it.key == key) {
            let ended = it.ended.map_or("never".to_owned(), seconds);
            let (number, by) = (it.number, it.gateway);
            let text = format!("execution {number} begins, for gateway {by}; ends {ended}");
            lines.push((it.started, text));
        }
        let first = lines.iter().map(|(at, _)| *at).min().unwrap_or(0);
        let last = lines.iter().map(|(at, _)| *at).max().unwrap_or(0);
        let near = |from: Micros, to: Micros| from <= last && to + self.lease >= first;
        for it in self.troubles.iter().filter(|it| near(it.from, it.to)) {
            let text = format!("{} of {:?} until {}", it.kind, it.whom, seconds(it.to));
            lines.push((it.from, text));
        }
        for it in self.stalls.iter().filter(|it| near(it.from, it.to)) {
            let text = format!("the machine stalls until {}", seconds(it.to));
            lines.push((it.from, text));
        }
        lines.sort();
        let lines = lines
            .iter()
            .map(|(at, text)| format!("  {} {text}", seconds(*at)));
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn seconds(at: Micros) -> String {
    format!("{:.3} s", at as f64 / 1e6)
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway(index) => write!(f, "gateway {index}"),
            Self::Store => f.write_str("the store"),
            Self::Minority => f.write_str("a minority of the servers"),
        }
    }
}

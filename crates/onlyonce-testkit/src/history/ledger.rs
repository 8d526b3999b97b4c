//! What the logs say, put together: every call with its run, every claim with its verbs, every
//! life with its troubles. Rules are asked of it; it decides nothing itself.

use std::collections::BTreeMap;

use super::clock::Micros;
use super::log::{CallId, Ending, Heard, Seen, Short, Terms};

mod build;
mod tenure;

pub(crate) use self::tenure::{Deed, Finish, Grant, Tenure};

/// How far the store's clock and its readings may be off, in microseconds: stores count
/// milliseconds, and some read the time once for several verbs.
pub(crate) const SLACK: Micros = 50_000;

/// An event: which log, which entry, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) us: Micros,
    pub(crate) log: usize,
    pub(crate) entry: usize,
}

/// From a moment to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from: Micros,
    pub(crate) to: Micros,
}

impl Window {
    pub(crate) fn meets(self, other: Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

#[derive(Default)]
pub(crate) struct Ledger<'h> {
    pub(crate) calls: BTreeMap<CallId, Call<'h>>,
    pub(crate) tenures: BTreeMap<Short, Tenure<'h>>,
    pub(crate) lives: Vec<Life>,
    /// Whether one process after the other used the store, and never two at a time.
    pub(crate) has_one_owner: bool,
    /// When the store was disturbed.
    pub(crate) store_faults: Vec<Window>,
    /// What belongs to each key.
    pub(crate) keys: BTreeMap<u32, Keyed<'h>>,
    /// When the last fault was over, if the driver said so.
    pub(crate) healed: Option<Micros>,
    /// Verbs that the store failed, or never answered.
    pub(crate) verbs_in_doubt: u64,
    pub(crate) verbs: u64,
    pub(crate) faults: BTreeMap<&'static str, u64>,
}

/// What belongs to one key.
#[derive(Default)]
pub(crate) struct Keyed<'h> {
    pub(crate) calls: Vec<CallId>,
    pub(crate) tenures: Vec<Short>,
    pub(crate) reads: Vec<Read<'h>>,
}

/// A reply that shows what is in the slot.
#[derive(Clone, Copy)]
pub(crate) struct Read<'h> {
    pub(crate) sent: At,
    pub(crate) replied: At,
    /// Nothing if the slot was empty.
    pub(crate) seen: Option<&'h Seen>,
}

/// One caller's request.
pub(crate) struct Call<'h> {
    pub(crate) id: CallId,
    pub(crate) key: u32,
    pub(crate) payload: u8,
    pub(crate) terms: Terms,
    pub(crate) by_hand: bool,
    pub(crate) sweep: bool,
    pub(crate) called: At,
    pub(crate) heard: Option<(At, &'h Heard)>,
    pub(crate) hung_up: bool,
    pub(crate) run: Option<Run<'h>>,
    /// The life it came to.
    pub(crate) life: usize,
}

/// One execution of a handler.
pub(crate) struct Run<'h> {
    pub(crate) token: Option<Short>,
    pub(crate) started: At,
    pub(crate) ended: Option<(At, &'h Ending)>,
    pub(crate) dropped: Option<At>,
}

impl Run<'_> {
    /// Whether its answer is one to store.
    pub(crate) fn is_storable(&self) -> bool {
        match self.ended {
            Some((_, Ending::Finished { storable, .. } | Ending::Panicked { storable })) => {
                *storable
            }
            Some((_, Ending::NotRun | Ending::Unknown)) | None => false,
        }
    }
}

/// One worker, from its start to its end.
pub(crate) struct Life {
    /// When it had opened the store.
    pub(crate) opened: Micros,
    /// When it ended in order.
    pub(crate) closed: Option<Micros>,
    /// When it was killed.
    pub(crate) killed: Option<Window>,
    /// When it was stopped, cut off or held up.
    pub(crate) troubles: Vec<Window>,
    /// When the store failed for it.
    pub(crate) failures: Vec<Micros>,
}

impl Life {
    /// From when on it may do nothing more.
    pub(crate) fn ended(&self) -> Micros {
        let killed = self.killed.map(|killed| killed.from);
        killed.or(self.closed).unwrap_or(Micros::MAX)
    }

    /// From when on it does nothing more.
    pub(crate) fn over(&self) -> Micros {
        let killed = self.killed.map(|killed| killed.to);
        killed.or(self.closed).unwrap_or(Micros::MAX)
    }
}

impl<'h> Ledger<'h> {
    /// The claim under which a call's handler ran.
    pub(crate) fn tenure_of_run(&self, call: CallId) -> Option<&Tenure<'h>> {
        let run = self.calls.get(&call)?.run.as_ref()?;
        self.tenures.get(&run.token?)
    }

    /// The run under a claim.
    pub(crate) fn run_of(&self, tenure: &Tenure<'_>) -> Option<&Run<'h>> {
        let run = self.calls.get(&tenure.call)?.run.as_ref()?;
        (run.token == Some(tenure.token)).then_some(run)
    }

    /// Whether anything but its own fault kept a worker from the store in `window`: it died or
    /// ended, was stopped or held up, or the store was disturbed.
    pub(crate) fn disturbed(&self, life: usize, window: Window) -> bool {
        let life = &self.lives[life];
        let over = life.killed.map(|it| it.from).or(life.closed);
        over.is_some_and(|at| at <= window.to)
            || life.troubles.iter().any(|it| it.meets(window))
            || self.store_faults.iter().any(|it| it.meets(window))
    }

    /// Whether the process of a claim was gone by then, of a store that only one can use at a time:
    /// the next one may take all its claims for lapsed.
    pub(crate) fn ended_with_its_owner(&self, tenure: &Tenure<'_>, by: Micros) -> bool {
        let life = self.calls.get(&tenure.call).map(|call| call.life);
        self.has_one_owner && life.is_some_and(|life| self.lives[life].ended() <= by)
    }

    /// When a run was over for certain: its end, or its process's.
    pub(crate) fn run_over(&self, call: &Call<'_>, run: &Run<'_>) -> Micros {
        let ended = run.ended.map(|(at, _)| at.us);
        let dropped = run.dropped.map(|at| at.us);
        ended
            .or(dropped)
            .unwrap_or_else(|| self.lives[call.life].over())
    }
}

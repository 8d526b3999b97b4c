//! When the keys end that this process remembers, in order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::key::Hint;
use onlyonce_core::{Record, Slot};

use super::KEYS_MAX;

/// How near two moments are that are the end of one record: the store's clock is another.
const SAME_END: Duration = Duration::from_secs(2);

/// Keys kept for equally long end in the order in which they were stored: no need to sort them.
#[derive(Default)]
pub(super) struct Due {
    pub(super) queues: BTreeMap<Alike, VecDeque<End>>,
    pub(super) keys: usize,
    /// How often the keys among them were replayed, that were.
    pub(super) replays: BTreeMap<Slot, u64>,
    /// When those among them were to end that an operator has forgotten.
    forgotten: BTreeMap<Slot, Duration>,
    /// How much longer those among them are kept that an operator has extended.
    extended: BTreeMap<Slot, Duration>,
}

/// What many keys have in common, kept once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Alike {
    pub(super) keep_for: Duration,
    pub(super) operation: Arc<str>,
    pub(super) holder: Arc<str>,
    /// Stored before this process started: these are put in order by themselves.
    pub(super) resumed: bool,
}

pub(super) struct End {
    pub(super) at: Duration,
    pub(super) slot: Slot,
    pub(super) hint: Hint,
    pub(super) more: Option<Box<More>>,
}

/// What most keys have nothing of.
#[derive(Default, PartialEq, Eq)]
pub(super) struct More {
    pub(super) actor: Option<Arc<str>>,
    pub(super) trace: Option<Arc<str>>,
    pub(super) intake: Option<Box<str>>,
    pub(super) resource: Option<Arc<str>>,
}

impl Due {
    pub(super) fn remember(&mut self, alike: Alike, end: End) {
        if self.keys < KEYS_MAX {
            let queue = self.queues.entry(alike).or_default();
            // At its end, but for one that is kept longer.
            let place = queue.partition_point(|it| it.at <= end.at);
            queue.insert(place, end);
            self.keys += 1;
        }
    }

    /// Takes out what is over by `now`, in order.
    pub(super) fn take_over(&mut self, now: Duration) -> Vec<(Alike, End, u64)> {
        let mut over = Vec::new();
        self.queues.retain(|alike, queue| {
            while let Some(end) = queue.pop_front_if(|end| end.at <= now) {
                over.push((alike.clone(), end));
            }
            !queue.is_empty()
        });
        self.keys -= over.len();
        over.retain(|(_, end)| !self.was_forgotten(end));
        self.forgotten.retain(|_, at| *at + SAME_END > now);
        over.sort_by_key(|(_, end)| end.at);
        let over = self.without_extended(over);
        let told = over.into_iter().map(|(alike, end)| {
            let replays = self.replays.remove(&end.slot).unwrap_or_default();
            (alike, end, replays)
        });
        told.collect()
    }

    fn was_forgotten(&mut self, end: &End) -> bool {
        let is_same = |at: &Duration| at.abs_diff(end.at) <= SAME_END;
        let was = self.forgotten.get(&end.slot).is_some_and(is_same);
        if was {
            self.forgotten.remove(&end.slot);
            self.replays.remove(&end.slot);
            self.extended.remove(&end.slot);
        }
        was
    }

    /// Those that are over; what is kept longer is remembered for then.
    fn without_extended(&mut self, over: Vec<(Alike, End)>) -> Vec<(Alike, End)> {
        let mut ended = Vec::with_capacity(over.len());
        for (alike, end) in over {
            match self.extended.remove(&end.slot) {
                None => ended.push((alike, end)),
                Some(by) => {
                    let keep_for = alike.keep_for.saturating_add(by);
                    let at = end.at.saturating_add(by);
                    self.remember(Alike { keep_for, ..alike }, End { at, ..end });
                }
            }
        }
        ended
    }

    pub(super) fn forgotten(&mut self, slot: Slot, at: Duration) {
        if self.forgotten.len() < self.keys {
            self.forgotten.insert(slot, at);
        }
    }

    pub(super) fn extended(&mut self, slot: Slot, by: Duration) {
        if self.extended.len() < self.keys {
            let sum = self.extended.entry(slot).or_default();
            *sum = sum.saturating_add(by);
        }
    }

    pub(super) fn replayed(&mut self, slot: Slot, number: u64) {
        if self.replays.len() < KEYS_MAX || self.replays.contains_key(&slot) {
            let known = self.replays.entry(slot).or_default();
            *known = number.max(*known);
        }
    }
}

/// When a record of the store ends, and how often it was replayed.
pub(super) fn resumed(slot: Slot, record: &Record, now: Duration) -> (Alike, End, u64) {
    let meta = &record.meta;
    let since = record.completed_at.unwrap_or(record.created_at);
    let alike = Alike {
        keep_for: record.expires_at.since(since),
        operation: Arc::clone(&meta.operation),
        holder: Arc::clone(&meta.holder),
        resumed: true,
    };
    let resource = record
        .response()
        .and_then(|response| response.resource.as_deref());
    let more = More {
        actor: meta.actor.clone(),
        trace: meta.trace.clone(),
        intake: None,
        resource: resource.map(Into::into),
    };
    let end = End {
        at: now.saturating_add(record.keep_left),
        slot,
        hint: meta.hint,
        more: (more != More::default()).then(|| Box::new(more)),
    };
    (alike, end, record.replays)
}

//! Tells when a key's time is over. A store drops what has expired without a word, so whoever
//! stored a key remembers when that will be; bounded, and only while somebody wants to know. What was
//! stored before a restart is found again in the store: see `resume`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use onlyonce_core::key::Hint;
use onlyonce_core::{About, Clock, Event, Meta, Record, Slot, Subscriber, SystemClock};

#[cfg(test)]
mod tests;

/// Keys remembered at most; the end of further ones is counted by the metrics only.
pub(crate) const KEYS_MAX: usize = 100_000;
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Ends {
    clock: SystemClock,
    concerned: Vec<Arc<dyn Subscriber>>,
    due: Mutex<Due>,
}

/// Keys kept for equally long end in the order in which they were stored: no need to sort them.
#[derive(Default)]
struct Due {
    queues: BTreeMap<Alike, VecDeque<End>>,
    keys: usize,
    /// How often the keys among them were replayed, that were.
    replays: BTreeMap<Slot, u64>,
}

/// What many keys have in common, kept once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    keep_for: Duration,
    operation: Arc<str>,
    holder: Arc<str>,
    /// Stored before this process started: these are put in order by themselves.
    resumed: bool,
}

struct End {
    at: Duration,
    slot: Slot,
    hint: Hint,
    more: Option<Box<More>>,
}

/// What most keys have nothing of.
#[derive(Default, PartialEq, Eq)]
struct More {
    actor: Option<Arc<str>>,
    trace: Option<Arc<str>>,
    intake: Option<Box<str>>,
    resource: Option<Arc<str>>,
}

impl Ends {
    /// Tells `concerned`, for as long as somebody holds what this returns.
    pub(crate) fn start(concerned: Vec<Arc<dyn Subscriber>>) -> Arc<Self> {
        let ends = Arc::new(Self {
            clock: SystemClock::new(),
            concerned,
            due: Mutex::default(),
        });
        tokio::spawn(look(Arc::downgrade(&ends)));
        ends
    }

    fn tell_due(&self) {
        let now = self.clock.now();
        let over = {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            due.take_over(now)
        };
        for (alike, end, replays) in over {
            self.tell(&alike, end, replays, now);
        }
    }

    /// Remembers what the store has from before this process started.
    pub(crate) fn resume(&self, records: Vec<(Slot, Record)>) {
        let now = self.clock.now();
        let mut found: Vec<_> = records
            .into_iter()
            .map(|(slot, record)| resumed(slot, &record, now))
            .collect();
        found.sort_by_key(|(_, end, _)| end.at);
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        for (alike, end, replays) in found {
            if replays > 0 {
                due.replays.insert(end.slot, replays);
            }
            due.remember(alike, end);
        }
    }

    fn tell(&self, alike: &Alike, end: End, replays: u64, now: Duration) {
        let more = end.more.map(|more| *more).unwrap_or_default();
        let about = About {
            slot: &end.slot,
            meta: &Arc::new(Meta {
                hint: end.hint,
                operation: Arc::clone(&alike.operation),
                actor: more.actor,
                holder: Arc::clone(&alike.holder),
                trace: more.trace,
                credential: None,
            }),
            fingerprint: None,
            intake: more.intake.as_deref(),
            route: None,
        };
        let event = Event::Expired {
            keep_for: alike.keep_for,
            lifetime: alike.keep_for + now.saturating_sub(end.at),
            forgotten: false,
            replays,
            resource: more.resource,
        };
        for concerned in &self.concerned {
            concerned.on_event(&about, &event);
        }
    }
}

impl Due {
    fn remember(&mut self, alike: Alike, end: End) {
        if self.keys < KEYS_MAX {
            self.queues.entry(alike).or_default().push_back(end);
            self.keys += 1;
        }
    }

    /// Takes out what is over by `now`, in order.
    fn take_over(&mut self, now: Duration) -> Vec<(Alike, End, u64)> {
        let mut over = Vec::new();
        self.queues.retain(|alike, queue| {
            while let Some(end) = queue.pop_front_if(|end| end.at <= now) {
                over.push((alike.clone(), end));
            }
            !queue.is_empty()
        });
        self.keys -= over.len();
        over.sort_by_key(|(_, end)| end.at);
        let told = over.into_iter().map(|(alike, end)| {
            let replays = self.replays.remove(&end.slot).unwrap_or_default();
            (alike, end, replays)
        });
        told.collect()
    }

    fn replayed(&mut self, slot: Slot, number: u64) {
        if self.replays.len() < KEYS_MAX || self.replays.contains_key(&slot) {
            let known = self.replays.entry(slot).or_default();
            *known = number.max(*known);
        }
    }
}

/// When a record of the store ends, and how often it was replayed.
fn resumed(slot: Slot, record: &Record, now: Duration) -> (Alike, End, u64) {
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

async fn look(ends: Weak<Ends>) {
    while let Some(ends) = ends.upgrade() {
        ends.tell_due();
        drop(ends);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Subscriber for Ends {
    fn on_event(&self, about: &About<'_>, event: &Event) {
        if let Event::ReplayCounted {
            number: Some(number),
            ..
        } = event
        {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            due.replayed(*about.slot, *number);
            return;
        }
        let Event::Stored {
            keep_for, resource, ..
        } = event
        else {
            return;
        };
        let meta = about.meta;
        let alike = Alike {
            keep_for: *keep_for,
            operation: Arc::clone(&meta.operation),
            holder: Arc::clone(&meta.holder),
            resumed: false,
        };
        let more = More {
            actor: meta.actor.clone(),
            trace: meta.trace.clone(),
            intake: about.intake.map(Into::into),
            resource: resource.clone(),
        };
        let end = End {
            at: self.clock.now().saturating_add(*keep_for),
            slot: *about.slot,
            hint: meta.hint,
            more: (more != More::default()).then(|| Box::new(more)),
        };
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.remember(alike, end);
    }
}

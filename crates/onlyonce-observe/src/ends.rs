//! Tells when a key's time is over. A store drops what has expired without a word, so whoever
//! stored a key remembers when that will be; bounded, and only while somebody wants to know.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use onlyonce_core::key::Hint;
use onlyonce_core::{About, Clock, Event, Meta, Slot, Subscriber, SystemClock};

#[cfg(test)]
mod tests;

/// Keys remembered at most; the end of further ones is counted by the metrics only.
const KEYS_MAX: usize = 100_000;
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
}

/// What many keys have in common, kept once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    keep_for: Duration,
    operation: Arc<str>,
    holder: Arc<str>,
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
        for (alike, end) in over {
            self.tell(&alike, end, now);
        }
    }

    fn tell(&self, alike: &Alike, end: End, now: Duration) {
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
    fn take_over(&mut self, now: Duration) -> Vec<(Alike, End)> {
        let mut over = Vec::new();
        self.queues.retain(|alike, queue| {
            while let Some(end) = queue.pop_front_if(|end| end.at <= now) {
                over.push((alike.clone(), end));
            }
            !queue.is_empty()
        });
        self.keys -= over.len();
        over.sort_by_key(|(_, end)| end.at);
        over
    }
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

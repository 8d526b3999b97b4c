//! Tells when a key's time is over. A store drops what has expired without a word, so whoever
//! stored a key remembers when that will be; bounded, and only while somebody wants to know.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use onlyonce_core::{About, Clock, Event, Meta, Slot, Subscriber, SystemClock};

/// Keys remembered at most; the end of further ones is counted by the metrics only.
const KEYS_MAX: usize = 100_000;
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Ends {
    clock: SystemClock,
    concerned: Vec<Arc<dyn Subscriber>>,
    due: Mutex<BTreeMap<(Duration, Slot), End>>,
}

struct End {
    meta: Arc<Meta>,
    intake: Option<Box<str>>,
    keep_for: Duration,
}

impl Ends {
    /// Tells `concerned`, for as long as somebody holds what this returns.
    pub(super) fn start(concerned: Vec<Arc<dyn Subscriber>>) -> Arc<Self> {
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
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let mut over = Vec::new();
        while let Some(first) = due.first_entry() {
            let (at, slot) = *first.key();
            if at > now {
                break;
            }
            over.push((at, slot, first.remove()));
        }
        drop(due);
        for (at, slot, end) in over {
            let about = About {
                slot: &slot,
                meta: &end.meta,
                fingerprint: None,
                intake: end.intake.as_deref(),
            };
            let event = Event::Expired {
                keep_for: end.keep_for,
                lifetime: end.keep_for + now.saturating_sub(at),
                forgotten: false,
            };
            for concerned in &self.concerned {
                concerned.on_event(&about, &event);
            }
        }
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
        let Event::Stored { keep_for, .. } = event else {
            return;
        };
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        if due.len() < KEYS_MAX {
            let end = End {
                meta: Arc::clone(about.meta),
                intake: about.intake.map(Into::into),
                keep_for: *keep_for,
            };
            due.insert((self.clock.now() + *keep_for, *about.slot), end);
        }
    }
}

//! Tells when a key's time is over. A store that hands over what a sweep has dropped is swept when that
//! is due, and each end is told by the process that is handed it: see `awaited`. Other stores do
//! not say what they drop, so the process that stored a key remembers when its time is over; bounded, and
//! only while a subscriber wants to know. What was stored before a restart is found again in the store:
//! see `resume`.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use onlyonce_core::operate::Ended;
use onlyonce_core::{About, Clock, Event, Meta, Record, Slot, Subscriber, SystemClock};
use tokio::sync::Notify;

use self::awaited::Awaited;
use self::due::{Alike, Due, End, More, resumed};

mod awaited;
mod due;
#[cfg(test)]
mod tests;

/// Keys remembered at most; the end of further ones is counted by the metrics only.
pub(crate) const KEYS_MAX: usize = 100_000;
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Ends {
    clock: SystemClock,
    told: Told,
    due: Mutex<Due>,
    /// Where the store hands over what has ended.
    awaited: Option<Awaited>,
}

/// Who is told.
pub(crate) struct Told {
    /// Of what this process remembers: those who do not count by themselves.
    pub(crate) remembered: Vec<Arc<dyn Subscriber>>,
    /// Of what the store hands over.
    pub(crate) handed: Vec<Arc<dyn Subscriber>>,
}

impl Ends {
    /// Tells `told`, for as long as somebody holds what this returns. `sweep` asks for a sweep of a store
    /// that hands over what has ended.
    pub(crate) fn start(told: Told, sweep: Option<Arc<Notify>>) -> Arc<Self> {
        let ends = Arc::new(Self {
            clock: SystemClock::new(),
            told,
            due: Mutex::default(),
            awaited: sweep.map(Awaited::new),
        });
        tokio::spawn(look(Arc::downgrade(&ends)));
        ends
    }

    /// Whether the store hands over what has ended.
    pub(crate) fn are_handed_over(&self) -> bool {
        self.awaited.is_some()
    }

    /// Tells everything at once whose time is over: the process ends.
    pub(crate) fn close(&self) {
        self.tell_due();
    }

    /// An operator keeps a record longer by so much, which is so long now.
    pub(crate) fn extended(&self, slot: &Slot, keep_left: Duration, by: Duration) {
        match &self.awaited {
            Some(awaited) => awaited.look_at(self.clock.now().saturating_add(keep_left)),
            None => {
                let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
                due.extended(*slot, by);
            }
        }
    }

    /// An operator has forgotten a record that would have ended after `left`: that was told.
    fn forgotten(&self, slot: Slot, left: Duration) {
        match &self.awaited {
            Some(awaited) => awaited.forget(&slot),
            None => {
                let at = self.clock.now().saturating_add(left);
                let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
                due.forgotten(slot, at);
            }
        }
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
        if let Some(awaited) = &self.awaited {
            for (_, record) in &records {
                awaited.look_at(now.saturating_add(record.keep_left));
            }
            return;
        }
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
        for concerned in &self.told.remembered {
            concerned.on_event(&about, &event);
        }
    }
}

async fn look(ends: Weak<Ends>) {
    while let Some(ends) = ends.upgrade() {
        match &ends.awaited {
            Some(awaited) => awaited.look(ends.clock.now()),
            None => ends.tell_due(),
        }
        drop(ends);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Subscriber for Ends {
    /// The end of a record that a sweep has dropped, no matter which process stored it.
    fn on_ended(&self, ended: &Ended) {
        let awaited = self.awaited.as_ref();
        let intake = awaited.and_then(|awaited| awaited.intake_of(&ended.slot));
        let about = About {
            slot: &ended.slot,
            meta: &ended.meta,
            fingerprint: Some(&ended.fingerprint),
            intake: intake.as_deref(),
            route: None,
        };
        let resource = ended.response.as_ref();
        let event = Event::Expired {
            keep_for: ended.keep_for,
            lifetime: ended.lifetime,
            forgotten: false,
            replays: ended.replays,
            resource: resource
                .and_then(|response| response.resource.as_deref())
                .map(Into::into),
        };
        for told in &self.told.handed {
            told.on_event(&about, &event);
        }
    }

    fn wants_ended(&self) -> bool {
        true
    }

    fn on_event(&self, about: &About<'_>, event: &Event) {
        if let Event::Expired {
            forgotten: true,
            keep_for,
            lifetime,
            ..
        } = event
        {
            self.forgotten(*about.slot, keep_for.saturating_sub(*lifetime));
            return;
        }
        if let Some(awaited) = &self.awaited {
            if let Event::Stored { keep_for, .. } = event {
                let at = self.clock.now().saturating_add(*keep_for);
                awaited.stored(*about.slot, about.intake, at);
            }
            return;
        }
        if self.told.remembered.is_empty() {
            return;
        }
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

//! What a server says to one client on one stream. It is kept within bounds, so that a client whose connection
//! broke off can come back and read on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::budget::{Budget, Kept};
use super::words;
use crate::message::Id;
use crate::pending::lock;

/// Messages that a stream keeps beside its answers; beyond them, or beyond its share of the budget, the oldest goes.
const EVENTS_MAX: usize = 1000;

/// One stream.
pub(super) struct Outlet {
    pub(super) number: u64,
    /// Whether messages before the answers can reach its client: not in one piece of JSON.
    pub(super) is_stream: bool,
    budget: Arc<Budget>,
    log: Mutex<Log>,
    changed: watch::Sender<()>,
}

struct Log {
    events: VecDeque<Event>,
    /// The number of the latest event.
    latest: u64,
    bytes: usize,
    /// How much of it is no answer, in messages and in bytes: that can go.
    told: usize,
    told_bytes: usize,
    /// The last event that a reader got.
    handed: u64,
    /// Answers that are still to come.
    owed: usize,
    is_done: bool,
    /// Readers so far: the latest one reads.
    readers: u64,
    is_read: bool,
}

struct Event {
    number: u64,
    message: Arc<Kept>,
    is_answer: bool,
}

impl Outlet {
    /// A stream that ends after `owed` answers; one that owes none ends when it is told to.
    pub(super) fn new(
        number: u64,
        owed: usize,
        is_stream: bool,
        budget: &Arc<Budget>,
    ) -> Arc<Self> {
        let log = Log {
            events: VecDeque::new(),
            latest: 0,
            bytes: 0,
            told: 0,
            told_bytes: 0,
            handed: 0,
            owed,
            is_done: false,
            readers: 0,
            is_read: false,
        };
        Arc::new(Self {
            number,
            is_stream,
            budget: Arc::clone(budget),
            log: Mutex::new(log),
            changed: watch::Sender::new(()),
        })
    }

    /// Adds a message that is no answer. What its client does not read makes room for it; it goes too if other
    /// streams hold all that may be held.
    pub(super) fn tell(&self, message: &str) {
        self.change(|log| {
            let bytes_max = self.budget.share().saturating_sub(message.len());
            while log.told >= EVENTS_MAX || log.told_bytes > bytes_max {
                if !log.drop_oldest() {
                    break;
                }
            }
            loop {
                if let Some(kept) = self.budget.keep(message) {
                    return log.push(kept, false);
                }
                if !log.drop_oldest() {
                    return;
                }
            }
        });
    }

    /// Adds the answer to the request of this id; the last one ends the stream. An answer never goes for another
    /// message, but one that cannot be held becomes an error.
    pub(super) fn answer(&self, id: &Id, message: &str) {
        self.change(|log| {
            let kept = self.budget.keep(message);
            let kept = kept.unwrap_or_else(|| self.budget.keep_own(&words::not_kept(id)));
            log.push(kept, true);
            log.settle();
        });
    }

    /// One of its answers will not come.
    pub(super) fn give_up(&self) {
        self.change(Log::settle);
    }

    /// Ends it.
    pub(super) fn finish(&self) {
        self.change(|log| log.is_done = true);
    }

    pub(super) fn is_done(&self) -> bool {
        lock(&self.log).is_done
    }

    pub(super) fn is_read(&self) -> bool {
        lock(&self.log).is_read
    }

    pub(super) fn bytes(&self) -> usize {
        lock(&self.log).bytes
    }

    /// Reads on after an event, or after the last one that was handed out. A former reader ends: its client
    /// has a new connection.
    pub(super) fn read(
        self: &Arc<Self>,
        after: Option<u64>,
        on_end: impl FnOnce() + Send + 'static,
    ) -> Reader {
        let changed = self.changed.subscribe();
        let mut log = lock(&self.log);
        log.readers += 1;
        log.is_read = true;
        // No event that is still to come can have been read.
        let reader = Reader {
            outlet: Arc::clone(self),
            number: log.readers,
            next: after.unwrap_or(log.handed).min(log.latest) + 1,
            changed,
            on_end: Some(Box::new(on_end)),
        };
        drop(log);
        self.changed.send_replace(());
        reader
    }

    fn change(&self, change: impl FnOnce(&mut Log)) {
        change(&mut lock(&self.log));
        self.changed.send_replace(());
    }
}

impl Log {
    fn push(&mut self, message: Arc<Kept>, is_answer: bool) {
        self.latest += 1;
        self.bytes += message.len();
        if !is_answer {
            self.told += 1;
            self.told_bytes += message.len();
        }
        self.events.push_back(Event {
            number: self.latest,
            message,
            is_answer,
        });
    }

    /// Drops the oldest message that is no answer; returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let oldest = self.events.iter().position(|event| !event.is_answer);
        let Some(oldest) = oldest.and_then(|at| self.events.remove(at)) else {
            return false;
        };
        let bytes = oldest.message.len();
        self.bytes -= bytes;
        self.told_bytes -= bytes;
        self.told -= 1;
        true
    }

    /// The first event from this number on.
    fn first_from(&self, number: u64) -> Option<&Event> {
        let at = self.events.partition_point(|event| event.number < number);
        self.events.get(at)
    }

    fn settle(&mut self) {
        self.owed = self.owed.saturating_sub(1);
        self.is_done |= self.owed == 0;
    }
}

/// Reads a stream, event by event.
pub(super) struct Reader {
    outlet: Arc<Outlet>,
    number: u64,
    next: u64,
    changed: watch::Receiver<()>,
    on_end: Option<Box<dyn FnOnce() + Send>>,
}

impl Reader {
    /// The next event and its number; nothing at the end.
    pub(super) async fn next(&mut self) -> Option<(u64, Arc<Kept>)> {
        loop {
            self.changed.borrow_and_update();
            {
                let mut log = lock(&self.outlet.log);
                if log.readers != self.number {
                    return None;
                }
                if let Some(event) = log.first_from(self.next) {
                    let (number, message) = (event.number, Arc::clone(&event.message));
                    log.handed = log.handed.max(number);
                    self.next = number + 1;
                    return Some((number, message));
                }
                if log.is_done {
                    return None;
                }
            }
            // Its sender is in the outlet, which is held here.
            if self.changed.changed().await.is_err() {
                return None;
            }
        }
    }

    /// The stream's number: the first half of its events' ids.
    pub(super) fn stream(&self) -> u64 {
        self.outlet.number
    }

    /// The event that it reads on after: the second half.
    pub(super) fn position(&self) -> u64 {
        self.next - 1
    }

    /// Whether nothing more will come.
    pub(super) fn is_at_end(&self) -> bool {
        let log = lock(&self.outlet.log);
        log.is_done && log.first_from(self.next).is_none()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut log = lock(&self.outlet.log);
        if log.readers == self.number {
            log.is_read = false;
        }
        drop(log);
        if let Some(on_end) = self.on_end.take() {
            on_end();
        }
    }
}

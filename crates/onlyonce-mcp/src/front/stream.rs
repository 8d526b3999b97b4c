//! What a server says to one client on one stream. It is kept within bounds, so that a client whose connection
//! broke off can come back and read on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::pending::lock;

/// Messages that a stream keeps; beyond them the oldest goes.
const EVENTS_MAX: usize = 1000;

/// One stream.
pub(super) struct Outlet {
    pub(super) number: u64,
    /// Whether messages before the answers can reach its client: not in one piece of JSON.
    pub(super) is_stream: bool,
    log: Mutex<Log>,
    changed: watch::Sender<()>,
}

struct Log {
    /// The number of the first event that is kept.
    first: u64,
    events: VecDeque<Arc<str>>,
    bytes: usize,
    /// The last event that a reader got.
    handed: u64,
    /// Answers that are still to come.
    owed: usize,
    is_done: bool,
    /// Readers so far: the latest one reads.
    readers: u64,
    is_read: bool,
}

impl Outlet {
    /// A stream that ends after `owed` answers; one that owes none ends when it is told to.
    pub(super) fn new(number: u64, owed: usize, is_stream: bool) -> Arc<Self> {
        let log = Log {
            first: 1,
            events: VecDeque::new(),
            bytes: 0,
            handed: 0,
            owed,
            is_done: false,
            readers: 0,
            is_read: false,
        };
        Arc::new(Self {
            number,
            is_stream,
            log: Mutex::new(log),
            changed: watch::Sender::new(()),
        })
    }

    /// Adds a message that is no answer.
    pub(super) fn tell(&self, message: &str) {
        self.change(|log| log.push(message));
    }

    /// Adds an answer; the last one ends the stream.
    pub(super) fn answer(&self, message: &str) {
        self.change(|log| {
            log.push(message);
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
        let last = log.first + log.events.len() as u64 - 1;
        let reader = Reader {
            outlet: Arc::clone(self),
            number: log.readers,
            next: after.unwrap_or(log.handed).min(last) + 1,
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
    fn push(&mut self, message: &str) {
        self.bytes += message.len();
        self.events.push_back(message.into());
        if self.events.len() > EVENTS_MAX
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.len();
            self.first += 1;
        }
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
    pub(super) async fn next(&mut self) -> Option<(u64, Arc<str>)> {
        loop {
            self.changed.borrow_and_update();
            {
                let mut log = lock(&self.outlet.log);
                if log.readers != self.number {
                    return None;
                }
                self.next = self.next.max(log.first);
                let at = usize::try_from(self.next - log.first).unwrap_or(usize::MAX);
                if let Some(event) = log.events.get(at).cloned() {
                    let number = self.next;
                    log.handed = log.handed.max(number);
                    self.next += 1;
                    return Some((number, event));
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
        log.is_done && self.next >= log.first + log.events.len() as u64
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

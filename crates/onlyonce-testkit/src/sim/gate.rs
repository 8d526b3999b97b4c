//! Where a process stops: everything that crosses the edge of a process (a verb, its reply, a
//! handler's progress, an answer) passes its gate.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// Open, closed for a while, or closed for ever. Wakes in the order of arrival: a watch channel
/// would wake in a random one, and a seed would have many histories.
pub(super) struct Gate {
    position: AtomicU8,
    turned: Notify,
}

const OPEN: u8 = 0;
const PAUSED: u8 = 1;
const CRASHED: u8 = 2;

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            position: AtomicU8::new(OPEN),
            turned: Notify::new(),
        }
    }

    /// Waits while the process is paused; for ever once it crashed.
    pub(super) async fn pass(&self) {
        self.reach(OPEN).await;
    }

    /// Returns when the process has crashed.
    pub(super) async fn crashed(&self) {
        self.reach(CRASHED).await;
    }

    /// One thread runs everything, so the gate does not turn between looking and waiting.
    async fn reach(&self, wanted: u8) {
        while !self.is(wanted) {
            self.turned.notified().await;
        }
    }

    pub(super) fn is_crashed(&self) -> bool {
        self.is(CRASHED)
    }

    pub(super) fn pause(&self) {
        self.turn(OPEN, PAUSED);
    }

    pub(super) fn resume(&self) {
        self.turn(PAUSED, OPEN);
    }

    pub(super) fn crash(&self) {
        self.position.store(CRASHED, Ordering::Relaxed);
        self.turned.notify_waiters();
    }

    fn is(&self, position: u8) -> bool {
        self.position.load(Ordering::Relaxed) == position
    }

    fn turn(&self, from: u8, to: u8) {
        if self.is(from) {
            self.position.store(to, Ordering::Relaxed);
            self.turned.notify_waiters();
        }
    }
}

//! What every part of the store speaks to: the server, in statements, and those who wait.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Clock, Slot, SystemClock};
use tokio::sync::mpsc;

use super::lines::Lines;
use super::statements::Statements;
use super::waiting::Waiting;
use crate::shared::Replaced;

pub(super) struct Server {
    pub(super) lines: Arc<Lines>,
    pub(super) statements: Arc<Statements>,
    pub(super) waiting: Arc<Waiting>,
    /// Where a claim's end is announced to other processes, if it is.
    pub(super) announcements: Option<mpsc::UnboundedSender<Slot>>,
    pub(super) clock: SystemClock,
    pub(super) replaced: Replaced,
}

impl Server {
    pub(super) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// The claim in this slot is over: wakes who waits here, and has the others told.
    pub(super) fn settled(&self, slot: Slot) {
        self.waiting.slots.wake(&slot);
        if let Some(announcements) = &self.announcements {
            // Nobody announces any more once the store closes; then everyone finds out by asking.
            let _ = announcements.send(slot);
        }
    }
}

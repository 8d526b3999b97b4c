//! Who waits for a slot to change, in a store whose changes all happen in its own process.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::slot::{Slot, SlotMap};

/// The slots somebody waits for. A slot nobody waits for takes no room.
#[derive(Default)]
pub struct Waiters {
    waiting: SlotMap<Arc<Notify>>,
}

impl Waiters {
    /// What to wait on for the next change of `slot`. Who takes it looks at the slot again once it
    /// is registered there: a change in between is not missed.
    pub fn join(&mut self, slot: &Slot) -> Arc<Notify> {
        Arc::clone(self.waiting.entry(*slot).or_default())
    }

    /// Ends a wait that was not ended by a change, and forgets the slot if it was the last one.
    pub fn leave(&mut self, slot: &Slot, joined: &Arc<Notify>) {
        const OURS_AND_THE_MAPS: usize = 2;
        let is_last = self.waiting.get(slot).is_some_and(|waiting| {
            Arc::ptr_eq(waiting, joined) && Arc::strong_count(waiting) == OURS_AND_THE_MAPS
        });
        if is_last {
            self.waiting.remove(slot);
        }
    }

    /// Wakes everyone who waits for `slot`.
    pub fn wake(&mut self, slot: &Slot) {
        // Nobody waits most of the time: then nothing is hashed.
        if self.waiting.is_empty() {
            return;
        }
        if let Some(waiting) = self.waiting.remove(slot) {
            waiting.notify_waiters();
        }
    }

    /// Whether nobody waits for anything.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Slot = Slot::from_bytes([7; Slot::BYTES]);

    #[test]
    fn a_slot_is_forgotten_once_the_last_waiter_has_left() {
        let mut waiters = Waiters::default();
        let (one, two) = (waiters.join(&SLOT), waiters.join(&SLOT));

        waiters.leave(&SLOT, &one);
        drop(one);
        assert!(!waiters.is_empty());

        waiters.leave(&SLOT, &two);
        assert!(waiters.is_empty());
    }

    #[test]
    fn who_was_woken_leaves_the_next_waiter_alone() {
        let mut waiters = Waiters::default();
        let woken = waiters.join(&SLOT);
        waiters.wake(&SLOT);
        let next = waiters.join(&SLOT);

        waiters.leave(&SLOT, &woken);

        assert!(!Arc::ptr_eq(&woken, &next));
        assert!(!waiters.is_empty());
    }
}

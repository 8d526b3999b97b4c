//! Who waits for a slot in this process: changes made here wake them at once.

use std::sync::{Arc, Mutex};

use onlyonce_core::Slot;
use onlyonce_core::slot::SlotMap;
use tokio::sync::Notify;

use super::lock;

/// The slots somebody in this process waits for.
#[derive(Default)]
pub(crate) struct Waiters {
    slots: Mutex<SlotMap<Waited>>,
}

struct Waited {
    changed: Arc<Notify>,
    waiting: usize,
}

impl Waiters {
    /// Waits for `slot` as long as the watch lives.
    pub(crate) fn watch(&self, slot: &Slot) -> Watch<'_> {
        let mut slots = lock(&self.slots);
        let waited = slots.entry(*slot).or_insert_with(|| Waited {
            changed: Arc::default(),
            waiting: 0,
        });
        waited.waiting += 1;
        Watch {
            waiters: self,
            slot: *slot,
            changed: Arc::clone(&waited.changed),
        }
    }

    /// Wakes who waits for `slot`.
    pub(crate) fn wake(&self, slot: &Slot) {
        if let Some(waited) = lock(&self.slots).get(slot) {
            waited.changed.notify_waiters();
        }
    }

    /// Wakes everybody: something changed, and nobody knows what.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn wake_all(&self) {
        for waited in lock(&self.slots).values() {
            waited.changed.notify_waiters();
        }
    }

    /// Whether nobody waits.
    #[cfg(feature = "sqlite")]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.slots).is_empty()
    }
}

/// Somebody waiting for a slot.
pub(crate) struct Watch<'a> {
    waiters: &'a Waiters,
    slot: Slot,
    pub(crate) changed: Arc<Notify>,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut slots = lock(&self.waiters.slots);
        if let Some(waited) = slots.get_mut(&self.slot) {
            waited.waiting -= 1;
            if waited.waiting == 0 {
                slots.remove(&self.slot);
            }
        }
    }
}

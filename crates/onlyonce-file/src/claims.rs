//! Claims as the writer left them on disk: most are completed soon, and then need not be read back.

use onlyonce_core::Slot;
use onlyonce_core::slot::SlotMap;

use super::frame::Kind;
use super::shared::Found;

/// How many are remembered.
const CLAIMS_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Claims(SlotMap<Found>);

impl Claims {
    pub(super) fn get(&self, slot: &Slot) -> Option<&Found> {
        self.0.get(slot)
    }

    /// Forgets all when so many more would be too many: some are of claims that nobody completes.
    pub(super) fn make_room(&mut self, more: usize) {
        if self.0.len() + more > CLAIMS_MAX {
            self.0.clear();
        }
    }

    /// Remembers how a commit left a slot, if that is a claim.
    pub(super) fn leave(&mut self, slot: Slot, found: Option<Found>) {
        match found.filter(|found| found.head.kind == Kind::Pending) {
            Some(found) => {
                self.0.insert(slot, found);
            }
            None => self.forget(&slot),
        }
    }

    /// Has a slot read from disk the next time.
    pub(super) fn forget(&mut self, slot: &Slot) {
        self.0.remove(slot);
    }
}

//! Which records began last, so that a page of the newest ones does not read all there are. It knows of
//! those that began since the store was opened, as far back as it has room for.

use std::collections::VecDeque;

use onlyonce_core::{Slot, Timestamp};

/// Of so many records it is known when they began: 40 bytes each.
const RECORDS_MAX: usize = 4096;

pub(super) struct Recent {
    /// All records that began later are among these.
    since: Timestamp,
    /// The oldest first. Some may be gone, and some never came to be.
    began: VecDeque<(Timestamp, Slot)>,
}

impl Recent {
    /// Knows of what begins later than that.
    pub(super) fn since(since: Timestamp) -> Self {
        Self {
            since,
            began: VecDeque::new(),
        }
    }

    /// Takes note of a record that begins, before anybody can read it.
    pub(super) fn note(&mut self, at: Timestamp, slot: Slot) {
        if self.began.len() == RECORDS_MAX
            && let Some((oldest, _)) = self.began.pop_front()
            && oldest.as_millis() > self.since.as_millis()
        {
            self.since = oldest;
        }
        self.began.push_back((at, slot));
    }

    /// Since when it knows of all, and of which, the newest first.
    pub(super) fn known(&self) -> (Timestamp, Vec<(Timestamp, Slot)>) {
        (self.since, self.began.iter().rev().copied().collect())
    }
}

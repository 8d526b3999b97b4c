//! When to look at which slot again: a queue of eight bytes a slot.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::entry::Kept;
use crate::slot::Slot;

/// The start of a slot: what tables find it by. Two slots may share one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tag(pub(super) u32);

impl Tag {
    pub(super) fn of(slot: &Slot) -> Self {
        let [a, b, c, d, ..] = *slot.as_bytes();
        Self(u32::from_le_bytes([a, b, c, d]))
    }

    /// Uniform at both ends, because a slot is a digest.
    pub(super) fn hash(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

/// A moment in ticks since the store began; zero stands for none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due(pub(super) u32);

/// So long that 32 bits of ticks reach eight years; a record is swept later by so much at most.
const TICK_MILLIS: u64 = 64;
/// The queue grows by one part in this many: it is large where there are many keys.
const GROWTH_PART: usize = 8;
const GROWTH_MIN: usize = 16;

impl Due {
    pub(super) const NOT_QUEUED: Self = Self(0);
    /// Later than all that can be waited for.
    const NEVER: Self = Self(u32::MAX);
}

/// May be early (the record is kept longer than was thought), in which case it is queued anew;
/// never late by more than a tick.
pub(super) struct Looks {
    origin: Duration,
    queue: BinaryHeap<Reverse<(Due, Tag)>>,
}

impl Looks {
    /// A queue from `now` on.
    pub(super) fn new(now: Duration) -> Self {
        Self {
            origin: now,
            queue: BinaryHeap::new(),
        }
    }

    /// Queues a look at a record that was changed, unless the one that is queued serves. Says
    /// which look counts.
    pub(super) fn follow(&mut self, queued: Due, kept: &Kept, tag: Tag) -> Due {
        let ends = self.due_by(kept.expires);
        match queued {
            // A claim ends later than the answer it usually becomes: one look serves both.
            Due::NOT_QUEUED => {
                let created = Duration::from_millis(kept.created_at.as_millis());
                let answered = self.due_by(created.saturating_add(kept.tail));
                self.push(answered.min(ends), tag)
            }
            queued if ends < queued => self.push(ends, tag),
            queued => queued,
        }
    }

    /// Queues a look at what expires then.
    pub(super) fn push_end(&mut self, expires: Duration, tag: Tag) -> Due {
        self.push(self.due_by(expires), tag)
    }

    fn push(&mut self, due: Due, tag: Tag) -> Due {
        if self.queue.len() == self.queue.capacity() {
            let more = self.queue.len() / GROWTH_PART + GROWTH_MIN;
            self.queue.reserve_exact(more);
        }
        self.queue.push(Reverse((due, tag)));
        due
    }

    /// The next look that is due.
    pub(super) fn pop(&mut self, now: Duration) -> Option<(Due, Tag)> {
        let Reverse((due, tag)) = *self.queue.peek()?;
        if due == Due::NEVER || due > self.passed(now) {
            return None;
        }
        self.queue.pop();
        Some((due, tag))
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Forgets all looks but these.
    pub(super) fn reset(&mut self, looks: impl Iterator<Item = (Due, Tag)>) {
        self.queue = looks.map(Reverse).collect();
    }

    /// The first tick at which what expires then is over.
    fn due_by(&self, expires: Duration) -> Due {
        let left = expires.saturating_sub(self.origin);
        let millis = left.as_secs().saturating_mul(1000);
        let millis = millis.saturating_add(left.subsec_nanos().div_ceil(1_000_000).into());
        let ticks = u32::try_from(millis.div_ceil(TICK_MILLIS)).unwrap_or(u32::MAX);
        Due(ticks.max(1))
    }

    /// The last tick that is over.
    fn passed(&self, now: Duration) -> Due {
        let passed = now.saturating_sub(self.origin);
        let millis = passed.as_secs().saturating_mul(1000);
        let millis = millis.saturating_add(passed.subsec_millis().into());
        Due(u32::try_from(millis / TICK_MILLIS).unwrap_or(u32::MAX))
    }
}

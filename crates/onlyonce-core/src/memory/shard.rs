//! A share of the slots under one lock: their entries, when to look at each again, and who waits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::entry::{Change, Entry, Graves, Waiters};
use crate::record::{Record, Token};
use crate::slot::{Slot, SlotMap};
use crate::store::{Claim, Claimed, Lease, Release, Released};

const QUEUE_SLACK: usize = 64;
const LOOKS_PER_CLAIM: usize = 4;

#[derive(Default)]
pub(super) struct Shard {
    entries: SlotMap<Queued>,
    /// When to look at a slot again. May be early (the entry was kept longer meanwhile), in
    /// which case it is queued anew; never late.
    expiry: BinaryHeap<Reverse<(Duration, Slot)>>,
    graves: Graves,
    waiters: Waiters,
    size: Size,
}

#[derive(Default)]
struct Queued {
    entry: Entry,
    /// When the expiry queue will look at this entry: not after it expires. Zero: not queued.
    due: Duration,
}

/// Records, and the bytes of their answers.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

impl Size {
    fn of(entry: &Entry) -> Self {
        Self {
            records: usize::from(entry.kept.is_some()),
            bytes: entry.kept.as_ref().map_or(0, |kept| kept.bytes()),
        }
    }

    fn replace(&mut self, before: Self, after: Self) {
        self.records = self.records - before.records + after.records;
        self.bytes = self.bytes - before.bytes + after.bytes;
    }
}

impl Shard {
    pub(super) fn size(&self) -> Size {
        self.size
    }

    pub(super) fn is_new(&self, slot: &Slot, now: Duration) -> bool {
        self.entry(slot)
            .is_none_or(|entry| entry.live(now).is_none())
    }

    pub(super) fn claim(&mut self, claim: &Claim, now: Duration) -> Claimed {
        if self.graves.hold(&claim.slot, &claim.token, now) {
            return Claimed::Dead;
        }
        self.step(&claim.slot, |entry| entry.claim(claim, now))
    }

    pub(super) fn release(&mut self, lease: &Lease, why: Release, now: Duration) -> Released {
        let (released, change) = self.step(&lease.slot, |entry| {
            let (released, change) = entry.release(lease, why, now);
            ((released, change), change)
        });
        self.graves.bury(lease, why, change, now);
        released
    }

    /// One atomic step on the slot's entry.
    pub(super) fn step<T>(
        &mut self,
        slot: &Slot,
        step: impl FnOnce(&mut Entry) -> (T, Change),
    ) -> T {
        let queued = self.entries.entry(*slot).or_default();
        let before = Size::of(&queued.entry);
        let (answer, change) = step(&mut queued.entry);
        self.size.replace(before, Size::of(&queued.entry));
        match &queued.entry.kept {
            None => {
                self.entries.remove(slot);
            }
            Some(kept) if queued.due.is_zero() || kept.expires < queued.due => {
                queued.due = kept.expires;
                let due = queued.due;
                self.queue(due, *slot);
            }
            Some(_) => {}
        }
        match change {
            Change::Nothing | Change::Written => {}
            Change::Settled => self.waiters.wake(slot),
        }
        answer
    }

    /// What to wait on, and for how long at most; nothing if the claim `seen` is over already.
    pub(super) fn watch(
        &mut self,
        slot: &Slot,
        seen: &Token,
        now: Duration,
    ) -> Option<(Arc<Notify>, Duration)> {
        let lease_left = self.entry(slot)?.lease_left_of(seen, now)?;
        Some((self.waiters.join(slot), lease_left))
    }

    pub(super) fn get(&self, slot: &Slot, now: Duration) -> Option<Record> {
        self.entry(slot)?.get(now)
    }

    pub(super) fn live(&self, now: Duration) -> impl Iterator<Item = (Slot, Record)> {
        self.entries
            .iter()
            .filter_map(move |(slot, queued)| Some((*slot, queued.entry.get(now)?)))
    }

    /// All records, expired ones too.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Drops at most `records_max` expired records.
    pub(super) fn sweep(&mut self, now: Duration, records_max: usize) -> usize {
        let mut swept = 0;
        while swept < records_max
            && let Some(dropped) = self.look(now)
        {
            swept += usize::from(dropped);
        }
        self.graves.tidy(usize::MAX, now);
        swept
    }

    /// A little sweeping on the way of every claim: more than a claim adds, so that growth stays
    /// bounded without a sweeper.
    pub(super) fn tidy(&mut self, now: Duration) {
        for _ in 0..LOOKS_PER_CLAIM {
            if self.look(now).is_none() {
                break;
            }
        }
        self.graves.tidy(LOOKS_PER_CLAIM, now);
    }

    /// Looks at the next slot that is due, and says whether its record was dropped.
    fn look(&mut self, now: Duration) -> Option<bool> {
        let Reverse((due, slot)) = self.expiry.peek().copied()?;
        if due > now {
            return None;
        }
        self.expiry.pop();
        let Some(queued) = self.entries.get_mut(&slot) else {
            return Some(false);
        };
        let Some(expires) = queued.entry.live(now).map(|kept| kept.expires) else {
            self.size.replace(Size::of(&queued.entry), Size::default());
            self.entries.remove(&slot);
            self.waiters.wake(&slot);
            return Some(true);
        };
        // Only the look that was queued last queues the next one.
        if queued.due == due {
            queued.due = expires;
            self.expiry.push(Reverse((expires, slot)));
        }
        Some(false)
    }

    fn entry(&self, slot: &Slot) -> Option<&Entry> {
        self.entries.get(slot).map(|queued| &queued.entry)
    }

    /// Queues a look at `slot`, and drops what is queued for slots long gone before that
    /// outgrows what is alive.
    fn queue(&mut self, due: Duration, slot: Slot) {
        self.expiry.push(Reverse((due, slot)));
        if self.expiry.len() > 2 * self.entries.len() + QUEUE_SLACK {
            let looks = self.entries.iter().map(|(slot, it)| (it.due, *slot));
            self.expiry = looks.map(Reverse).collect();
        }
    }
}

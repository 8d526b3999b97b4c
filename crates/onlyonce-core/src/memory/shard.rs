//! A share of the slots under one lock: their entries, when to look at each again, and who waits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;
use tokio::sync::Notify;

use crate::entry::{Change, Entry, Graves, Waiters};
use crate::memory::seat::{Seat, millis};
use crate::record::{Record, Token};
use crate::slot::Slot;
use crate::store::{Claim, Claimed, Lease, Release, Released};

const QUEUE_SLACK: usize = 64;
const LOOKS_PER_CLAIM: usize = 4;

#[derive(Default)]
pub(super) struct Shard {
    seats: HashTable<Seat>,
    /// When to look at a slot again, by its tag. May be early (the record is kept longer than was
    /// thought), in which case it is queued anew; never late.
    expiry: BinaryHeap<Reverse<(u64, u64)>>,
    graves: Graves,
    waiters: Waiters,
    size: Size,
}

/// Records, and the bytes of their answers.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

impl Size {
    fn of(seat: &Seat) -> Self {
        Self {
            records: 1,
            bytes: seat.bytes(),
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
        self.seat(slot)
            .is_none_or(|seat| seat.look(|entry| entry.live(now).is_none()))
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
        let place = self
            .seats
            .entry(slot.tag(), |it| it.is_of(slot), |it| it.tag);
        let before = match &place {
            Place::Occupied(seat) => Size::of(seat.get()),
            Place::Vacant(_) => Size::default(),
        };
        let mut seat = place.or_insert_with(|| Seat::new(slot));
        let (answer, change, expiry) = seat.get_mut().step(step);
        let Some(expiry) = expiry else {
            seat.remove();
            self.size.replace(before, Size::default());
            self.tell(slot, change);
            return answer;
        };
        let seat = seat.get_mut();
        self.size.replace(before, Size::of(seat));
        let due = match seat.due() {
            0 => Some(expiry.first_look),
            due if expiry.ends < due => Some(expiry.ends),
            _ => None,
        };
        if let Some(due) = due {
            seat.set_due(due);
            self.queue(due, slot.tag());
        }
        self.tell(slot, change);
        answer
    }

    fn tell(&mut self, slot: &Slot, change: Change) {
        match change {
            Change::Nothing | Change::Written => {}
            Change::Settled => self.waiters.wake(slot),
        }
    }

    /// What to wait on, and for how long at most; nothing if the claim `seen` is over already.
    pub(super) fn watch(
        &mut self,
        slot: &Slot,
        seen: &Token,
        now: Duration,
    ) -> Option<(Arc<Notify>, Duration)> {
        let lease_left = self
            .seat(slot)?
            .look(|entry| entry.lease_left_of(seen, now))?;
        Some((self.waiters.join(slot), lease_left))
    }

    pub(super) fn get(&self, slot: &Slot, now: Duration) -> Option<Record> {
        self.seat(slot)?.look(|entry| entry.get(now))
    }

    pub(super) fn live(&self, now: Duration) -> impl Iterator<Item = (Slot, Record)> {
        let seats = self.seats.iter();
        seats.filter_map(move |seat| Some((seat.slot(), seat.look(|entry| entry.get(now))?)))
    }

    /// All records, expired ones too.
    pub(super) fn len(&self) -> usize {
        self.seats.len()
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
        let Reverse((due, tag)) = self.expiry.peek().copied()?;
        // Rounded down, so that what is due has really expired, unless it is kept longer.
        if u128::from(due) > now.as_millis() {
            return None;
        }
        self.expiry.pop();
        // Only the look that was queued last counts.
        let is_due = |seat: &Seat| seat.tag == tag && seat.due() == due;
        let Ok(mut seat) = self.seats.find_entry(tag, is_due) else {
            return Some(false);
        };
        let expires = seat
            .get()
            .look(|entry| entry.live(now).map(|kept| kept.expires));
        let Some(expires) = expires else {
            let (seat, _) = seat.remove();
            self.size.replace(Size::of(&seat), Size::default());
            self.waiters.wake(&seat.slot());
            return Some(true);
        };
        let due = millis(expires);
        seat.get_mut().set_due(due);
        self.expiry.push(Reverse((due, tag)));
        Some(false)
    }

    fn seat(&self, slot: &Slot) -> Option<&Seat> {
        self.seats.find(slot.tag(), |it| it.is_of(slot))
    }

    /// Queues a look, and drops what is queued for slots long gone before that outgrows what is
    /// alive.
    fn queue(&mut self, due: u64, tag: u64) {
        self.expiry.push(Reverse((due, tag)));
        if self.expiry.len() > 2 * self.seats.len() + QUEUE_SLACK {
            let looks = self.seats.iter().map(|seat| (seat.due(), seat.tag));
            self.expiry = looks.map(Reverse).collect();
        }
    }
}

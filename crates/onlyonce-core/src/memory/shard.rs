//! A share of the slots under one lock: the store's atomic steps, without time or locks of
//! their own.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Timestamp;
use crate::operate::Resolved;
use crate::record::{Record, Token};
use crate::response::Response;
use crate::slot::{Slot, SlotHasher, SlotMap};
use crate::store::{Claim, Claimed, Completed, Lease, Release, Released, Renewed};

use super::entry::{Entry, Phase};

const QUEUE_SLACK: usize = 64;
const LOOKS_PER_CLAIM: usize = 4;

#[derive(Default)]
pub(super) struct Shard {
    entries: SlotMap<Entry>,
    /// When to look at a slot again. May be early (the record was kept longer meanwhile), in
    /// which case it is queued anew; never late.
    expiry: BinaryHeap<Reverse<(Duration, Slot)>>,
    /// Released tokens and until when they are dead: a late claim must not revive them.
    dead: HashMap<(Slot, Token), Duration, BuildHasherDefault<SlotHasher>>,
    graves: BinaryHeap<Reverse<(Duration, Slot, Token)>>,
    waiting: SlotMap<Arc<Notify>>,
    bytes: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

impl Shard {
    pub(super) fn size(&self) -> Size {
        Size {
            records: self.entries.len(),
            bytes: self.bytes,
        }
    }

    pub(super) fn is_new(&self, slot: &Slot, now: Duration) -> bool {
        self.live_entry(slot, now).is_none()
    }

    pub(super) fn claim(&mut self, claim: &Claim, now: Duration, wall: Timestamp) -> Claimed {
        if self.is_dead(&claim.slot, &claim.token, now) {
            return Claimed::Dead;
        }
        let Some(held) = self.live_entry(&claim.slot, now) else {
            self.insert(claim, 1, now, wall);
            return granted(claim, 1, None);
        };
        if !held.yields_to(claim, now) {
            return Claimed::Taken(held.to_record(now));
        }
        if held.token == claim.token {
            // A repeated claim whose reply was lost: the same attempt, with a whole lease again.
            let attempt = held.attempt;
            self.entry_mut(&claim.slot)
                .renew(claim.lease_for, now, wall);
            self.requeue(&claim.slot);
            return granted(claim, attempt, None);
        }
        let (attempt, overtook) = (held.attempt.saturating_add(1), Arc::clone(&held.meta));
        let created_at = held.created_at;
        self.insert(claim, attempt, now, wall);
        self.entry_mut(&claim.slot).created_at = created_at;
        self.wake(&claim.slot);
        granted(claim, attempt, Some(overtook))
    }

    pub(super) fn renew(
        &mut self,
        lease: &Lease,
        lease_for: Duration,
        now: Duration,
        wall: Timestamp,
    ) -> Renewed {
        match self.held_by(lease, now) {
            Some(entry) => {
                entry.renew(lease_for, now, wall);
                self.requeue(&lease.slot);
                Renewed::Kept
            }
            None => Renewed::Lost,
        }
    }

    pub(super) fn complete(
        &mut self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
        now: Duration,
        wall: Timestamp,
    ) -> Completed {
        if let Some(entry) = self.held_by(lease, now) {
            let receipt = entry.finish(response, keep_for, now, wall);
            self.bytes += response.bytes();
            self.requeue(&lease.slot);
            self.wake(&lease.slot);
            return Completed::Stored(receipt);
        }
        match self.get(&lease.slot, now) {
            Some(record) => Completed::Found(record),
            None => Completed::Absent,
        }
    }

    pub(super) fn release(&mut self, lease: &Lease, why: Release, now: Duration) -> Released {
        let held = self.held_by(lease, now);
        let was_held = held.is_some();
        match (why, held) {
            (Release::Unknown, Some(entry)) => entry.end_unknown(now),
            (Release::NotRun, Some(_)) => self.remove(&lease.slot),
            (Release::Unknown | Release::NotRun, None) => {}
        }
        // A claim that has not arrived yet can be given back too, but not as unknown.
        if was_held || why == Release::NotRun {
            self.bury(lease, now);
        }
        if was_held {
            self.wake(&lease.slot);
            return Released::Ended;
        }
        match self.get(&lease.slot, now) {
            Some(record) => Released::Found(record),
            None => Released::Ended,
        }
    }

    /// What to wait on, and for how long at most; nothing if the claim `seen` is over already.
    pub(super) fn watch(
        &mut self,
        slot: &Slot,
        seen: &Token,
        now: Duration,
    ) -> Option<(Arc<Notify>, Duration)> {
        let lease_left = self.live_entry(slot, now)?.lease_left_of(seen, now)?;
        if lease_left.is_zero() {
            return None;
        }
        let changed = self.waiting.entry(*slot).or_default();
        Some((Arc::clone(changed), lease_left))
    }

    pub(super) fn get(&self, slot: &Slot, now: Duration) -> Option<Record> {
        Some(self.live_entry(slot, now)?.to_record(now))
    }

    pub(super) fn live(&self, now: Duration) -> impl Iterator<Item = (Slot, Record)> {
        self.entries
            .iter()
            .filter(move |(_, entry)| !entry.is_expired(now))
            .map(move |(slot, entry)| (*slot, entry.to_record(now)))
    }

    pub(super) fn forget(&mut self, slot: &Slot, now: Duration) -> bool {
        let was_live = !self.is_new(slot, now);
        self.remove(slot);
        was_live
    }

    pub(super) fn extend(&mut self, slot: &Slot, extra: Duration, now: Duration) -> bool {
        if self.is_new(slot, now) {
            return false;
        }
        self.entry_mut(slot).extend(extra);
        true
    }

    pub(super) fn resolve(
        &mut self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
        now: Duration,
        wall: Timestamp,
    ) -> Resolved {
        match self.live_entry(slot, now) {
            None => Resolved::Absent,
            Some(entry) if !entry.is_resolvable(now) => Resolved::Found(entry.to_record(now)),
            Some(_) => {
                self.entry_mut(slot).finish(response, keep_for, now, wall);
                self.bytes += response.bytes();
                self.requeue(slot);
                self.wake(slot);
                Resolved::Stored
            }
        }
    }

    pub(super) fn count_replays(&mut self, slot: &Slot, count: u64, now: Duration) {
        if !self.is_new(slot, now) {
            let entry = self.entry_mut(slot);
            entry.replays = entry.replays.saturating_add(count);
        }
    }

    /// Drops at most `records_max` expired records.
    pub(super) fn sweep(&mut self, now: Duration, records_max: usize) -> usize {
        let mut swept = 0;
        while swept < records_max
            && let Some(dropped) = self.look(now)
        {
            swept += usize::from(dropped);
        }
        while self.fill_grave(now) {}
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
        for _ in 0..LOOKS_PER_CLAIM {
            if !self.fill_grave(now) {
                break;
            }
        }
    }

    /// Looks at the next slot that is due, and says whether its record was dropped.
    fn look(&mut self, now: Duration) -> Option<bool> {
        let Reverse((due, slot)) = self.expiry.peek().copied()?;
        if due > now {
            return None;
        }
        self.expiry.pop();
        let Some(entry) = self.entries.get_mut(&slot) else {
            return Some(false);
        };
        if entry.is_expired(now) {
            self.remove(&slot);
            return Some(true);
        }
        // Only the look that was queued last queues the next one.
        if entry.queued == due {
            let expires = entry.expires;
            entry.queued = expires;
            self.expiry.push(Reverse((expires, slot)));
        }
        Some(false)
    }

    /// Forgets the next token that has been dead long enough; false if there is none.
    fn fill_grave(&mut self, now: Duration) -> bool {
        match self.graves.peek() {
            Some(Reverse((until, slot, token))) if *until <= now => {
                // Buried again meanwhile, it stays until its later grave is due.
                let key = (*slot, *token);
                if self.dead.get(&key).is_some_and(|until| *until <= now) {
                    self.dead.remove(&key);
                }
                self.graves.pop();
                true
            }
            Some(_) | None => false,
        }
    }

    fn live_entry(&self, slot: &Slot, now: Duration) -> Option<&Entry> {
        self.entries
            .get(slot)
            .filter(|entry| !entry.is_expired(now))
    }

    fn entry_mut(&mut self, slot: &Slot) -> &mut Entry {
        self.entries
            .get_mut(slot)
            .expect("the caller has just seen this entry under the same lock")
    }

    /// The entry, if it is a pending claim of this lease: lapsed or not, as long as it is ours.
    fn held_by(&mut self, lease: &Lease, now: Duration) -> Option<&mut Entry> {
        self.entries.get_mut(&lease.slot).filter(|entry| {
            !entry.is_expired(now)
                && entry.token == lease.token
                && matches!(entry.phase, Phase::Pending { .. })
        })
    }

    fn insert(&mut self, claim: &Claim, attempt: u32, now: Duration, wall: Timestamp) {
        let entry = Entry::claimed(claim, attempt, now, wall);
        self.queue(entry.queued, claim.slot);
        if let Some(old) = self.entries.insert(claim.slot, entry) {
            self.bytes -= old.bytes();
        }
    }

    /// Queues an earlier look where the record now expires before the one that is queued.
    fn requeue(&mut self, slot: &Slot) {
        let entry = self.entry_mut(slot);
        if entry.expires < entry.queued {
            entry.queued = entry.expires;
            let due = entry.queued;
            self.queue(due, *slot);
        }
    }

    fn remove(&mut self, slot: &Slot) {
        if let Some(old) = self.entries.remove(slot) {
            self.bytes -= old.bytes();
        }
        self.wake(slot);
    }

    /// Queues a look at `slot`, and drops what is queued for slots long gone before that
    /// outgrows what is alive.
    fn queue(&mut self, due: Duration, slot: Slot) {
        self.expiry.push(Reverse((due, slot)));
        if self.expiry.len() > 2 * self.entries.len() + QUEUE_SLACK {
            let looks = self.entries.iter().map(|(slot, it)| (it.queued, *slot));
            let newest = std::iter::once((due, slot));
            self.expiry = looks.chain(newest).map(Reverse).collect();
        }
    }

    fn wake(&mut self, slot: &Slot) {
        if let Some(waiting) = self.waiting.remove(slot) {
            waiting.notify_waiters();
        }
    }

    fn is_dead(&self, slot: &Slot, token: &Token, now: Duration) -> bool {
        // Nothing is dead most of the time: then nothing is hashed.
        !self.dead.is_empty()
            && self
                .dead
                .get(&(*slot, *token))
                .is_some_and(|until| *until > now)
    }

    fn bury(&mut self, lease: &Lease, now: Duration) {
        let until = now.saturating_add(lease.lease_for);
        self.dead.insert((lease.slot, lease.token), until);
        self.graves.push(Reverse((until, lease.slot, lease.token)));
    }
}

fn granted(claim: &Claim, attempt: u32, overtook: Option<Arc<crate::record::Meta>>) -> Claimed {
    Claimed::Granted {
        lease: Lease {
            attempt,
            ..claim.lease()
        },
        overtook,
    }
}

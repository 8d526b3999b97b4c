//! A share of the slots under one lock: their records, when to look at each again, and who waits.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;
use tokio::sync::Notify;

use super::arena::Address;
use super::block::Block;
use super::finished::Finished;
use super::looks::{Due, Looks, Tag};
use crate::clock::Timestamp;
use crate::entry::{Change, Entry, Kept, Phase, ReleasedTokens, Waiters};
use crate::fingerprint::Fingerprint;
use crate::operate::Filter;
use crate::record::{Meta, Record, Replay, Token};
use crate::slot::Slot;
use crate::store::{Claim, Claimed, Lease, Release, Released};

const QUEUE_SLACK: usize = 64;
const LOOKS_PER_CLAIM: usize = 4;

pub(super) struct Shard {
    finished: Finished,
    /// All records that have no answer.
    open: HashTable<Box<Open>>,
    looks: Looks,
    released: ReleasedTokens,
    waiters: Waiters,
}

/// A record as it is worked with.
struct Open {
    slot: Slot,
    due: Due,
    entry: Entry,
}

/// Records, and the bytes they take.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

/// An open record with what is told to people.
const OPEN_BYTES: usize = size_of::<Open>() + size_of::<Meta>();

/// What is live at one moment.
pub(super) struct Tally {
    pub(super) records: u64,
    pub(super) pending: u64,
    pub(super) expired: u64,
}

impl Shard {
    /// An empty shard, from `now` on.
    pub(super) fn new(now: Duration) -> Self {
        Self {
            finished: Finished::default(),
            open: HashTable::new(),
            looks: Looks::new(now),
            released: ReleasedTokens::default(),
            waiters: Waiters::default(),
        }
    }

    pub(super) fn size(&self) -> Size {
        Size {
            records: self.len(),
            bytes: self.finished.bytes() + self.open.len() * OPEN_BYTES,
        }
    }

    pub(super) fn is_new(&self, slot: &Slot, now: Duration) -> bool {
        match self.finished.find(slot) {
            Some(at) => !self.finished.block(at).is_live(now),
            None => self.find_open(slot).is_none_or(|it| it.live(now).is_none()),
        }
    }

    pub(super) fn claim(&mut self, claim: &Claim, now: Duration) -> Claimed {
        if self.released.is_dead(&claim.slot, &claim.token, now) {
            return Claimed::Dead;
        }
        let known = Some(&claim.meta);
        self.step(&claim.slot, known, |entry| entry.claim(claim, now))
    }

    pub(super) fn release(&mut self, lease: &Lease, why: Release, now: Duration) -> Released {
        let (released, change) = self.step(&lease.slot, None, |entry| {
            let (released, change) = entry.release(lease, why, now);
            ((released, change), change)
        });
        self.released.add(lease, why, change, now);
        released
    }

    /// One atomic step on the slot's entry. What its record tells people may be `known`.
    pub(super) fn step<T>(
        &mut self,
        slot: &Slot,
        known: Option<&Arc<Meta>>,
        step: impl FnOnce(&mut Entry) -> (T, Change),
    ) -> T {
        let (answer, change) = match self.finished.find(slot) {
            Some(at) => self.step_finished(slot, at, known, step),
            None => self.step_open(slot, step),
        };
        match change {
            Change::Nothing | Change::Written => {}
            Change::Settled => self.waiters.wake(slot),
        }
        answer
    }

    fn step_finished<T>(
        &mut self,
        slot: &Slot,
        at: Address,
        known: Option<&Arc<Meta>>,
        step: impl FnOnce(&mut Entry) -> (T, Change),
    ) -> (T, Change) {
        let block = self.finished.block(at);
        let (due, mut entry) = (block.due(), block.entry(known));
        let (answer, change) = step(&mut entry);
        if change == Change::Nothing && entry.kept.is_some() {
            return (answer, change);
        }
        self.finished.remove(at);
        if let Some(kept) = entry.kept {
            self.keep(slot, due, kept);
        }
        (answer, change)
    }

    fn step_open<T>(
        &mut self,
        slot: &Slot,
        step: impl FnOnce(&mut Entry) -> (T, Change),
    ) -> (T, Change) {
        let tag = Tag::of(slot);
        let place = self
            .open
            .entry(tag.hash(), |it| it.slot == *slot, |it| it.tag().hash());
        let mut place = place.or_insert_with(|| Box::new(Open::new(slot)));
        let open = place.get_mut();
        let stepped = step(&mut open.entry);
        match &open.entry.kept {
            Some(kept) if !is_finished(kept) => {
                open.due = self.looks.follow(open.due, kept, tag);
            }
            Some(_) | None => {
                let (open, _) = place.remove();
                if let Some(kept) = open.entry.kept {
                    self.keep(slot, open.due, kept);
                }
            }
        }
        self.trim_looks();
        stepped
    }

    /// Puts a record where it belongs, and sees that it will be looked at.
    fn keep(&mut self, slot: &Slot, due: Due, kept: Kept) {
        let tag = Tag::of(slot);
        let due = self.looks.follow(due, &kept, tag);
        if is_finished(&kept) {
            return self.finished.insert(slot, due, kept);
        }
        let open = Box::new(Open {
            slot: *slot,
            due,
            entry: Entry { kept: Some(kept) },
        });
        self.open
            .insert_unique(tag.hash(), open, |it| it.tag().hash());
    }

    pub(super) fn recall(
        &self,
        slot: &Slot,
        fingerprint: &Fingerprint,
        now: Duration,
    ) -> Option<Replay> {
        let block = self.finished.block(self.finished.find(slot)?);
        block.is_live(now).then(|| block.replay(fingerprint))?
    }

    /// What to wait on, and for how long at most; nothing if the claim `seen` is over already.
    pub(super) fn watch(
        &mut self,
        slot: &Slot,
        seen: &Token,
        now: Duration,
    ) -> Option<(Arc<Notify>, Duration)> {
        let lease_left = self.find_open(slot)?.lease_left_of(seen, now)?;
        Some((self.waiters.join(slot), lease_left))
    }

    pub(super) fn get(&self, slot: &Slot, now: Duration) -> Option<Record> {
        match self.finished.find(slot) {
            Some(at) => self.finished.block(at).entry(None).get(now),
            None => self.find_open(slot)?.get(now),
        }
    }

    /// The records that are live and may pass, none of them read yet.
    pub(super) fn live<'a>(
        &'a self,
        now: Duration,
        filter: &'a Filter,
    ) -> impl Iterator<Item = Live<'a>> + 'a {
        let blocks = filter.admits_finished().then(|| self.finished.iter());
        let blocks = blocks
            .into_iter()
            .flatten()
            .filter(move |block| block.is_live(now));
        let open = filter.admits_open().then(|| self.open.iter());
        let open = open.into_iter().flatten().filter_map(move |it| {
            let kept = it.entry.live(now)?;
            Some(Live::Open(it.slot, kept))
        });
        blocks
            .map(Live::Finished)
            .chain(open)
            .filter(move |it| it.may_pass(filter))
    }

    pub(super) fn tally(&self, now: Duration) -> Tally {
        let blocks = self.finished.iter();
        let finished = blocks.filter(|block| block.is_live(now)).count();
        let open = || self.open.iter().filter_map(|it| it.entry.live(now));
        let is_pending = |kept: &&Kept| matches!(kept.phase, Phase::Pending { .. });
        let live = finished + open().count();
        Tally {
            records: live as u64,
            pending: open().filter(is_pending).count() as u64,
            expired: (self.len() - live) as u64,
        }
    }

    /// All records, expired ones too.
    fn len(&self) -> usize {
        self.finished.len() + self.open.len()
    }

    /// Drops at most `records_max` expired records.
    pub(super) fn sweep(&mut self, now: Duration, records_max: usize) -> usize {
        let mut swept = 0;
        while swept < records_max
            && let Some(dropped) = self.look(now)
        {
            swept += usize::from(dropped);
        }
        self.released.tidy(usize::MAX, now);
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
        self.released.tidy(LOOKS_PER_CLAIM, now);
    }

    /// Looks at the next slot that is due, and says whether its record was dropped. Only the look
    /// that was queued last counts.
    fn look(&mut self, now: Duration) -> Option<bool> {
        let (due, tag) = self.looks.pop(now)?;
        if let Some(at) = self.finished.find_due(due, tag) {
            return Some(self.look_at_block(at, now));
        }
        let place = self
            .open
            .find_entry(tag.hash(), |it| it.tag() == tag && it.due == due);
        let Ok(mut place) = place else {
            return Some(false);
        };
        let expires = place.get().entry.live(now).map(|kept| kept.expires);
        if let Some(expires) = expires {
            place.get_mut().due = self.looks.push_end(expires, tag);
            return Some(false);
        }
        let (open, _) = place.remove();
        self.waiters.wake(&open.slot);
        Some(true)
    }

    fn look_at_block(&mut self, at: Address, now: Duration) -> bool {
        let block = self.finished.block(at);
        let (tag, expires) = (block.tag(), block.expires());
        if block.is_live(now) {
            let due = self.looks.push_end(expires, tag);
            self.finished.set_due(at, due);
            return false;
        }
        self.finished.remove(at);
        true
    }

    fn find_open(&self, slot: &Slot) -> Option<&Entry> {
        let open = self
            .open
            .find(Tag::of(slot).hash(), |it| it.slot == *slot)?;
        Some(&open.entry)
    }

    /// Drops what is queued for slots long gone before that outgrows what is alive.
    fn trim_looks(&mut self) {
        if self.looks.len() <= 2 * self.len() + QUEUE_SLACK {
            return;
        }
        let blocks = self.finished.iter();
        let finished = blocks.map(|block| (block.due(), block.tag()));
        let open = self.open.iter().map(|it| (it.due, it.tag()));
        self.looks.reset(finished.chain(open));
    }
}

/// A live record where it lies.
pub(super) enum Live<'a> {
    Finished(Block<'a>),
    Open(Slot, &'a Kept),
}

impl Live<'_> {
    pub(super) fn slot(&self) -> Slot {
        match self {
            Self::Finished(block) => block.slot(),
            Self::Open(slot, _) => *slot,
        }
    }

    pub(super) fn created_at(&self) -> Timestamp {
        match self {
            Self::Finished(block) => block.glance().created_at,
            Self::Open(_, kept) => kept.created_at,
        }
    }

    /// The record, from a copy.
    pub(super) fn record(&self, now: Duration) -> Option<Record> {
        match self {
            Self::Finished(block) => block.entry(None).get(now),
            Self::Open(_, kept) => Some(kept.to_record(now)),
        }
    }

    /// Whether `filter` may let it through, by what can be seen of it where it lies.
    fn may_pass(&self, filter: &Filter) -> bool {
        let Self::Finished(block) = self else {
            return true;
        };
        if filter.operation.is_none() && filter.actor.is_none() && filter.hint.is_none() {
            return true;
        }
        let glance = block.glance();
        let same = |wanted: &Option<String>, found: Option<&[u8]>| {
            let wanted = wanted.as_ref().map(String::as_bytes);
            wanted.is_none_or(|wanted| found == Some(wanted))
        };
        same(&filter.operation, Some(glance.operation))
            && same(&filter.actor, glance.actor)
            && filter.hint.is_none_or(|hint| hint == glance.hint)
    }
}

impl Open {
    fn new(slot: &Slot) -> Self {
        Self {
            slot: *slot,
            due: Due::NOT_QUEUED,
            entry: Entry::default(),
        }
    }

    fn tag(&self) -> Tag {
        Tag::of(&self.slot)
    }
}

fn is_finished(kept: &Kept) -> bool {
    match kept.phase {
        Phase::Finished(_) => true,
        Phase::Pending { .. } | Phase::Unknown => false,
    }
}

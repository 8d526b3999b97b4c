//! The remembered results, and the rule that keeps them true: what was asked before a change is
//! not remembered after it, however late its answer comes.

use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::slot::{SlotHasher, SlotMap};
use onlyonce_core::store::Receipt;
use onlyonce_core::{
    Claim, Fingerprint, Lease, Meta, OnLapse, Record, Response, Slot, State, Token,
};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::wrap::lock;

use super::{AGE_MAX, compact};

const SHARES: usize = 64;
/// What an entry takes in the cache's tables, with the traces of those that left and room to grow.
const PLACE_BYTES: usize = 160;
/// How many claims of a share are known at most: some are of processes' tasks that never complete them.
const GRANTED_MAX: usize = 1024;

/// What a cache holds, and how much it helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheTally {
    /// Results remembered; some may be too old to be shown.
    pub entries: u64,
    /// Bytes they take, near enough.
    pub bytes: u64,
    /// Claims answered without the store.
    pub hits: u64,
    /// Claims that went to the store.
    pub misses: u64,
}

pub(super) struct Results {
    cache: Cache<Slot, Arc<Entry>, Weight, BuildHasherDefault<SlotHasher>>,
    shares: [Mutex<Share>; SHARES],
    hits: AtomicU64,
    misses: AtomicU64,
}

/// A share of the slots. Remembering or forgetting one of them takes its lock.
#[derive(Default)]
struct Share {
    /// Goes up with every change: an answer to a question from before is worth nothing.
    generation: u64,
    /// A change was sent whose outcome is unknown; the store may do it at any time from now on. An
    /// entry of this share counts as one of a store that others use too.
    is_doubtful: bool,
    /// Claims of this process that it has not completed yet.
    granted: SlotMap<Granted>,
}

/// What a lease does not carry of its claim, or not for certain.
pub(super) struct Granted {
    token: Token,
    fingerprint: Fingerprint,
    on_lapse: OnLapse,
    meta: Arc<Meta>,
}

/// Behind a pointer: the cache has places for more than are remembered.
struct Entry {
    record: Record,
    /// When the question was sent that this answered.
    sent: Duration,
}

/// A question to the store that may bring a result.
pub(super) struct Reading {
    slot: Slot,
    sent: Duration,
    generation: u64,
}

/// A change under way; its end is marked when this is dropped.
pub(super) struct Changing<'a> {
    results: &'a Results,
    slot: Slot,
    /// The store said what became of it.
    pub(super) is_known: bool,
}

impl Results {
    pub(super) fn new(entries_max: usize, bytes_max: u64) -> Self {
        let entries = u64::try_from(entries_max).unwrap_or(u64::MAX).max(1);
        // No entry weighs less than its share, so that the one bound on weight is both bounds.
        let least = bytes_max.div_ceil(entries).max(1);
        let weight_max = if entries_max == 0 { 0 } else { bytes_max };
        let options = OptionsBuilder::new()
            .estimated_items_capacity(entries_max)
            .weight_capacity(weight_max)
            .build()
            .expect("both capacities are given");
        let (hasher, lifecycle) = (BuildHasherDefault::default(), DefaultLifecycle::default());
        Self {
            cache: Cache::with_options(options, Weight { least }, hasher, lifecycle),
            shares: std::array::from_fn(|_| Mutex::default()),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The result in `slot` as of `now`, unless it is older than `age_max` or expired.
    pub(super) fn get(&self, slot: &Slot, now: Duration, age_max: Duration) -> Option<Record> {
        let found = self.peek(slot, now, age_max);
        if found.is_some() {
            self.count_hit();
        } else {
            self.misses.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// The same, not counted.
    pub(super) fn peek(&self, slot: &Slot, now: Duration, age_max: Duration) -> Option<Record> {
        let entry = self.cache.get(slot)?;
        let age = now.saturating_sub(entry.sent);
        // The store counted what is left after the question was sent: this is never too long.
        let keep_left = entry.record.keep_left.saturating_sub(age);
        let is_fresh = age < self.age_max(slot, age_max) && !keep_left.is_zero();
        is_fresh.then_some(Record {
            keep_left,
            ..entry.record.clone()
        })
    }

    pub(super) fn count_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn reading(&self, slot: &Slot, sent: Duration) -> Reading {
        Reading {
            slot: *slot,
            sent,
            generation: lock(self.share(slot)).generation,
        }
    }

    /// Remembers what a question brought, if it is finished and nothing changed meanwhile.
    pub(super) fn keep(&self, reading: Reading, record: &Record) {
        match record.state {
            State::Done(_) | State::Failed(_) => {}
            State::Pending { .. } | State::Unknown => return,
        }
        let entry = Arc::new(Entry {
            record: compact::record(record),
            sent: reading.sent,
        });
        let share = lock(self.share(&reading.slot));
        if share.generation == reading.generation {
            self.cache.insert(reading.slot, entry);
        }
    }

    /// Remembers a claim, so that its answer can be remembered as soon as it is stored.
    pub(super) fn granted(&self, claim: &Claim) {
        let mut share = lock(self.share(&claim.slot));
        if share.granted.len() >= GRANTED_MAX {
            share.granted.clear();
        }
        let granted = Granted {
            token: claim.token,
            fingerprint: claim.fingerprint,
            on_lapse: claim.on_lapse,
            meta: Arc::clone(&claim.meta),
        };
        share.granted.insert(claim.slot, granted);
    }

    /// The record that this process has just stored, if its claim is remembered.
    pub(super) fn stored(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
        receipt: &Receipt,
    ) -> Option<Record> {
        let granted = self.ended(lease)?;
        Some(Record {
            token: lease.token,
            fingerprint: granted.fingerprint,
            on_lapse: granted.on_lapse,
            attempt: lease.attempt,
            meta: granted.meta,
            created_at: receipt.created_at,
            completed_at: Some(receipt.completed_at),
            expires_at: receipt.expires_at,
            // An operator may have added to it meanwhile: then the store is asked at the end of this.
            keep_left: keep_for,
            replays: 0,
            state: State::finished(Arc::clone(response)),
        })
    }

    /// Takes back what is remembered of a claim that has ended.
    pub(super) fn ended(&self, lease: &Lease) -> Option<Granted> {
        let mut share = lock(self.share(&lease.slot));
        let is_this = share.granted.get(&lease.slot)?.token == lease.token;
        is_this.then(|| share.granted.remove(&lease.slot))?
    }

    pub(super) fn changing(&self, slot: &Slot) -> Changing<'_> {
        Changing {
            results: self,
            slot: *slot,
            is_known: false,
        }
    }

    pub(super) fn flush(&self) {
        for share in &self.shares {
            lock(share).generation += 1;
        }
        self.cache.clear();
    }

    pub(super) fn tally(&self) -> CacheTally {
        CacheTally {
            entries: u64::try_from(self.cache.len()).unwrap_or(u64::MAX),
            bytes: self.cache.weight(),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }

    fn age_max(&self, slot: &Slot, age_max: Duration) -> Duration {
        if age_max > AGE_MAX && lock(self.share(slot)).is_doubtful {
            AGE_MAX
        } else {
            age_max
        }
    }

    fn share(&self, slot: &Slot) -> &Mutex<Share> {
        &self.shares[usize::from(slot.as_bytes()[Slot::BYTES - 1]) % SHARES]
    }
}

/// Marked at the end of the change, not at its beginning: an answer that is older arrives either
/// before, and is thrown out here, or later, and finds another generation.
impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut share = lock(self.results.share(&self.slot));
        share.generation += 1;
        share.is_doubtful |= !self.is_known;
        self.results.cache.remove(&self.slot);
    }
}

#[derive(Clone)]
struct Weight {
    least: u64,
}

impl Weighter<Slot, Arc<Entry>> for Weight {
    fn weight(&self, _: &Slot, entry: &Arc<Entry>) -> u64 {
        let own = compact::heap(2 * size_of::<usize>() + size_of::<Entry>());
        let bytes = PLACE_BYTES + own + compact::bytes(&entry.record);
        u64::try_from(bytes).unwrap_or(u64::MAX / 2).max(self.least)
    }
}

#[cfg(test)]
mod tests;

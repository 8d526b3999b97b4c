//! The reference store: one process, sharded, bounded. Over its bound it refuses new keys rather
//! than forget a live one, and it forgets expired ones as it goes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::clock::{Clock, SystemClock};
use crate::entry::{Change, Entry, StoreClock};
use crate::fingerprint::Fingerprint;
use crate::lock;
use crate::operate::{Filter, Newest, NewestPage, Operate, Page, Resolved, Stats};
use crate::record::{Record, Replay, Token};
use crate::response::Response;
use crate::slot::Slot;
use crate::store::{
    Claim, Claimed, Completed, Lease, Release, Released, Renewed, Store, StoreError, StoreErrorKind,
};

use self::shard::Shard;

mod arena;
mod block;
mod finished;
mod looks;
mod shard;
#[cfg(test)]
mod tests;

const NAME: &str = "memory";
const SHARDS: usize = 128;

/// Records in this process's memory.
///
/// ```
/// use onlyonce_core::MemoryStore;
///
/// let store = MemoryStore::new().records_max(10_000).bytes_max(64 << 20);
/// # let _ = store;
/// ```
pub struct MemoryStore {
    clock: StoreClock,
    shards: Box<[Mutex<Shard>]>,
    agreed: Mutex<BTreeMap<String, Vec<u8>>>,
    records_max: usize,
    bytes_max: usize,
    records: AtomicUsize,
    bytes: AtomicUsize,
}

impl MemoryStore {
    /// An empty store of at most a million records and 1 GiB.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// The same on another clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let clock = StoreClock::new(clock);
        let now = clock.now();
        Self {
            clock,
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new(now))).collect(),
            agreed: Mutex::default(),
            records_max: 1_000_000,
            bytes_max: 1 << 30,
            records: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Refuses new keys beyond this many records.
    #[must_use]
    pub fn records_max(mut self, records_max: usize) -> Self {
        self.records_max = records_max;
        self
    }

    /// Refuses new keys once the stored records take this many bytes, with their answers, headers
    /// and what is told of them to people. What finds them comes on top: some 25 to 40 bytes a
    /// record, and up to a quarter for what has left.
    #[must_use]
    pub fn bytes_max(mut self, bytes_max: usize) -> Self {
        self.bytes_max = bytes_max;
        self
    }

    fn shard(&self, slot: &Slot) -> &Mutex<Shard> {
        &self.shards[slot.shard(SHARDS)]
    }

    /// Runs `step` on the slot's shard, atomically, and keeps the totals right.
    fn on_shard<T>(&self, slot: &Slot, step: impl FnOnce(&mut Shard, Duration) -> T) -> T {
        let mut shard = lock(self.shard(slot));
        let before = shard.size();
        let result = step(&mut shard, self.clock.now());
        self.account(before, shard.size());
        result
    }

    /// Runs `step` on the slot's entry, atomically.
    fn step<T>(&self, slot: &Slot, step: impl FnOnce(&mut Entry, Duration) -> (T, Change)) -> T {
        self.on_shard(slot, |shard, now| {
            shard.step(slot, None, |entry| step(entry, now))
        })
    }

    fn account(&self, before: shard::Size, after: shard::Size) {
        add_difference(&self.records, before.records, after.records);
        add_difference(&self.bytes, before.bytes, after.bytes);
    }

    fn is_full(&self) -> bool {
        self.records.load(Ordering::Relaxed) >= self.records_max
            || self.bytes.load(Ordering::Relaxed) >= self.bytes_max
    }

    fn sweep_all(&self, records_max: usize) -> usize {
        let mut left = records_max;
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = shard.size();
            left -= shard.sweep(self.clock.now(), left);
            self.account(before, shard.size());
        }
        records_max - left
    }

    /// The first live records behind the page's start that pass. One that cannot be among them is
    /// not read.
    fn first(&self, filter: &Filter, page: &Page) -> BTreeMap<Slot, Record> {
        let mut first = BTreeMap::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let now = self.clock.now();
            for live in shard.live(now, filter) {
                let slot = live.slot();
                let is_behind = page.after.is_none_or(|after| slot > after);
                let last = first.last_key_value().map(|(last, _)| *last);
                let is_full = first.len() >= page.records_max;
                if !is_behind || is_full && last.is_none_or(|last| slot > last) {
                    continue;
                }
                let record = live.record(now).filter(|record| filter.admits(record));
                first.extend(record.map(|record| (slot, record)));
                if first.len() > page.records_max {
                    first.pop_last();
                }
            }
        }
        first
    }
}

fn add_difference(total: &AtomicUsize, before: usize, after: usize) {
    if after > before {
        total.fetch_add(after - before, Ordering::Relaxed);
    } else if before > after {
        total.fetch_sub(before - after, Ordering::Relaxed);
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        if self.is_full() {
            self.sweep_all(usize::MAX);
        }
        let full = self.is_full();
        self.on_shard(&claim.slot, |shard, now| {
            shard.tidy(now);
            if full && shard.is_new(&claim.slot, now) {
                return Err(StoreError::new(NAME, StoreErrorKind::Full));
            }
            Ok(shard.claim(claim, now))
        })
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        Ok(self.step(&lease.slot, |entry, now| entry.renew(lease, lease_for, now)))
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        Ok(self.step(&lease.slot, |entry, now| {
            entry.complete(lease, response, keep_for, now)
        }))
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        Ok(self.on_shard(&lease.slot, |shard, now| shard.release(lease, why, now)))
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        let watched: Option<(Arc<Notify>, Duration)> =
            self.on_shard(slot, |shard, now| shard.watch(slot, seen, now));
        let Some((changed, lease_left)) = watched else {
            return Ok(());
        };
        // Registered before the shard is looked at again: a change in between is not missed.
        let notified = changed.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if self
            .on_shard(slot, |shard, now| shard.watch(slot, seen, now))
            .is_none()
        {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = notified => {}
            () = tokio::time::sleep(at_most.min(lease_left)) => {}
        }
        Ok(())
    }

    fn recall(&self, slot: &Slot, fingerprint: &Fingerprint) -> Option<Replay> {
        let shard = lock(self.shard(slot));
        shard.recall(slot, fingerprint, self.clock.now())
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

#[async_trait]
impl Operate for MemoryStore {
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        Ok(self.on_shard(slot, |shard, now| shard.get(slot, now)))
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        Ok(self.first(filter, page).into_iter().collect())
    }

    /// Reads few records besides those of the page: of the others it only looks when they began.
    async fn newest(
        &self,
        filter: &Filter,
        page: &Newest,
    ) -> Result<Vec<(Slot, Record)>, StoreError> {
        let mut newest = NewestPage::new(*page);
        for shard in &self.shards {
            let shard = lock(shard);
            let now = self.clock.now();
            for live in shard.live(now, filter) {
                let slot = live.slot();
                if newest.wants(live.created_at(), &slot)
                    && let Some(record) = live.record(now)
                    && filter.admits(&record)
                {
                    newest.offer(slot, record);
                }
            }
        }
        Ok(newest.into_records())
    }

    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        Ok(self.step(slot, |entry, now| entry.forget(now)))
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        Ok(self.step(slot, |entry, now| entry.extend(extra, now)))
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        Ok(self.step(slot, |entry, now| entry.resolve(response, keep_for, now)))
    }

    async fn discard(&self, slot: &Slot) -> Result<Resolved, StoreError> {
        Ok(self.step(slot, |entry, now| entry.discard(now)))
    }

    async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        Ok(self.sweep_all(records_max))
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let mut stats = Stats {
            bytes: self.bytes.load(Ordering::Relaxed) as u64,
            ..Stats::default()
        };
        for shard in &self.shards {
            let tally = lock(shard).tally(self.clock.now());
            stats.records += tally.records;
            stats.pending += tally.pending;
            stats.expired += tally.expired;
        }
        Ok(stats)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn number_replays(
        &self,
        replays: &[(Slot, u64)],
    ) -> Result<Vec<(Slot, u64)>, StoreError> {
        let mut numbers = Vec::with_capacity(replays.len());
        for (slot, count) in replays {
            let number = self.step(slot, |entry, now| {
                let change = entry.count_replays(*count, now);
                (entry.live(now).map(|kept| kept.replays), change)
            });
            numbers.extend(number.map(|number| (*slot, number)));
        }
        Ok(numbers)
    }

    async fn count_replays(&self, replays: &[(Slot, u64)]) -> Result<(), StoreError> {
        for (slot, count) in replays {
            self.step(slot, |entry, now| ((), entry.count_replays(*count, now)));
        }
        Ok(())
    }

    async fn agree(&self, name: &str, offer: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut agreed = lock(&self.agreed);
        Ok(agreed
            .entry(name.to_owned())
            .or_insert_with(|| offer.to_vec())
            .clone())
    }

    async fn agreed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(lock(&self.agreed).get(name).cloned())
    }
}

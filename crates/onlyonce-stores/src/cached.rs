//! Finished results in this process's memory, in front of a durable or shared store (B6,
//! docs/protocol.md#rule-15): a replay of one costs no round trip. Correct under delete and expiry.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::Resolved;
use onlyonce_core::{
    Claim, Claimed, Clock, Completed, Fingerprint, Lease, Operate, Release, Released, Replay,
    Response, Slot, Store, StoreError, SystemClock, async_trait,
};

use crate::wrap::{forward, operators};

pub use self::results::CacheTally;

use self::results::Results;

mod compact;
mod results;

const NAME: &str = "cached";
/// How old an entry of a shared store may get: for so long another process's `forget` may go
/// unnoticed.
pub const AGE_MAX: Duration = Duration::from_secs(5);
const ENTRIES_MAX: usize = 10_000;
const BYTES_MAX: u64 = 64 << 20;

/// A store that remembers the finished results that it has stored or read, and answers claims for
/// them itself.
///
/// Only finished records are remembered: they do not change until they expire, but by an
/// operator's `forget` or `extend`. These are in force at once in this process, if they come
/// through this wrapper, and **everywhere after [`lag`](Self::lag)**: 5 s on a shared store. An
/// entry is as old as the question it answered, counted from when that was sent, and is never
/// shown beyond the record's own end. What operators read is always asked of the store.
///
/// What is remembered is shown also while the store cannot be reached, but not once it has
/// [ended](Store::check) for this process.
///
/// There is no subscription to lose: the bound alone makes other processes' changes known. A program
/// that learns of such a change earlier can [`flush`](Self::flush).
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use onlyonce_core::MemoryStore;
/// use onlyonce_stores::Cached;
///
/// let shared = Cached::new(Arc::new(MemoryStore::new())).age_max(Duration::from_secs(1));
/// assert_eq!(shared.lag(), Duration::from_secs(1));
///
/// // A store of this process alone, all of whose users go through the wrapper.
/// let own = Cached::new(Arc::new(MemoryStore::new())).exclusive();
/// assert_eq!(own.lag(), Duration::ZERO);
/// ```
pub struct Cached {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    results: Results,
    age_max: Duration,
    is_exclusive: bool,
    entries_max: usize,
    bytes_max: u64,
}

impl Cached {
    /// Remembers results of `store`, which others use too: at most 10,000 and 64 MiB, each for at
    /// most 5 s.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            inner: store,
            clock: Arc::new(SystemClock::new()),
            results: Results::new(ENTRIES_MAX, BYTES_MAX),
            age_max: AGE_MAX,
            is_exclusive: false,
            entries_max: ENTRIES_MAX,
            bytes_max: BYTES_MAX,
        }
    }

    /// Remembers results as long as they are kept: right only if nobody uses the store but through
    /// this wrapper.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.is_exclusive = true;
        self.age_max = Duration::MAX;
        self
    }

    /// Remembers a result for at most this long; on a shared store never longer than 5 s.
    #[must_use]
    pub fn age_max(mut self, age_max: Duration) -> Self {
        self.age_max = if self.is_exclusive {
            age_max
        } else {
            age_max.min(AGE_MAX)
        };
        self
    }

    /// Remembers at most this many results.
    #[must_use]
    pub fn entries_max(mut self, entries_max: usize) -> Self {
        self.entries_max = entries_max;
        self.results = Results::new(self.entries_max, self.bytes_max);
        self
    }

    /// Remembers at most this many bytes of results. One that is too large for its share of them
    /// is not remembered.
    #[must_use]
    pub fn bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max;
        self.results = Results::new(self.entries_max, self.bytes_max);
        self
    }

    /// Ages by another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// After how long a `forget` or `extend` is in force everywhere, in whatever process it was done. Through this
    /// wrapper it is in force here at once.
    pub fn lag(&self) -> Duration {
        if self.is_exclusive {
            Duration::ZERO
        } else {
            self.age_max
        }
    }

    /// Forgets everything remembered, and what is being read right now.
    pub fn flush(&self) {
        self.results.flush();
    }

    /// How much is remembered, and how much it helped.
    pub fn tally(&self) -> CacheTally {
        self.results.tally()
    }

    /// Runs `change`, after which what is remembered of `slot` no longer counts, whatever came of
    /// it, and even if the caller goes away.
    async fn changing<T>(
        &self,
        slot: &Slot,
        change: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut changing = self.results.changing(slot);
        let answer = change.await;
        changing.is_known = answer.is_ok();
        answer
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Cached {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let sent = self.clock.now();
        if let Some(record) = self.results.get(&claim.slot, sent, self.age_max) {
            // What has ended has nothing to say, by way of this neither.
            self.inner.check()?;
            return Ok(Claimed::Taken(record));
        }
        let reading = self.results.reading(&claim.slot, sent);
        let claimed = self.inner.claim(claim).await?;
        match &claimed {
            Claimed::Taken(record) => self.results.keep(reading, record),
            Claimed::Granted { .. } => self.results.granted(claim),
            Claimed::Dead => {}
        }
        Ok(claimed)
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let reading = self.results.reading(&lease.slot, self.clock.now());
        let completed = self.inner.complete(lease, response, keep_for).await?;
        match &completed {
            Completed::Found(record) => self.results.keep(reading, record),
            Completed::Stored(receipt) => {
                let stored = self.results.stored(lease, response, keep_for, receipt);
                if let Some(record) = stored {
                    self.results.keep(reading, &record);
                }
            }
            Completed::Absent => {}
        }
        Ok(completed)
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        let reading = self.results.reading(&lease.slot, self.clock.now());
        let released = self.inner.release(lease, why).await?;
        self.results.ended(lease);
        match &released {
            Released::Found(record) => self.results.keep(reading, record),
            Released::Ended => {}
        }
        Ok(released)
    }

    /// What is remembered is at hand; what is not may be so further inside.
    fn recall(&self, slot: &Slot, fingerprint: &Fingerprint) -> Option<Replay> {
        let remembered = self.results.peek(slot, self.clock.now(), self.age_max);
        match remembered {
            Some(record) if record.fingerprint == *fingerprint => {
                // The claim says why it has ended.
                self.inner.check().ok()?;
                self.results.count_hit();
                Replay::of(&record)
            }
            // Another meaning: the claim says so.
            Some(_) => None,
            None => self.inner.recall(slot, fingerprint),
        }
    }

    forward!(straight: renew, settled, check, response_bytes_max, operate);
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Operate for Cached {
    async fn forget(&self, slot: &Slot) -> Result<bool, StoreError> {
        let inside = operators(&*self.inner, NAME)?;
        self.changing(slot, inside.forget(slot)).await
    }

    async fn extend(&self, slot: &Slot, extra: Duration) -> Result<bool, StoreError> {
        let inside = operators(&*self.inner, NAME)?;
        self.changing(slot, inside.extend(slot, extra)).await
    }

    async fn resolve(
        &self,
        slot: &Slot,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Resolved, StoreError> {
        let inside = operators(&*self.inner, NAME)?;
        self.changing(slot, inside.resolve(slot, response, keep_for))
            .await
    }

    async fn discard(&self, slot: &Slot) -> Result<Resolved, StoreError> {
        let inside = operators(&*self.inner, NAME)?;
        self.changing(slot, inside.discard(slot)).await
    }

    forward!(straight: get, get_durable, list, newest, sweep, sweep_ended, stats, ping, recheck);
    forward!(straight: count_replays, number_replays, agree, agreed);
    forward!(straight: connected, connections, is_on_a_server, hands_over_ended);
}

//! The counters: one histogram and one count an outcome for every operation, without a lock.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::Verb;

use super::Outcome;

/// The upper ends of the histogram's buckets, from 0.5 ms to 10 s.
pub const BUCKETS: [Duration; 14] = [
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2500),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// What was measured of a store. Counts only grow.
#[derive(Debug, Default)]
pub struct Meter {
    operations: [Counters; Verb::ALL.len()],
}

#[derive(Debug)]
struct Counters {
    /// How many took no longer than the bucket of the same number, and longer than the one
    /// before; the last for those beyond all buckets.
    buckets: [AtomicU64; BUCKETS.len() + 1],
    nanos: AtomicU64,
    outcomes: [AtomicU64; Outcome::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            buckets: array::from_fn(|_| AtomicU64::new(0)),
            nanos: AtomicU64::new(0),
            outcomes: array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Meter {
    /// What was measured so far.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            operations: Verb::ALL.map(|verb| self.read(verb)),
        }
    }

    pub(super) fn count(&self, verb: Verb, outcome: Outcome, took: Duration) {
        let counters = &self.operations[verb as usize];
        let bucket = BUCKETS.partition_point(|end| *end < took);
        counters.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        counters.nanos.fetch_add(nanos, Ordering::Relaxed);
        counters.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The bucket that 99 of 100 operations did not exceed so far; nothing before the first one, and
    /// the last bucket for what is beyond all of them.
    pub(super) fn p99(&self, verb: Verb) -> Option<Duration> {
        let seen = self.read(verb);
        let most = seen.count - seen.count / 100;
        let bucket = seen.buckets.partition_point(|count| *count < most);
        (seen.count > 0).then(|| BUCKETS[bucket.min(BUCKETS.len() - 1)])
    }

    fn read(&self, verb: Verb) -> OperationSnapshot {
        let counters = &self.operations[verb as usize];
        let mut count = 0;
        let buckets = array::from_fn(|bucket| {
            count += counters.buckets[bucket].load(Ordering::Relaxed);
            count
        });
        count += counters.buckets[BUCKETS.len()].load(Ordering::Relaxed);
        OperationSnapshot {
            verb,
            buckets,
            count,
            sum: Duration::from_nanos(counters.nanos.load(Ordering::Relaxed)),
            outcomes: array::from_fn(|it| counters.outcomes[it].load(Ordering::Relaxed)),
        }
    }
}

/// All counts at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    operations: [OperationSnapshot; Verb::ALL.len()],
}

impl Snapshot {
    /// Every operation, also those never asked for.
    pub fn operations(&self) -> &[OperationSnapshot] {
        &self.operations
    }

    /// One operation.
    pub fn of(&self, verb: Verb) -> &OperationSnapshot {
        &self.operations[verb as usize]
    }
}

/// The counts of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationSnapshot {
    /// Which.
    pub verb: Verb,
    /// How many took no longer than the [bucket](BUCKETS) of the same number.
    pub buckets: [u64; BUCKETS.len()],
    /// How many there were.
    pub count: u64,
    /// How long they took together.
    pub sum: Duration,
    outcomes: [u64; Outcome::ALL.len()],
}

impl OperationSnapshot {
    /// How many ended like this.
    pub fn outcome(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    /// The outcomes that happened, and how often.
    pub fn outcomes(&self) -> impl Iterator<Item = (Outcome, u64)> + '_ {
        let counted = Outcome::ALL.into_iter().zip(self.outcomes);
        counted.filter(|(_, count)| *count > 0)
    }

    /// How many were errors of the store.
    pub fn errors(&self) -> u64 {
        let errors = self.outcomes().filter(|(outcome, _)| outcome.is_error());
        errors.map(|(_, count)| count).sum()
    }
}

//! What a sender has done so far, for its owner's metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cause::Cause;

/// Counts since the sender was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Requests sent.
    pub attempts: u64,
    /// Of these, those that repeated an earlier one.
    pub retries: u64,
    /// Status requests: what has become of a key whose answer was lost.
    pub asked: u64,
    /// Operations that are done.
    pub succeeded: u64,
    /// Of these, those whose answer the service had kept from an earlier attempt.
    pub replayed: u64,
    /// Retries that were not made because too many were made lately.
    pub throttled: u64,
    causes: [u64; Cause::ALL.len()],
}

impl Counts {
    /// How many attempts ended like this.
    pub fn failed(&self, cause: Cause) -> u64 {
        self.causes[index(cause)]
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) attempts: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) asked: AtomicU64,
    pub(crate) succeeded: AtomicU64,
    pub(crate) replayed: AtomicU64,
    pub(crate) throttled: AtomicU64,
    causes: [AtomicU64; Cause::ALL.len()],
}

impl Counters {
    pub(crate) fn failed(&self, cause: Cause) {
        add(&self.causes[index(cause)]);
    }

    pub(crate) fn read(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            attempts: read(&self.attempts),
            retries: read(&self.retries),
            asked: read(&self.asked),
            succeeded: read(&self.succeeded),
            replayed: read(&self.replayed),
            throttled: read(&self.throttled),
            causes: std::array::from_fn(|at| read(&self.causes[at])),
        }
    }
}

pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn index(cause: Cause) -> usize {
    let mut all = Cause::ALL.iter();
    all.position(|other| *other == cause)
        .expect("all holds all")
}

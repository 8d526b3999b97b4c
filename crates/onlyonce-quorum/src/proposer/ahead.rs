//! Promises that came with an accepted value: who claimed a slot can finish it in one round trip, if
//! nobody else asked for a promise meanwhile. A hint only: what is forgotten here costs a round trip.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::Promise;

/// So many slots are remembered; the ones of longest ago are forgotten first.
const PROMISES_MAX: usize = 16_384;
/// Larger values are not worth it.
const VALUE_BYTES_MAX: usize = 4096;

/// What was accepted, and the promise that came with it.
pub(super) struct Ahead {
    pub(super) promise: Promise,
    pub(super) value: Bytes,
    /// When a majority had accepted it, by this process's clock.
    pub(super) since: Duration,
    /// Its place in the order of them all.
    number: u64,
}

#[derive(Default)]
pub(super) struct AheadPromises(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    by_key: BTreeMap<Arc<[u8]>, Ahead>,
    by_age: BTreeMap<u64, Arc<[u8]>>,
    numbers: u64,
}

impl AheadPromises {
    pub(super) fn take(&self, key: &Arc<[u8]>) -> Option<Ahead> {
        self.lock().take(key)
    }

    pub(super) fn keep(&self, key: &Arc<[u8]>, promise: Promise, value: &Bytes, since: Duration) {
        if value.len() > VALUE_BYTES_MAX {
            return;
        }
        let mut kept = self.lock();
        kept.take(key);
        if kept.by_key.len() >= PROMISES_MAX
            && let Some((_, oldest)) = kept.by_age.pop_first()
        {
            kept.by_key.remove(&oldest);
        }
        kept.numbers += 1;
        let ahead = Ahead {
            promise,
            value: value.clone(),
            since,
            number: kept.numbers,
        };
        kept.by_age.insert(ahead.number, Arc::clone(key));
        kept.by_key.insert(Arc::clone(key), ahead);
    }

    /// Also after a panic elsewhere: every critical section leaves the map whole.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn take(&mut self, key: &Arc<[u8]>) -> Option<Ahead> {
        let ahead = self.by_key.remove(key)?;
        self.by_age.remove(&ahead.number);
        Some(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ballot::Ballot;

    #[test]
    fn one_slot_too_many_costs_one_hint() {
        let kept = AheadPromises::default();
        let key = |nth: usize| Arc::from(&nth.to_be_bytes()[..]);
        let promise = Promise {
            ballot: Ballot::end_of(1),
            epoch: 1,
        };

        for nth in 0..=PROMISES_MAX {
            kept.keep(&key(nth), promise, &Bytes::new(), Duration::ZERO);
        }

        assert!(kept.take(&key(0)).is_none());
        assert!((1..=PROMISES_MAX).all(|nth| kept.take(&key(nth)).is_some()));
        assert!(kept.lock().by_age.is_empty());
    }
}

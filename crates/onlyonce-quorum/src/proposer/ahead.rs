//! Promises that came with an accepted value: who claimed a slot can finish it in one round trip, if
//! nobody else asked for a promise meanwhile. A hint only: what is forgotten here costs a round trip.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::ballot::Ballot;

/// So many slots are remembered.
const PROMISES_MAX: usize = 16_384;
/// Larger values are not worth it.
const VALUE_BYTES_MAX: usize = 4096;

/// What was accepted, and the promise that came with it.
pub(super) struct Ahead {
    pub(super) ballot: Ballot,
    pub(super) value: Bytes,
    /// When a majority had accepted it, by this process's clock.
    pub(super) since: Duration,
}

#[derive(Default)]
pub(super) struct AheadPromises(Mutex<BTreeMap<Arc<[u8]>, Ahead>>);

impl AheadPromises {
    pub(super) fn take(&self, key: &Arc<[u8]>) -> Option<Ahead> {
        self.lock().remove(key)
    }

    pub(super) fn keep(&self, key: &Arc<[u8]>, ballot: Ballot, value: &Bytes, since: Duration) {
        if value.len() > VALUE_BYTES_MAX {
            return;
        }
        let mut promises = self.lock();
        if promises.len() >= PROMISES_MAX {
            promises.clear();
        }
        let value = value.clone();
        promises.insert(
            Arc::clone(key),
            Ahead {
                ballot,
                value,
                since,
            },
        );
    }

    /// Also after a panic elsewhere: every critical section leaves the map whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<[u8]>, Ahead>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

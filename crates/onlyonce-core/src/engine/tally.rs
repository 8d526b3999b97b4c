//! Replay counts, gathered here and flushed in batches: bookkeeping never adds a round trip.

use std::sync::Mutex;
use std::time::Duration;

use crate::lock;
use crate::slot::SlotMap;

use super::Engine;
use super::call::Call;

const FLUSH_AFTER: Duration = Duration::from_secs(5);
/// Slots counted between two flushes; beyond them counts are dropped, never memory filled.
const TALLIED_SLOTS_MAX: usize = 100_000;

#[derive(Default)]
pub(super) struct Tally {
    counts: Mutex<SlotMap<u64>>,
}

impl Engine {
    pub(super) fn count_replay(&self, call: &Call) {
        let mut counts = lock(&self.inner.tally.counts);
        let first = counts.is_empty();
        if counts.len() < TALLIED_SLOTS_MAX || counts.contains_key(&call.slot) {
            *counts.entry(call.slot).or_default() += 1;
        }
        drop(counts);
        if first {
            let engine = std::sync::Arc::downgrade(&self.inner);
            tokio::spawn(async move {
                tokio::time::sleep(FLUSH_AFTER).await;
                if let Some(inner) = engine.upgrade() {
                    Engine { inner }.flush_replays().await;
                }
            });
        }
    }

    /// Sends the counts to the store now. They are for people: a failure only loses some.
    pub async fn flush_replays(&self) {
        let counts = std::mem::take(&mut *lock(&self.inner.tally.counts));
        if counts.is_empty() {
            return;
        }
        let counts: Vec<_> = counts.into_iter().collect();
        if let Some(operate) = self.inner.store.operate()
            && let Err(error) = operate.count_replays(&counts).await
        {
            tracing::warn!(target: "onlyonce", %error, "replay counts were not stored");
        }
    }
}

//! Requests that were refused because their key was taken, by their meaning: whoever comes back
//! with the same meaning and is not refused has chosen a new key.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::Fingerprint;

/// Who comes back later than this does something else.
const REMEMBERED: Duration = Duration::from_secs(300);
/// Refused requests remembered at most; the newest.
const REMEMBERED_MAX: usize = 256;

#[derive(Default)]
pub(crate) struct Retries {
    refused: Mutex<VecDeque<(Fingerprint, Duration)>>,
    /// How many there are, so that nobody waits for the lock while there are none.
    count: AtomicUsize,
}

impl Retries {
    pub(crate) fn refused(&self, fingerprint: &Fingerprint, now: Duration) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() == REMEMBERED_MAX {
            refused.pop_front();
        }
        refused.push_back((*fingerprint, now));
        self.count.store(refused.len(), Ordering::Relaxed);
    }

    /// Whether this request was refused before, and is now taken.
    pub(crate) fn came_back(
        &self,
        fingerprint: &Fingerprint,
        now: impl FnOnce() -> Duration,
    ) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let now = now();
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        while refused
            .front()
            .is_some_and(|(_, at)| now.saturating_sub(*at) > REMEMBERED)
        {
            refused.pop_front();
        }
        let before = refused.len();
        refused.retain(|(it, _)| it != fingerprint);
        self.count.store(refused.len(), Ordering::Relaxed);
        refused.len() < before
    }
}

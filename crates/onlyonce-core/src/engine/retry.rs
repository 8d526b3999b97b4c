//! Trying again what the store did not take: ever more rarely, and not for ever.

use std::time::Duration;

use super::Engine;

const RETRY_DELAY_MIN: Duration = Duration::from_millis(20);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);

/// Backoff between tries, up to a moment after which trying is pointless.
pub(super) struct Retry {
    pub(super) tries: u32,
    delay: Duration,
    at_most: Duration,
    /// When the first try failed.
    since: Option<Duration>,
}

impl Retry {
    pub(super) fn for_at_most(at_most: Duration) -> Self {
        Self {
            tries: 1,
            delay: RETRY_DELAY_MIN,
            at_most,
            since: None,
        }
    }

    /// Waits for the next try; false when it is too late for one.
    pub(super) async fn pause(&mut self, engine: &Engine) -> bool {
        let now = engine.now();
        let since = *self.since.get_or_insert(now);
        if now.saturating_sub(since) >= self.at_most {
            return false;
        }
        tokio::time::sleep(self.delay).await;
        self.tries = self.tries.saturating_add(1);
        self.delay = (self.delay * 3 / 2).min(RETRY_DELAY_MAX);
        true
    }
}

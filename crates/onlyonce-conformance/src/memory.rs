//! The bed of the reference store.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Clock, MemoryStore, Store, SystemClock, Timestamp, async_trait};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::TestBed;

/// The memory store on tokio's clock: paused on a runtime of one thread, real on any other.
pub struct MemoryBed {
    store: Arc<MemoryStore>,
}

impl MemoryBed {
    /// An empty store. Call it within the runtime of the test, once a test.
    pub fn new() -> Self {
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            tokio::time::pause();
        }
        let clock = Arc::new(BedClock(SystemClock::new()));
        Self {
            store: Arc::new(MemoryStore::with_clock(clock)),
        }
    }
}

impl Default for MemoryBed {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl TestBed for MemoryBed {
    fn name(&self) -> &str {
        "memory"
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    /// On a paused clock this jumps, once every task has done what it can.
    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }
}

/// A clock whose shown time moves with the other, also when that is paused.
struct BedClock(SystemClock);

/// 2025-01-01T00:00:00Z.
const BED_ORIGIN: Timestamp = Timestamp::from_millis(1_735_689_600_000);

impl Clock for BedClock {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        BED_ORIGIN.plus(self.now())
    }
}

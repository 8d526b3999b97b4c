//! Expired records leave the store in the background, in bounded batches, wherever the store does
//! not drop them by itself.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Inner;

/// How often an engine sweeps unless told otherwise.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(300);
/// How many records one step may drop, so that traffic gets in between.
const BATCH_RECORDS: usize = 1000;

/// Starts the sweeper of a store that can be swept. It ends with its engine.
pub(super) fn start(inner: &Arc<Inner>, every: Duration) {
    if inner.store.operate().is_none() {
        return;
    }
    // Engines that start together do not sweep together.
    let mut share = [0];
    inner.entropy.fill(&mut share);
    let first = every / 256 * u32::from(share[0]);
    let engine = Arc::downgrade(inner);
    tokio::spawn(async move {
        tokio::time::sleep(first).await;
        while check(&engine).await && sweep(&engine).await {
            tokio::time::sleep(every).await;
        }
    });
}

/// Looks after what the store depends on, also where that is seldom done otherwise; false once the
/// engine is gone.
async fn check(engine: &Weak<Inner>) -> bool {
    let Some(inner) = engine.upgrade() else {
        return false;
    };
    if let Some(operate) = inner.store.operate() {
        // Claims say what they fail of.
        drop(inner.agreement.check(operate).await);
    }
    true
}

/// Sweeps until nothing is left to drop; false once the engine is gone.
async fn sweep(engine: &Weak<Inner>) -> bool {
    loop {
        let Some(inner) = engine.upgrade() else {
            return false;
        };
        let Some(operate) = inner.store.operate() else {
            return false;
        };
        match operate.sweep(BATCH_RECORDS).await {
            Ok(swept) if swept < BATCH_RECORDS => return true,
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => {
                tracing::warn!(target: "onlyonce", %error, "expired records were not swept");
                return true;
            }
        }
    }
}

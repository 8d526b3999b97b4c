//! Expired records leave the store in the background, in bounded batches, wherever the store does
//! not drop them by itself.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::operate::Operate;
use crate::store::{StoreError, StoreErrorKind};

use super::{Engine, Inner};

/// How often an engine sweeps unless told otherwise.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(300);
/// How many records one step may drop, so that traffic gets in between.
const BATCH_RECORDS: usize = 1000;

/// When an engine sweeps.
pub(super) struct Sweeping {
    pub(super) every: Duration,
    /// Asks for a sweep before it is due.
    pub(super) early: Option<Arc<Notify>>,
}

impl Sweeping {
    /// Waits for the next sweep; says whether it was asked for early.
    async fn next(&self, at_most: Duration) -> bool {
        match &self.early {
            None => {
                tokio::time::sleep(at_most).await;
                false
            }
            Some(early) => tokio::select! {
                () = early.notified() => true,
                () = tokio::time::sleep(at_most) => false,
            },
        }
    }
}

/// Starts the sweeper of a store that can be swept. It ends with its engine.
pub(super) fn start(inner: &Arc<Inner>, sweeping: Sweeping) {
    if inner.store.operate().is_none() {
        return;
    }
    // Engines that start together do not sweep together.
    let mut share = [0];
    inner.entropy.fill(&mut share);
    let every = sweeping.every;
    let first = every / 256 * u32::from(share[0]);
    let engine = Arc::downgrade(inner);
    tokio::spawn(async move {
        let mut is_early = sweeping.next(first).await;
        while (is_early || check(&engine).await) && sweep(&engine).await {
            is_early = sweeping.next(every).await;
        }
    });
}

impl Engine {
    /// Drops at most `records_max` expired records out of the store and tells of their ends, as this
    /// engine does by itself in the background; says how many it dropped. Goes on if the caller goes
    /// away: what was dropped is told.
    pub async fn sweep(&self, records_max: usize) -> Result<usize, StoreError> {
        let inner = Arc::clone(&self.inner);
        let sweeping = tokio::spawn(async move {
            match inner.store.operate() {
                Some(operate) => drop_ended(&inner, operate, records_max).await,
                None => Ok(0),
            }
        });
        sweeping.await.unwrap_or_else(|ended| {
            Err(StoreError::new("engine", StoreErrorKind::Unavailable).caused_by(ended))
        })
    }
}

/// Sweeps once, and tells those who want to know of what has ended.
async fn drop_ended(
    inner: &Inner,
    operate: &dyn Operate,
    records_max: usize,
) -> Result<usize, StoreError> {
    let subscribers = || inner.subscribers.iter().filter(|it| it.wants_ended());
    if subscribers().next().is_none() {
        return operate.sweep(records_max).await;
    }
    let swept = operate.sweep_ended(records_max).await?;
    for ended in &swept.ended {
        for subscriber in subscribers() {
            subscriber.on_ended(ended);
        }
    }
    Ok(swept.records)
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
        match drop_ended(&inner, operate, BATCH_RECORDS).await {
            Ok(swept) if swept < BATCH_RECORDS => return true,
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => {
                tracing::warn!(target: "onlyonce", %error, "expired records were not swept");
                return true;
            }
        }
    }
}

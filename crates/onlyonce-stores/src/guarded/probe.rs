//! While the breaker is open, the store is asked in the background whether it answers: the first
//! answer closes the breaker, so that a short absence stays short for everyone.

use std::sync::{Arc, Weak};
use std::time::Duration;

use onlyonce_core::Store;

use super::breaker::{Breaker, BreakerState};

/// Asks until the breaker is closed, by this or otherwise, or the store is gone. A store without an
/// operators' side cannot be asked: then only a claim tries it, once the breaker's time is up.
pub(super) fn start(breaker: &Breaker, store: &Arc<dyn Store>, every: Duration, timeout: Duration) {
    // Nearly always, and without a lock.
    if breaker.state() == BreakerState::Closed {
        return;
    }
    if store.operate().is_none() || !breaker.wants_probe() {
        return;
    }
    let (breaker, store) = (breaker.clone(), Arc::downgrade(store));
    tokio::spawn(async move {
        while breaker.still_wants_probe() {
            tokio::time::sleep(every).await;
            match answers(&store, timeout).await {
                Some(true) => breaker.probed(),
                Some(false) => {}
                None => return,
            }
        }
    });
}

/// Whether the store answers; nothing if it is gone.
async fn answers(store: &Weak<dyn Store>, timeout: Duration) -> Option<bool> {
    let store = store.upgrade()?;
    let ping = store.operate()?.ping();
    let answered = tokio::time::timeout(timeout, ping).await;
    Some(matches!(answered, Ok(Ok(()))))
}

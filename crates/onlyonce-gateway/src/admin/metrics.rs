//! The page that Prometheus scrapes.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use onlyonce_core::{Clock as _, SystemClock};
use tokio::sync::Mutex;

use super::Admin;

/// How old the sizes may be: some stores look through all records to tell them.
const SIZES_AGE_MAX: Duration = Duration::from_secs(15);
/// Telling them may take no more than this part of the time.
const SIZES_SHARE: u32 = 20;
/// How long a scrape waits for them; they come with a later one then.
const SIZES_WAIT: Duration = Duration::from_secs(2);

/// When the sizes of the store are due to be asked for again.
pub(super) struct Sizes {
    clock: SystemClock,
    due: Mutex<Duration>,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            clock: SystemClock::new(),
            due: Mutex::new(Duration::ZERO),
        }
    }
}

pub(super) async fn page(State(admin): State<Admin>) -> Response {
    let metrics = Arc::clone(admin.observers.metrics());
    metrics.set_load(&admin.engine.load());
    let measured = tokio::spawn(measure(admin));
    drop(tokio::time::timeout(SIZES_WAIT, measured).await);
    (
        [(CONTENT_TYPE, onlyonce_metrics::CONTENT_TYPE)],
        metrics.page(),
    )
        .into_response()
}

/// Asks the store how much is in it, one at a time and not too often.
async fn measure(admin: Admin) {
    let Ok(mut due) = admin.sizes.due.try_lock() else {
        return;
    };
    let began = admin.sizes.clock.now();
    if began < *due {
        return;
    }
    let Some(operate) = admin.engine.store().operate() else {
        return;
    };
    if let Ok(stats) = operate.stats().await {
        admin.observers.metrics().set_stats(&stats);
    }
    let now = admin.sizes.clock.now();
    *due = now + SIZES_AGE_MAX.max(now.saturating_sub(began) * SIZES_SHARE);
}

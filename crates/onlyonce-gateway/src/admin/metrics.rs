//! The page that Prometheus scrapes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{self, Arc, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use onlyonce_core::operate::{InDoubt, Stats, in_doubt};
use onlyonce_core::{Clock as _, SystemClock};
use tokio::sync::Mutex;

use super::Admin;

/// How old the sizes may be: some stores look through all records to tell them.
const SIZES_AGE_MAX: Duration = Duration::from_secs(15);
/// Telling a scrape of them may take no more than this part of the time.
const SCRAPED_SHARE: u32 = 20;
/// The same for a console that is open: nobody is alerted by it.
const WATCHED_SHARE: u32 = 500;
/// How long a scrape waits for them; they come with a later one then.
const SIZES_WAIT: Duration = Duration::from_secs(2);
/// How long a page of the console waits for them.
const WATCHED_WAIT: Duration = Duration::from_millis(50);

/// Outcomes in doubt that are counted, at most.
const IN_DOUBT_MAX: usize = 10_000;

#[cfg(test)]
mod tests;

/// When the sizes of the store were asked for last.
pub(super) struct Sizes {
    clock: SystemClock,
    /// None before the first time.
    last: Mutex<Option<Asked>>,
    /// How often an operator has changed something.
    changes: AtomicU64,
    /// What the store said last, and when.
    counted: sync::Mutex<Option<(Duration, Stats)>>,
}

#[derive(Clone, Copy)]
struct Asked {
    at: Duration,
    took: Duration,
    /// The changes before it: the store told of none that came while it was asked, or perhaps not.
    changes: u64,
}

impl Sizes {
    /// An operator has changed something: the next scrape shall see it.
    pub(super) fn are_stale(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    fn note(&self, stats: Stats) {
        let counted = Some((self.clock.now(), stats));
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = counted;
    }

    /// What the store said last, and how long ago.
    pub(super) fn counted(&self) -> Option<(Stats, Duration)> {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, stats) = (*counted)?;
        Some((stats, self.clock.now().saturating_sub(at)))
    }

    /// Whether they are old enough for asking to take no more than this part of the time.
    fn are_due(&self, last: Option<Asked>, share: u32) -> bool {
        last.is_none_or(|Asked { at, took, changes }| {
            changes != self.changes()
                || self.clock.now() >= at + SIZES_AGE_MAX.max(took.saturating_mul(share))
        })
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            clock: SystemClock::new(),
            last: Mutex::default(),
            changes: AtomicU64::new(0),
            counted: sync::Mutex::default(),
        }
    }
}

/// Whether a scraper reads the older text format, and not this one.
fn wants_text(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT).iter();
    let accepted: Vec<_> = lines.filter_map(|it| it.to_str().ok()).collect();
    let names = |kind: &str| accepted.iter().any(|line| line.contains(kind));
    names("text/plain") && !names("application/openmetrics-text")
}

pub(super) async fn page(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let metrics = Arc::clone(admin.observers.metrics());
    metrics.set_load(&admin.engine.load());
    let measured = tokio::spawn(measure(admin, SCRAPED_SHARE));
    drop(tokio::time::timeout(SIZES_WAIT, measured).await);
    let (kind, page) = if wants_text(&headers) {
        (onlyonce_metrics::TEXT_CONTENT_TYPE, metrics.text_page())
    } else {
        (onlyonce_metrics::CONTENT_TYPE, metrics.page())
    };
    ([(CONTENT_TYPE, kind)], page).into_response()
}

/// Asks the store how much is in it, one at a time and not too often.
async fn measure(admin: Admin, share: u32) {
    let Ok(mut last) = admin.sizes.last.try_lock() else {
        return;
    };
    let (began, changes) = (admin.sizes.clock.now(), admin.sizes.changes());
    if !admin.sizes.are_due(*last, share) {
        return;
    }
    let Some(operate) = admin.engine.store().operate() else {
        return;
    };
    let metrics = admin.observers.metrics();
    if let Ok(stats) = operate.stats().await {
        metrics.set_stats(&stats);
        admin.sizes.note(stats);
    }
    if let Ok(found) = in_doubt(operate, &InDoubt::default(), IN_DOUBT_MAX).await {
        metrics.set_in_doubt(found.len() as u64);
    }
    let at = admin.sizes.clock.now();
    let took = at.saturating_sub(began);
    *last = Some(Asked { at, took, changes });
}

impl Admin {
    /// Counts again for somebody who watches, if that is due. Who polls does not wait for it, and who
    /// opens a page only for a moment: the next one has it.
    pub(super) async fn recount(&self, is_polled: bool) {
        let last = self.sizes.last.try_lock().map(|last| *last);
        if !last.is_ok_and(|last| self.sizes.are_due(last, WATCHED_SHARE)) {
            return;
        }
        let measured = tokio::spawn(measure(self.clone(), WATCHED_SHARE));
        if !is_polled {
            drop(tokio::time::timeout(WATCHED_WAIT, measured).await);
        }
    }
}

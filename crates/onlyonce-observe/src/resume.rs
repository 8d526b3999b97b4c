//! After a restart: the records that this instance stored before are found in the store, so that their
//! ends are told and counted too, or looked for in their time where the store hands them over. Each record
//! is one instance's, the one that holds its name, so that gateways on one store do not tell of the
//! same end. What ended meanwhile is told only where the store hands it over.

use std::sync::Arc;

use onlyonce_core::operate::{Filter, Page};
use onlyonce_core::{About, Clock as _, Engine, Record, Slot, StoreError, SystemClock};
use onlyonce_metrics::Metrics;

use crate::ends::{Ends, KEYS_MAX};

const PAGE_RECORDS: usize = 1000;

/// Looks for them, and hands them on. `is_alone` says that no other process has this store.
pub(crate) async fn resume(engine: Engine, metrics: Arc<Metrics>, ends: Arc<Ends>, is_alone: bool) {
    match earlier(&engine, is_alone).await {
        Ok(records) => {
            if !ends.are_handed_over() {
                count(&metrics, &records);
            }
            ends.resume(records);
        }
        Err(error) => tracing::warn!(
            target: "onlyonce",
            %error,
            "what was stored before this start could not be listed: its end is not told"
        ),
    }
}

fn count(metrics: &Metrics, records: &[(Slot, Record)]) {
    for (slot, record) in records {
        let about = About {
            slot,
            meta: &record.meta,
            fingerprint: None,
            intake: None,
            route: None,
        };
        let since = record.completed_at.unwrap_or(record.created_at);
        metrics.resumed(&about, record.keep_left, record.expires_at.since(since));
    }
}

/// The finished records of this instance that were claimed before the engine was opened.
async fn earlier(engine: &Engine, is_alone: bool) -> Result<Vec<(Slot, Record)>, StoreError> {
    let clock = SystemClock::new();
    let mut found = Vec::new();
    let Some(operate) = engine.store().operate() else {
        return Ok(found);
    };
    let mut page = Page {
        after: None,
        records_max: PAGE_RECORDS,
    };
    for _ in 0..KEYS_MAX / PAGE_RECORDS {
        let records = operate.list(&Filter::default(), &page).await?;
        let is_last = records.len() < PAGE_RECORDS;
        page.after = records.last().map(|(slot, _)| *slot);
        found.extend(records.into_iter().filter(|(_, record)| {
            record.response().is_some()
                && record.age() > clock.now()
                && (is_alone || *record.meta.holder == *engine.instance())
        }));
        if is_last {
            break;
        }
    }
    Ok(found)
}

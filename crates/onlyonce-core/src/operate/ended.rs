//! What a sweep hands over: records that ended by themselves, so that their ends can be told.

use std::sync::Arc;
use std::time::Duration;

use crate::entry::{Kept, Phase, timestamp};
use crate::fingerprint::Fingerprint;
use crate::record::{Meta, Record, Token};
use crate::response::Response;
use crate::slot::Slot;

/// A finished record whose time was over, and that the store has dropped.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Where it was.
    pub slot: Slot,
    /// Of which attempt.
    pub token: Token,
    /// For what.
    pub fingerprint: Fingerprint,
    /// For people.
    pub meta: Arc<Meta>,
    /// How long it was to be kept.
    pub keep_for: Duration,
    /// How long it was there, on the store's clock.
    pub lifetime: Duration,
    /// How often it was replayed, as far as the store has counted.
    pub replays: u64,
    /// Its answer, where that was [small enough](Self::RESPONSE_BYTES_MAX) to be read with it.
    pub response: Option<Arc<Response>>,
}

impl Ended {
    /// How many bytes of a stored answer are read for it at most: a sweep takes many records at a
    /// time, and of the answer only what it says it made is told.
    pub const RESPONSE_BYTES_MAX: usize = 16 << 10;

    /// The end of what a store kept in `slot`; nothing if it was not finished, or is not over.
    pub fn of_kept(slot: Slot, kept: &Kept, now: Duration) -> Option<Self> {
        let Phase::Finished(response) = &kept.phase else {
            return None;
        };
        if !kept.is_expired(now) {
            return None;
        }
        let since = kept.completed_at.unwrap_or(kept.created_at);
        Some(Self {
            slot,
            token: kept.token,
            fingerprint: kept.fingerprint,
            meta: Arc::clone(&kept.meta),
            keep_for: timestamp(kept.expires).since(since),
            lifetime: timestamp(now).since(since),
            replays: kept.replays,
            response: Some(Arc::clone(response)),
        })
    }

    /// The end of `record`, so long after its time was over; nothing if it was not finished.
    pub fn of_record(slot: Slot, record: &Record, late_by: Duration) -> Option<Self> {
        let response = record.response()?;
        let since = record.completed_at.unwrap_or(record.created_at);
        let keep_for = record.expires_at.since(since);
        Some(Self {
            slot,
            token: record.token,
            fingerprint: record.fingerprint,
            meta: Arc::clone(&record.meta),
            keep_for,
            lifetime: keep_for.saturating_add(late_by),
            replays: record.replays,
            response: Some(Arc::clone(response)),
        })
    }
}

/// What a sweep did.
#[derive(Debug, Default)]
pub struct Swept {
    /// How many records it dropped.
    pub records: usize,
    /// The finished ones among them, and those that a claim has replaced since the last sweep.
    pub ended: Vec<Ended>,
}

//! Hot keys: those that are replayed, refused or waited for most. A bounded count: a key that comes
//! when it is full takes the place of the coldest, and its count, so that none is missed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::extract::State;
use onlyonce_core::{About, Event, Meta, Slot, Subscriber};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::extract::Query;

/// Keys counted at a time.
const KEYS_MAX: usize = 1000;
const SHOWN: usize = 20;

/// The hottest keys of this gateway, since it started.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopView {
    /// The keys, hottest first.
    pub keys: Vec<HotKey>,
}

/// A key that many requests came with.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct HotKey {
    /// Its record's address, as 64 hex digits.
    pub slot: String,
    /// A harmless start of the key, and of its digest.
    pub key: String,
    /// The route or job.
    pub operation: String,
    /// Who asked last, where that is known.
    pub actor: Option<String>,
    /// How often its answer was replayed.
    pub replays: u64,
    /// How often a request with it was refused.
    pub refusals: u64,
    /// How many waited for it at once, at most.
    pub waiters: usize,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TopQuery {
    /// How many at most; 20 unless asked otherwise.
    limit: Option<usize>,
}

/// Counts what duplicates do.
#[derive(Default)]
pub(crate) struct HotKeys {
    counts: Mutex<BTreeMap<Slot, Count>>,
}

struct Count {
    meta: Arc<Meta>,
    /// What the key it took the place of had.
    inherited: u64,
    replays: u64,
    refusals: u64,
    waiters: usize,
}

impl Count {
    fn heat(&self) -> u64 {
        self.inherited + self.replays + self.refusals + self.waiters as u64
    }
}

impl Subscriber for HotKeys {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what makes a key hot is named; all else does not"
    )]
    fn on_event(&self, about: &About<'_>, event: &Event) {
        let (replays, refusals, waiters) = match event {
            Event::Replayed { .. } => (1, 0, 0),
            Event::Refused { .. } => (0, 1, 0),
            Event::Attached { waiters } => (0, 0, *waiters),
            _ => return,
        };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut inherited = 0;
        if counts.len() == KEYS_MAX && !counts.contains_key(about.slot) {
            let coldest = counts.iter().min_by_key(|(_, count)| count.heat());
            if let Some((slot, count)) = coldest.map(|(slot, count)| (*slot, count.heat())) {
                inherited = count;
                counts.remove(&slot);
            }
        }
        let count = counts.entry(*about.slot).or_insert_with(|| Count {
            meta: Arc::clone(about.meta),
            inherited,
            replays: 0,
            refusals: 0,
            waiters: 0,
        });
        count.meta = Arc::clone(about.meta);
        count.replays += replays;
        count.refusals += refusals;
        count.waiters = count.waiters.max(waiters);
    }
}

impl HotKeys {
    fn hottest(&self, limit: usize) -> Vec<HotKey> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hottest: Vec<_> = counts.iter().collect();
        hottest.sort_by_key(|(_, count)| std::cmp::Reverse(count.heat()));
        let view = |(slot, count): &(&Slot, &Count)| {
            let about = About {
                slot,
                meta: &count.meta,
                fingerprint: None,
                intake: None,
            };
            HotKey {
                slot: slot.to_string(),
                key: about.label().to_string(),
                operation: count.meta.operation.to_string(),
                actor: count.meta.actor.as_deref().map(str::to_owned),
                replays: count.replays,
                refusals: count.refusals,
                waiters: count.waiters,
            }
        };
        hottest.iter().take(limit).map(view).collect()
    }
}

pub(super) async fn top(
    State(admin): State<Admin>,
    Query(query): Query<TopQuery>,
) -> Json<TopView> {
    let keys = admin.observers.hot.hottest(query.limit.unwrap_or(SHOWN));
    Json(TopView { keys })
}

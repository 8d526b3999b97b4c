//! Replay counts, gathered here and flushed in batches: bookkeeping never adds a round trip. Where
//! somebody wants to know which replay it was, that is told with the flush: the store says what the
//! count is then, so that each replay has a number of its own, whichever process gave it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::event::{About, Event};
use crate::fingerprint::Fingerprint;
use crate::lock;
use crate::record::{Meta, Replay};
use crate::slot::{Slot, SlotMap};

use super::Engine;
use super::call::Call;

const FLUSH_AFTER: Duration = Duration::from_secs(5);
/// The same where somebody waits for the numbers.
const NUMBER_AFTER: Duration = Duration::from_millis(200);
/// Slots counted between two flushes; beyond them counts are dropped, never memory filled.
const TALLIED_SLOTS_MAX: usize = 100_000;
/// Replays that wait for their number; those beyond are told without one.
const UNNUMBERED_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct Tally {
    gathered: Mutex<Gathered>,
    /// Held while counts are on their way: numbers are told in their order.
    flushing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Gathered {
    counts: SlotMap<u64>,
    /// In the order in which they were given.
    unnumbered: Vec<Unnumbered>,
}

/// A replay whose number is not known yet.
struct Unnumbered {
    slot: Slot,
    meta: Arc<Meta>,
    fingerprint: Fingerprint,
    intake: Option<Arc<str>>,
    route: Option<Arc<str>>,
    told: Told,
}

/// What is told of a replay with its number.
struct Told {
    at: Timestamp,
    status: u16,
    original_at: Timestamp,
    original_trace: Option<Arc<str>>,
    attached: bool,
    resource: Option<Arc<str>>,
    took: Duration,
}

impl Engine {
    /// Counts a replay that a caller got, and tells of it once its number is known.
    pub(super) fn count_replay(
        &self,
        call: &Call,
        replay: &Replay,
        attached: bool,
        took: Duration,
    ) {
        let wanted = self.wants_numbers();
        // What is not stored has no count in the store.
        let is_stored = replay.expires_at.is_some();
        let unnumbered = wanted.then(|| self.unnumbered(call, replay, attached, took));
        let mut gathered = lock(&self.inner.tally.gathered);
        let first = gathered.counts.is_empty();
        let has_place =
            gathered.counts.len() < TALLIED_SLOTS_MAX || gathered.counts.contains_key(&call.slot);
        let is_counted = is_stored && has_place;
        if is_counted {
            *gathered.counts.entry(call.slot).or_default() += 1;
        }
        let has_room = is_counted && gathered.unnumbered.len() < UNNUMBERED_MAX;
        let untold = match unnumbered {
            Some(unnumbered) if has_room => {
                gathered.unnumbered.push(unnumbered);
                None
            }
            untold => untold,
        };
        drop(gathered);
        if let Some(untold) = untold {
            self.tell_number(untold, None);
        }
        if first && is_counted {
            self.flush_soon(if wanted { NUMBER_AFTER } else { FLUSH_AFTER });
        }
    }

    fn unnumbered(
        &self,
        call: &Call,
        replay: &Replay,
        attached: bool,
        took: Duration,
    ) -> Unnumbered {
        Unnumbered {
            slot: call.slot,
            meta: Arc::clone(&call.meta),
            fingerprint: call.fingerprint,
            intake: call.intake.clone(),
            route: call.route.clone(),
            told: Told {
                at: self.inner.clock.wall(),
                status: replay.response.status.as_u16(),
                original_at: replay.original_at.unwrap_or_default(),
                original_trace: replay.original_trace.clone(),
                attached,
                resource: replay.response.resource.as_deref().map(Into::into),
                took,
            },
        }
    }

    fn flush_soon(&self, after: Duration) {
        let engine = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            if let Some(inner) = engine.upgrade() {
                Engine { inner }.flush_replays().await;
            }
        });
    }

    /// Sends the counts to the store now. They are for people: a failure only loses some.
    pub async fn flush_replays(&self) {
        let _turn = self.inner.tally.flushing.lock().await;
        let gathered = std::mem::take(&mut *lock(&self.inner.tally.gathered));
        if gathered.counts.is_empty() {
            return;
        }
        let counts: Vec<_> = gathered.counts.into_iter().collect();
        let mut numbers = SlotMap::default();
        if let Some(operate) = self.inner.store.operate() {
            let counted = if gathered.unnumbered.is_empty() {
                operate.count_replays(&counts).await.map(|()| Vec::new())
            } else {
                operate.number_replays(&counts).await
            };
            match counted {
                Ok(totals) => numbers.extend(totals),
                Err(error) => {
                    tracing::warn!(target: "onlyonce", %error, "replay counts were not stored");
                }
            }
        }
        // The store says what they are after these: the first of these has the first number.
        for (slot, count) in counts {
            if let Some(total) = numbers.get_mut(&slot) {
                *total = total.saturating_sub(count);
            }
        }
        for unnumbered in gathered.unnumbered {
            let number = numbers.get_mut(&unnumbered.slot).map(|number| {
                *number += 1;
                *number
            });
            self.tell_number(unnumbered, number);
        }
    }

    fn tell_number(&self, unnumbered: Unnumbered, number: Option<u64>) {
        let about = About {
            slot: &unnumbered.slot,
            meta: &unnumbered.meta,
            fingerprint: Some(&unnumbered.fingerprint),
            intake: unnumbered.intake.as_deref(),
            route: unnumbered.route.as_deref(),
        };
        let told = unnumbered.told;
        let event = Event::ReplayCounted {
            number,
            at: told.at,
            status: told.status,
            original_at: told.original_at,
            original_trace: told.original_trace,
            attached: told.attached,
            resource: told.resource,
            took: told.took,
        };
        self.emit_about(&about, &event);
    }

    fn wants_numbers(&self) -> bool {
        let mut subscribers = self.inner.subscribers.iter();
        subscribers.any(|subscriber| subscriber.wants_replay_numbers())
    }
}

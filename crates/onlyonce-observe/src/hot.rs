//! Hot keys: those that are replayed, refused or waited for most. A bounded count: when it is full
//! the colder half goes, and who comes later starts with as much as those had, so that none that
//! is hot is missed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlyonce_core::slot::SlotMap;
use onlyonce_core::{About, Event, Meta, Reason, Slot, Subscriber};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keys that are counted for long; twice as many are counted until it is seen which are hotter.
const KEYS_MAX: usize = 1000;

/// Callers that are counted.
const CALLERS_MAX: usize = 10_000;

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

/// A caller, and how often it repeats itself or is refused.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BusyCaller {
    /// Who, where that is known.
    pub actor: Option<String>,
    /// How often it got a stored or shared answer.
    pub replays: u64,
    /// How often it used a key for something else.
    pub conflicts: u64,
    /// How often it was refused for another reason.
    pub refusals: u64,
}

#[derive(Default)]
struct CallerCount {
    replays: u64,
    conflicts: u64,
    refusals: u64,
}

impl CallerCount {
    fn sum(&self) -> u64 {
        self.replays + self.conflicts + self.refusals
    }
}

/// Counts what duplicates do.
#[derive(Default)]
pub struct HotKeys {
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    by_slot: SlotMap<Count>,
    /// The most that a key had which was dropped.
    coldest: u64,
    by_actor: BTreeMap<Option<Arc<str>>, CallerCount>,
}

struct Count {
    meta: Arc<Meta>,
    /// What it may have had before, and was dropped.
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
        let mut counts = self.counts();
        counts.count_caller(about.meta.actor.as_ref(), event);
        let inherited = counts.coldest;
        let count = counts.by_slot.entry(*about.slot);
        let count = count.or_insert_with(|| Count {
            meta: Arc::clone(about.meta),
            inherited,
            replays: 0,
            refusals: 0,
            waiters: 0,
        });
        if count.meta.actor != about.meta.actor {
            count.meta = Arc::clone(about.meta);
        }
        count.replays += replays;
        count.refusals += refusals;
        count.waiters = count.waiters.max(waiters);
        if counts.by_slot.len() > 2 * KEYS_MAX {
            counts.drop_colder_half();
        }
    }
}

impl Counts {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what is a conflict is named; all else is not"
    )]
    fn count_caller(&mut self, actor: Option<&Arc<str>>, event: &Event) {
        let is_known = self.by_actor.contains_key(&actor.cloned());
        if !is_known && self.by_actor.len() >= CALLERS_MAX {
            self.drop_quieter_callers();
        }
        let count = self.by_actor.entry(actor.cloned()).or_default();
        if let Event::Replayed { .. } = event {
            count.replays += 1;
        } else if let Event::Refused { reason, .. } = event {
            match reason {
                Reason::Mismatch | Reason::OtherCredential => count.conflicts += 1,
                _ => count.refusals += 1,
            }
        }
    }

    /// Makes room by the callers that were counted least.
    fn drop_quieter_callers(&mut self) {
        let mut sums: Vec<u64> = self.by_actor.values().map(CallerCount::sum).collect();
        sums.sort_unstable();
        let median = sums[sums.len() / 2];
        self.by_actor.retain(|_, count| count.sum() > median);
    }

    fn drop_colder_half(&mut self) {
        let mut heats: Vec<u64> = self.by_slot.values().map(Count::heat).collect();
        heats.select_nth_unstable_by(KEYS_MAX, |a, b| b.cmp(a));
        self.coldest = heats[KEYS_MAX];
        let hotter = heats[..KEYS_MAX]
            .iter()
            .filter(|heat| **heat > self.coldest);
        let mut room = KEYS_MAX - hotter.count();
        self.by_slot.retain(|_, count| {
            let is_hotter = count.heat() > self.coldest;
            let stays = is_hotter || (count.heat() == self.coldest && room > 0);
            room -= usize::from(stays && !is_hotter);
            stays
        });
    }
}

impl HotKeys {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The callers that were replayed, refused or in conflict most, at most `limit`.
    pub fn busiest(&self, limit: usize) -> Vec<BusyCaller> {
        let counts = self.counts();
        let counted = counts.by_actor.iter().filter(|(_, count)| count.sum() > 0);
        let mut busiest: Vec<_> = counted.collect();
        busiest.sort_by(|(one, a), (other, b)| b.sum().cmp(&a.sum()).then(one.cmp(other)));
        let view = |(actor, count): &(&Option<Arc<str>>, &CallerCount)| BusyCaller {
            actor: actor.as_deref().map(str::to_owned),
            replays: count.replays,
            conflicts: count.conflicts,
            refusals: count.refusals,
        };
        busiest.iter().take(limit).map(view).collect()
    }

    /// The hottest keys, at most `limit`.
    pub fn hottest(&self, limit: usize) -> Vec<HotKey> {
        let counts = self.counts();
        let mut hottest: Vec<_> = counts.by_slot.iter().collect();
        hottest.sort_by_key(|(_, count)| std::cmp::Reverse(count.heat()));
        let view = |(slot, count): &(&Slot, &Count)| {
            let about = About {
                slot,
                meta: &count.meta,
                fingerprint: None,
                intake: None,
                route: None,
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

#[cfg(test)]
mod tests {
    use onlyonce_core::{Key, SlotSecret};

    use super::*;

    #[test]
    fn a_hot_key_stays_among_many_cold_ones_and_they_stay_bounded() {
        let secret = SlotSecret::from_bytes([7; SlotSecret::BYTES]);
        let key = Key::parse(b"a-key-like-any-other", &Default::default()).unwrap();
        let meta = Arc::new(Meta {
            hint: secret.hint(&key),
            operation: "/payments".into(),
            actor: None,
            holder: "a".into(),
            trace: None,
            credential: None,
        });
        let hot = HotKeys::default();
        let ask = |number: u32| {
            let mut slot = [0; Slot::BYTES];
            slot[..4].copy_from_slice(&number.to_le_bytes());
            let about = About {
                slot: &Slot::from_bytes(slot),
                meta: &meta,
                fingerprint: None,
                intake: None,
                route: None,
            };
            let event = Event::Attached { waiters: 1 };
            hot.on_event(&about, &event);
            let reason = Reason::InProgress;
            let took = std::time::Duration::ZERO;
            let original = None;
            let event = Event::Refused {
                reason,
                original,
                took,
            };
            hot.on_event(&about, &event);
        };
        for number in 1..10_000 {
            ask(number);
            if number % 100 == 0 {
                ask(0);
            }
        }

        let hottest = hot.hottest(usize::MAX);
        let slot_zero = "0".repeat(2 * Slot::BYTES);
        assert_eq!(hottest[0].slot, slot_zero);
        assert_eq!((hottest[0].refusals, hottest[0].waiters), (99, 1));
        assert!((KEYS_MAX..=2 * KEYS_MAX).contains(&hottest.len()));
    }
}

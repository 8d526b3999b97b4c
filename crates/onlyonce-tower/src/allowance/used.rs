//! How much each caller keeps, and until when. Records that expire at nearly the same time are
//! counted together, so that a caller takes a bounded space here however many keys it has.

use std::collections::BTreeMap;
use std::time::Duration;

use onlyonce_core::Slot;
use onlyonce_core::slot::SlotMap;

use super::{AllowanceRule, CALLERS_MAX, OTHERS, RETRY_AFTER};

/// Into how many moments a retention is cut: a record counts that share of it too long at most.
const CUTS: u32 = 16;
/// Moments remembered of one caller; retentions of its own choice cannot make more.
const MOMENTS_MAX: usize = 64;
/// How often everyone is looked at for what has expired, when there is no place for a newcomer.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// What all callers use.
#[derive(Default)]
pub(super) struct Used {
    callers: SlotMap<Usage>,
    tidied: Option<Duration>,
}

/// What one caller uses.
#[derive(Default)]
struct Usage {
    running: u64,
    keys: u64,
    bytes: u64,
    /// What expires when.
    expiring: BTreeMap<Duration, Share>,
}

#[derive(Clone, Copy, Default)]
struct Share {
    keys: u64,
    bytes: u64,
}

impl Used {
    /// If `caller` has no room for a new key: when some of it will be free again.
    pub(super) fn full(
        &mut self,
        caller: &Slot,
        rule: &AllowanceRule,
        now: Duration,
    ) -> Option<Duration> {
        let caller = self.known(*caller, now);
        let usage = self.callers.get_mut(&caller)?;
        usage.expire(now);
        let below = |used, most: Option<u64>| most.is_none_or(|most| used < most);
        if below(usage.running + usage.keys, rule.keys_max) && below(usage.bytes, rule.bytes_max) {
            return None;
        }
        let first = usage.expiring.keys().next();
        Some(first.map_or(RETRY_AFTER, |at| at.saturating_sub(now)))
    }

    /// Counts a key that runs; says under which name.
    pub(super) fn start(&mut self, caller: Slot, now: Duration) -> Slot {
        let caller = self.known(caller, now);
        self.callers.entry(caller).or_default().running += 1;
        caller
    }

    /// A key that ran left nothing behind.
    pub(super) fn give_back(&mut self, caller: &Slot) {
        if let Some(usage) = self.callers.get_mut(caller) {
            usage.running = usage.running.saturating_sub(1);
            if usage.is_empty() {
                self.callers.remove(caller);
            }
        }
    }

    /// A key that ran is kept for so long.
    pub(super) fn keep(&mut self, caller: &Slot, bytes: u64, now: Duration, keep_for: Duration) {
        let usage = self.callers.entry(*caller).or_default();
        usage.running = usage.running.saturating_sub(1);
        usage.expire(now);
        usage.keep(bytes, now, keep_for);
    }

    /// The name a caller is known by: its own, or that of all for whom there is no place.
    fn known(&mut self, caller: Slot, now: Duration) -> Slot {
        if self.callers.len() < CALLERS_MAX || self.callers.contains_key(&caller) {
            return caller;
        }
        let due = self.tidied.is_none_or(|at| now >= at + TIDY_EVERY);
        if due {
            self.tidied = Some(now);
            self.callers.retain(|_, usage| {
                usage.expire(now);
                !usage.is_empty()
            });
        }
        if self.callers.len() < CALLERS_MAX {
            caller
        } else {
            OTHERS
        }
    }
}

impl Usage {
    fn is_empty(&self) -> bool {
        self.running == 0 && self.expiring.is_empty()
    }

    fn expire(&mut self, now: Duration) {
        while let Some(first) = self.expiring.first_entry()
            && *first.key() <= now
        {
            let share = first.remove();
            self.keys -= share.keys;
            self.bytes -= share.bytes;
        }
    }

    fn keep(&mut self, bytes: u64, now: Duration, keep_for: Duration) {
        self.keys += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let share = self.expiring.entry(moment(now, keep_for)).or_default();
        share.keys += 1;
        share.bytes = share.bytes.saturating_add(bytes);
        if self.expiring.len() > MOMENTS_MAX
            && let Some((_, first)) = self.expiring.pop_first()
            && let Some(mut next) = self.expiring.first_entry()
        {
            next.get_mut().keys += first.keys;
            next.get_mut().bytes += first.bytes;
        }
    }
}

/// When a record expires, rounded up to one of the moments its retention is cut into.
fn moment(now: Duration, keep_for: Duration) -> Duration {
    let cut = u64::try_from((keep_for / CUTS).as_millis()).unwrap_or(u64::MAX);
    let cut = cut.max(1);
    let at = now.saturating_add(keep_for).as_millis();
    let at = u64::try_from(at).unwrap_or(u64::MAX);
    Duration::from_millis(at.div_ceil(cut).saturating_mul(cut))
}

#[cfg(test)]
mod tests;

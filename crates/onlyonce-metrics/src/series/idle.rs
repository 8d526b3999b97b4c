//! Which intakes nobody asks for any more: their place goes to others once all are taken. Done when a
//! page is written, so that a request pays nothing for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{ByIntake, Intake, Known, OTHER, SeriesMap, VALUES_MAX, conflicts, expiries, of_route};

/// How long an intake keeps its place without a request, where others have none.
const IDLE_MAX: Duration = Duration::from_secs(60 * 60);

/// How long a growing count has not grown, as far as it was looked at.
#[derive(Debug, Default)]
pub(super) struct Quiet(Mutex<Option<(Duration, u64)>>);

impl Quiet {
    /// Takes note of the count.
    pub(super) fn note(&self, now: Duration, count: u64) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|(_, seen)| seen != count) {
            *last = Some((now, count));
        }
    }

    fn is_over(&self, now: Duration, span: Duration) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|(since, _)| now.saturating_sub(since) >= span)
    }
}

impl SeriesMap {
    /// Takes their place from idle intakes, if all places are taken.
    pub(super) fn forget_idle(&self, now: Duration) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.intakes.len() < VALUES_MAX {
            return;
        }
        let idle: Vec<Arc<str>> = known
            .intakes
            .iter()
            .filter(|(name, it)| is_named(name) && it.quiet.is_over(now, IDLE_MAX))
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for intake in idle {
            self.forget(&mut known, &intake);
        }
    }

    fn forget(&self, known: &mut Known, intake: &Arc<str>) {
        let all = &self.all;
        known.intakes.remove(intake);
        for (operation, by_intake) in &mut known.by_operation {
            if by_intake.remove(intake) {
                let (kinds, of_both) = of_route(operation, intake);
                for kind in &kinds {
                    all.requests.remove(kind);
                    all.duration_ms.remove(kind);
                }
                all.replayed.remove(&of_both);
                all.held_ms.remove(&of_both);
            }
        }
        let of = Intake {
            intake_id: Arc::clone(intake),
        };
        all.hit_rate.remove(&of);
        all.acquired.remove(&of);
        all.wait_ms.remove(&of);
        all.timeouts.remove(&of);
        all.abandoned.remove(&of);
        all.retried.remove(&of);
        all.active.remove(&of);
        all.lifetime_ms.remove(&of);
        all.duplicate_age_ms.remove(&of);
        for conflict in conflicts(intake) {
            all.conflicts.remove(&conflict);
        }
        for expiry in expiries(intake) {
            all.expired.remove(&expiry);
        }
    }
}

impl ByIntake {
    fn remove(&mut self, intake: &Arc<str>) -> bool {
        self.named.remove(intake).is_some()
    }
}

/// Whether a client chose this name. No intake at all, and what all others are called, stay.
fn is_named(intake: &str) -> bool {
    !intake.is_empty() && intake != OTHER
}

#[cfg(test)]
mod tests;

//! Of a store that hands over what has ended: when a sweep finds something, and what only this process
//! knows of a key. Other processes sweep the store too; whichever is handed an end tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_core::Slot;
use tokio::sync::Notify;

use super::KEYS_MAX;

/// How long after a key's end it is looked for: at once, and again where somebody held its row, or
/// it remembers a given back claim for a lease. The engine's own sweeps find what is later still.
const LOOKS_AFTER_SECS: [u64; 3] = [1, 6, 41];
/// How long an intake is remembered after its key ended: another process was handed the end.
const INTAKE_KEPT: Duration = Duration::from_secs(600);

pub(super) struct Awaited {
    sweep: Arc<Notify>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// In which seconds there is something to sweep.
    looks: BTreeSet<u64>,
    /// Of which intakes keys are, which a record does not say, and when they end.
    intakes: BTreeMap<Slot, (Box<str>, Duration)>,
    /// When intakes were last looked through for what was told elsewhere.
    tidied: Duration,
}

impl Awaited {
    pub(super) fn new(sweep: Arc<Notify>) -> Self {
        Self {
            sweep,
            known: Mutex::default(),
        }
    }

    /// A key is stored until `at`.
    pub(super) fn stored(&self, slot: Slot, intake: Option<&str>, at: Duration) {
        self.look_at(at);
        let mut known = self.known();
        match intake {
            Some(intake) if known.intakes.len() < KEYS_MAX => {
                known.intakes.insert(slot, (intake.into(), at));
            }
            // The slot may have been another's before.
            Some(_) | None => drop(known.intakes.remove(&slot)),
        }
    }

    /// Something ends `at`.
    pub(super) fn look_at(&self, at: Duration) {
        let mut known = self.known();
        if known.looks.len() < KEYS_MAX {
            let looks = LOOKS_AFTER_SECS.map(|after| at.as_secs().saturating_add(after));
            known.looks.extend(looks);
        }
    }

    /// The intake of a key whose end is told.
    pub(super) fn intake_of(&self, slot: &Slot) -> Option<Box<str>> {
        self.known().intakes.remove(slot).map(|(intake, _)| intake)
    }

    /// A key has ended by an operator.
    pub(super) fn forget(&self, slot: &Slot) {
        drop(self.known().intakes.remove(slot));
    }

    /// Asks for a sweep if something ended by `now`.
    pub(super) fn look(&self, now: Duration) {
        let mut known = self.known();
        let later = known.looks.split_off(&(now.as_secs() + 1));
        let is_due = !std::mem::replace(&mut known.looks, later).is_empty();
        if now.saturating_sub(known.tidied) > INTAKE_KEPT {
            known.tidied = now;
            known.intakes.retain(|_, (_, at)| *at + INTAKE_KEPT > now);
        }
        drop(known);
        if is_due {
            self.sweep.notify_one();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

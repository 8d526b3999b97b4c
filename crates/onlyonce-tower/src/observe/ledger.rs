//! The keys that were seen, and what enforcing would know of each. Bounded: the oldest goes first.

use std::time::Duration;

use hashlink::LinkedHashMap;
use onlyonce_core::policy::Duplicate;
use onlyonce_core::{Fingerprint, Reason, Slot};

use super::Sight;

/// The keys that are remembered, the oldest first.
pub(super) struct Ledger {
    keys: LinkedHashMap<Slot, Entry>,
    keys_max: usize,
    /// Numbers the requests that would have run.
    runs: u64,
    forgotten: u64,
}

struct Entry {
    meaning: Meaning,
    /// The run that the state is about.
    run: u64,
    state: State,
}

/// What a request under a key asks for, and with which credential that was not verified.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) fingerprint: Fingerprint,
    pub(super) credential: Option<[u8; 32]>,
}

enum State {
    Running,
    Ended { end: End, until: Duration },
}

/// How a request that would have run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its answer would have been stored.
    Stored,
    /// A marker would have been stored in place of its answer.
    TooLarge,
    /// The key would have been free again.
    Released,
    /// The outcome is unknown, and would have been held for a decision.
    InDoubt,
    /// The outcome is unknown, and the next request would have run again.
    Lapsed,
}

/// A request that would have run: how it ends is noted with its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    slot: Slot,
    number: u64,
}

impl Ledger {
    pub(super) fn new(keys_max: usize) -> Self {
        Self {
            keys: LinkedHashMap::new(),
            keys_max,
            runs: 0,
            forgotten: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// What enforcing would make of a request, and the run that it is if it would run.
    pub(super) fn see(
        &mut self,
        slot: Slot,
        meaning: Meaning,
        duplicate: Duplicate,
        now: Duration,
    ) -> (Sight, Option<Run>) {
        let sight = match self.keys.get(&slot) {
            None => Sight::First,
            Some(entry) => entry.judge(&meaning, duplicate, now),
        };
        if !matches!(sight, Sight::First | Sight::Rerun) {
            return (sight, None);
        }
        self.runs += 1;
        let entry = Entry {
            meaning,
            run: self.runs,
            state: State::Running,
        };
        // What was there goes to the end with it.
        if self.keys.insert(slot, entry).is_none() && self.keys.len() > self.keys_max {
            self.keys.pop_front();
            self.forgotten += 1;
        }
        let run = Run {
            slot,
            number: self.runs,
        };
        (sight, Some(run))
    }

    /// Notes how a run ended; `until` is when its key would be forgotten.
    pub(super) fn end(&mut self, run: Run, end: End, until: Duration) {
        // Its key may be forgotten by now, or be that of a later run.
        let entry = self.keys.get_mut(&run.slot);
        if let Some(entry) = entry.filter(|entry| entry.run == run.number) {
            entry.state = State::Ended { end, until };
        }
    }
}

impl Entry {
    fn judge(&self, meaning: &Meaning, duplicate: Duplicate, now: Duration) -> Sight {
        let is_same = self.meaning.fingerprint == meaning.fingerprint;
        match self.state {
            State::Ended { until, .. } if until <= now => return Sight::First,
            State::Ended {
                end: End::Released, ..
            } if is_same => return Sight::Rerun,
            State::Ended {
                end: End::Released, ..
            } => return Sight::First,
            State::Ended { .. } | State::Running => {}
        }
        if !is_same {
            let is_credential = self.meaning.credential != meaning.credential;
            return Sight::Refused(if is_credential {
                Reason::OtherCredential
            } else {
                Reason::Mismatch
            });
        }
        match (&self.state, duplicate) {
            (State::Running, Duplicate::Wait(_)) => Sight::Attached,
            (State::Running, Duplicate::Refuse) => Sight::Refused(Reason::InProgress),
            (State::Ended { end, .. }, _) => match end {
                End::Stored => Sight::Replay,
                End::TooLarge => Sight::Refused(Reason::ResponseTooLarge),
                End::InDoubt => Sight::Refused(Reason::OutcomeUnknown),
                End::Lapsed | End::Released => Sight::Rerun,
            },
        }
    }
}

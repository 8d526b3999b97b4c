//! The policies of a run, and the few of their terms the checker must know. Short leases and
//! retentions, so that lapses and expiry really happen within a run.

use std::sync::Arc;

use onlyonce_core::policy::{Duplicate, Fate, StoreDown, StoredRule};
use onlyonce_core::{OnLapse, Policy};

use super::clock::{Ms, millis};
use super::dice::Dice;

/// The shortest lease there is: a third of it is longer than any ordinary latency.
pub(super) const LEASE_MIN: Ms = 40;
/// The longest lease there is.
pub(super) const LEASE_MAX: Ms = 250;
/// The longest retention a claim asks for.
pub(super) const KEEP_MAX: Ms = 2000;
const RETRY_AFTER: Ms = 40;

#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) lease: Ms,
    pub(super) keep: Ms,
    pub(super) on_lapse: OnLapse,
    /// How long a duplicate waits; nothing if it does not.
    pub(super) patience: Option<Ms>,
    pub(super) waiters_max: usize,
    pub(super) local_waiters_max: usize,
    pub(super) execution_max: Ms,
    /// Runs without protection when the store is down.
    pub(super) open: bool,
    pub(super) stored: Stored,
}

/// Which answers are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    All,
    Success,
    NotUnavailable,
}

impl Stored {
    pub(super) fn stores(self, status: u16) -> bool {
        match self {
            Self::All => true,
            Self::Success => status < 300,
            Self::NotUnavailable => status != 503,
        }
    }

    /// What becomes of a key: under `hold` it is free again only if its answer says that nothing had
    /// begun.
    pub(super) fn fate(self, status: u16, on_lapse: OnLapse) -> Fate {
        let had_not_begun = self == Self::NotUnavailable && status == 503;
        if self.stores(status) {
            Fate::Stored
        } else if on_lapse == OnLapse::Rerun || had_not_begun {
            Fate::Released
        } else {
            Fate::InDoubt
        }
    }

    fn rule(self) -> StoredRule {
        match self {
            Self::All => StoredRule::all(),
            Self::Success => StoredRule::success(),
            Self::NotUnavailable => StoredRule::all().except(&[503]),
        }
    }
}

impl Terms {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let lease = dice.pick(&[LEASE_MIN, 60, 100, 150, LEASE_MAX]);
        Self {
            lease,
            keep: dice.pick(&[60, 200, 600, KEEP_MAX]),
            on_lapse: dice.pick(&[OnLapse::Rerun, OnLapse::Rerun, OnLapse::Hold]),
            patience: dice.pick(&[None, Some(30), Some(150), Some(500), Some(1500)]),
            waiters_max: dice.pick(&[1, 2, 10]),
            local_waiters_max: dice.pick(&[1, 3, 100]),
            execution_max: lease * dice.between(2..=6),
            open: dice.chance(100),
            stored: dice.pick(&[
                Stored::All,
                Stored::All,
                Stored::Success,
                Stored::NotUnavailable,
            ]),
        }
    }

    /// The same key under other terms: a rolling configuration change, or another route to it.
    pub(super) fn vary(self, dice: &mut Dice) -> Self {
        let other = Self::draw(dice);
        let mut mixed = self;
        for _ in 0..2 {
            match dice.below(5) {
                0 => mixed.lease = other.lease,
                1 => mixed.keep = other.keep,
                2 => mixed.on_lapse = other.on_lapse,
                3 => mixed.patience = other.patience,
                _ => mixed.stored = other.stored,
            }
        }
        mixed
    }

    pub(super) fn policy(&self, base: &Policy) -> Arc<Policy> {
        Arc::new(Policy {
            lease_for: millis(self.lease),
            keep_for: millis(self.keep),
            on_lapse: self.on_lapse,
            duplicate: match self.patience {
                Some(patience) => Duplicate::Wait(millis(patience)),
                None => Duplicate::Refuse,
            },
            waiters_max: self.waiters_max,
            local_waiters_max: self.local_waiters_max,
            execution_max: millis(self.execution_max),
            store_down: if self.open {
                StoreDown::Open
            } else {
                StoreDown::Closed
            },
            retry_after: millis(RETRY_AFTER),
            stored: self.stored.rule(),
            ..base.clone()
        })
    }
}

/// What a handler will do.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub(super) takes: Ms,
    pub(super) gives: Gives,
    /// The answer is not to be stored, whatever the policy says.
    pub(super) opts_out: bool,
    /// Keeps its answer for another time than the call asked.
    pub(super) keep: Option<Ms>,
    /// Its process crashes after the work, before the answer is stored.
    pub(super) crashes: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Gives {
    Status(u16),
    NotRun,
    Unknown,
    Panic,
}

impl Work {
    pub(super) fn draw(dice: &mut Dice, terms: &Terms, crashes_permille: u64) -> Self {
        let takes = match dice.below(20) {
            0..6 => 0,
            6..14 => dice.between(1..=terms.lease / 2),
            14..19 => dice.between(terms.lease / 2..=terms.lease * 3),
            _ => terms.execution_max + dice.between(1..=terms.lease),
        };
        let gives = match dice.below(20) {
            0..11 => Gives::Status(200),
            11..13 => Gives::Status(422),
            13 => Gives::Status(500),
            14 => Gives::Status(503),
            15..17 => Gives::NotRun,
            17 => Gives::Unknown,
            18 => Gives::Panic,
            _ => Gives::Status(201),
        };
        Self {
            takes,
            gives,
            opts_out: dice.chance(50),
            keep: dice.chance(100).then(|| dice.between(40..=800)),
            crashes: dice.chance(crashes_permille),
        }
    }
}

//! What a worker does, drawn from the seed: which keys it calls, under which rules, and what the
//! handlers do. A key's nature is drawn from its number, so that all workers agree on it.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::policy::{Duplicate, StoreDown, StoredRule};
use onlyonce_core::{OnLapse, Policy, SlotSecret};
use serde::{Deserialize, Serialize};

use super::clock::{Micros, micros};
use super::log::Terms;
use crate::sim::dice::Dice;

/// How long an answer is kept that is not meant to expire during a run, in milliseconds.
const KEEP_LONG: u64 = 3_600_000;
/// How many payloads there are; most callers send the first.
pub(crate) const PAYLOADS: u8 = 2;
/// Keys that came up lately, and are called most.
const HOT_KEYS: u64 = 8;
/// How long a worker waits for a store that is away when the last call is due: the last fault may
/// only just be over.
const OPEN_GRACE: Micros = micros(10_000);
/// Tells the dice of a key's nature from those of a worker.
const NATURE: u64 = 0x6b65_7921;

/// What one worker is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Keeps the keys of this run apart from those of others on the same store.
    pub run: String,
    /// The slot secret that all workers share.
    pub secret: [u8; SlotSecret::BYTES],
    /// Every choice is drawn from it.
    pub seed: u64,
    /// The worker's place.
    pub node: u16,
    /// How many workers were there before it.
    pub life: u16,
    /// When the first call comes.
    pub began: Micros,
    /// When the last call comes.
    pub until: Micros,
    /// How many calls this place makes in that time.
    pub calls: u32,
    /// How many of them at a time, at most.
    pub tasks: u32,
    /// How many keys come up in that time.
    pub keys: u32,
    /// The leases there are, in milliseconds.
    pub leases: Vec<u64>,
    /// Asks once for every key instead: the last round, when all is well again.
    pub sweep: bool,
}

/// The slot secret of every run that is not given another.
pub(crate) const SECRET: [u8; SlotSecret::BYTES] = *b"the secret of recorded histories";

/// One call before it is made.
pub(crate) struct Order {
    pub(crate) key: u32,
    pub(crate) payload: u8,
    pub(crate) terms: Terms,
    pub(crate) stores_failures: bool,
    pub(crate) work: Work,
    pub(crate) by_hand: bool,
    /// The caller goes away after this time.
    pub(crate) hangs_up_after: Option<Duration>,
}

/// What a handler will do.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) takes: Duration,
    pub(crate) gives: Gives,
    /// The answer is not to be stored, whatever the policy says.
    pub(crate) opts_out: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Gives {
    Status(u16),
    NotRun,
    Unknown,
    Panic,
}

/// What all callers of a key have in common.
struct Nature {
    lease: u64,
    keep: u64,
    hold: bool,
    stores_failures: bool,
}

impl Plan {
    pub(crate) fn dice(&self) -> Dice {
        let place = u64::from(self.node) << 16 | u64::from(self.life);
        Dice::new(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place)
    }

    /// Until when a store that cannot be opened may come back.
    pub(crate) fn open_until(&self) -> Micros {
        self.until + OPEN_GRACE
    }

    pub(crate) fn lease_max(&self) -> u64 {
        self.leases.iter().copied().max().unwrap_or(1)
    }

    /// When call `number` of this place is due. Every second one comes at a moment at which the
    /// other workers have one too: that is when it gets interesting.
    pub(crate) fn due(&self, number: u32) -> Micros {
        const BURSTS: u64 = 400;
        let lasts = self.until.saturating_sub(self.began);
        let at = lasts * u64::from(number) / u64::from(self.calls.max(1));
        let burst = (lasts / BURSTS).max(1);
        self.began
            + if number.is_multiple_of(2) {
                at / burst * burst
            } else {
                at
            }
    }

    /// The newest key at a moment.
    fn newest(&self, at: Micros) -> u64 {
        let lasts = self.until.saturating_sub(self.began).max(1);
        let keys = u64::from(self.keys.max(1));
        (at.saturating_sub(self.began) * keys / lasts).min(keys - 1)
    }

    /// A call made at `at`: mostly for a key that just came up, now and then for any that ever did.
    pub(crate) fn order(&self, dice: &mut Dice, at: Micros) -> Order {
        let newest = self.newest(at);
        let key = match dice.below(8) {
            0..4 => newest,
            4..6 => newest - dice.below(HOT_KEYS.min(newest + 1)),
            _ => dice.below(newest + 1),
        };
        let key = u32::try_from(key).unwrap_or(u32::MAX);
        let nature = self.nature(key);
        let hold = nature.hold != dice.chance(50);
        let execution = nature.lease * 5 / 2;
        let terms = Terms {
            lease: nature.lease,
            keep: nature.keep,
            hold,
            patience: match dice.below(6) {
                0 => 0,
                1 => 30,
                2 => nature.lease / 2,
                _ => nature.lease * 2,
            },
            execution,
        };
        let by_hand = dice.chance(150);
        Order {
            key,
            payload: u8::from(dice.chance(100)),
            terms,
            stores_failures: nature.stores_failures,
            work: Work::draw(dice, &terms, by_hand),
            by_hand,
            hangs_up_after: dice
                .chance(80)
                .then(|| Duration::from_millis(dice.below(terms.lease))),
        }
    }

    /// A call of the last round: it waits for whatever is left, and its work is simple.
    pub(crate) fn last_order(&self, key: u32, payload: u8) -> Order {
        let nature = self.nature(key);
        Order {
            key,
            payload,
            terms: Terms {
                lease: nature.lease,
                keep: nature.keep,
                hold: nature.hold,
                patience: self.lease_max() * 3 + 5000,
                execution: nature.lease * 5 / 2,
            },
            stores_failures: nature.stores_failures,
            work: Work {
                takes: Duration::ZERO,
                gives: Gives::Status(200),
                opts_out: false,
            },
            by_hand: false,
            hangs_up_after: None,
        }
    }

    fn nature(&self, key: u32) -> Nature {
        let mut dice = Dice::new(self.seed ^ NATURE ^ u64::from(key) << 32);
        let lease = dice.pick(&self.leases);
        Nature {
            lease,
            keep: if dice.chance(120) {
                lease / 2 + dice.below(lease)
            } else {
                KEEP_LONG
            },
            hold: dice.chance(300),
            stores_failures: dice.chance(600),
        }
    }
}

impl Order {
    pub(crate) fn policy(&self, base: &Policy) -> Arc<Policy> {
        let terms = &self.terms;
        let millis = Duration::from_millis;
        Arc::new(Policy {
            lease_for: millis(terms.lease),
            keep_for: millis(terms.keep),
            on_lapse: if terms.hold {
                OnLapse::Hold
            } else {
                OnLapse::Rerun
            },
            duplicate: match terms.patience {
                0 => Duplicate::Refuse,
                patience => Duplicate::Wait(millis(patience)),
            },
            waiters_max: 1000,
            local_waiters_max: 1000,
            execution_max: millis(terms.execution),
            store_down: StoreDown::Closed,
            stored: self.stored(),
            ..base.clone()
        })
    }

    pub(crate) fn stored(&self) -> StoredRule {
        if self.stores_failures {
            StoredRule::all()
        } else {
            StoredRule::success()
        }
    }
}

impl Work {
    fn draw(dice: &mut Dice, terms: &Terms, by_hand: bool) -> Self {
        let lease = terms.lease;
        let takes = match dice.below(100) {
            0..40 => 0,
            40..80 => dice.below(30),
            80..94 => dice.below(lease),
            // Longer than its lease: only renewal keeps it.
            94..99 => dice.between(lease..=lease * 2),
            // Longer than it may. By hand nobody stops it.
            _ if by_hand => 0,
            _ => terms.execution + lease / 4,
        };
        let gives = match dice.below(40) {
            0..28 => Gives::Status(200),
            28..30 => Gives::Status(422),
            30..33 => Gives::Status(500),
            33..36 => Gives::NotRun,
            36..38 => Gives::Unknown,
            _ => Gives::Panic,
        };
        Self {
            takes: Duration::from_millis(takes),
            gives,
            opts_out: dice.chance(60),
        }
    }
}

//! Every random choice of a run, drawn from its seed.

use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use onlyonce_core::Entropy;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A seeded source of choices.
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// Every choice follows from the seed.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A source of its own, so that what one part draws does not move another.
    pub fn fork(&mut self) -> Self {
        Self::new(self.0.next_u64())
    }

    /// Below `bound`. The bias of the remainder is far too small to matter here.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    /// Within the range.
    pub fn between(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// An index below `bound`.
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("below a usize")
    }

    /// True in `permille` of a thousand cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        permille > 0 && self.below(1000) < permille
    }

    /// One of these, which are not none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}

/// The randomness an engine gets: tokens and names come from the seed too.
pub(crate) struct SeededEntropy(Mutex<Dice>);

impl SeededEntropy {
    pub(crate) fn new(dice: Dice) -> Self {
        Self(Mutex::new(dice))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, out: &mut [u8]) {
        let mut dice = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        dice.0.fill_bytes(out);
    }
}

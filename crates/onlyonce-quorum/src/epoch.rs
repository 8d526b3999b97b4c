//! Which votes count together: those of one epoch. It is raised on a majority of the servers before
//! one that lost its data votes again.

use std::sync::atomic::{AtomicU64, Ordering};

use onlyonce_core::Entropy;

/// The epoch that a set of servers is founded in.
pub const EPOCH_FIRST: u64 = 1;
/// So many of an epoch's lowest bits are its raiser's own: two who raise it at the same time raise it to
/// two different ones.
const OWN_BITS: u32 = 24;

/// An epoch after this one, and nobody else's.
pub fn epoch_after(epoch: u64, entropy: &dyn Entropy) -> u64 {
    let mut own = [0; 4];
    entropy.fill(&mut own);
    let own = u64::from(u32::from_be_bytes(own)) & ((1 << OWN_BITS) - 1);
    (((epoch >> OWN_BITS) + 1) << OWN_BITS) | own
}

/// The highest epoch that this process has heard of.
#[derive(Debug)]
pub struct SharedEpoch(AtomicU64);

impl Default for SharedEpoch {
    fn default() -> Self {
        Self(AtomicU64::new(EPOCH_FIRST))
    }
}

impl SharedEpoch {
    /// The epoch to ask in.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// There is this one.
    pub fn heard(&self, epoch: u64) {
        self.0.fetch_max(epoch, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlyonce_core::OsEntropy;

    #[test]
    fn two_who_raise_an_epoch_at_once_raise_it_to_two() {
        let entropy = OsEntropy::new();
        let (one, two) = (
            epoch_after(EPOCH_FIRST, &entropy),
            epoch_after(EPOCH_FIRST, &entropy),
        );

        assert_ne!(one, two);
        let next = epoch_after(one.max(two), &entropy);
        assert!(next > one && next > two);
        // The scripts of the servers compare epochs as numbers with 53 bits.
        assert!((0..100_000).fold(next, |epoch, _| epoch_after(epoch, &entropy)) < 1 << 53);
    }
}

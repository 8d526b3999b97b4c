//! Who may write next: ballots are ordered, and no two attempts have the same one.

use std::fmt;

use onlyonce_core::Entropy;

/// A ballot: a round, and fresh randomness that makes it this attempt's own.
///
/// Ballots are compared as bytes, from the first on: the round is written with its highest byte
/// first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot([u8; Ballot::BYTES]);

const ROUND_BYTES: usize = 6;

impl Ballot {
    /// The length of a ballot.
    pub const BYTES: usize = 16;
    /// The highest round. Rounds are raised by one at a time, so it is never reached.
    pub const ROUND_MAX: u64 = (1 << (8 * ROUND_BYTES)) - 1;

    /// A new ballot in the round after `seen`.
    pub fn after(seen: Option<Self>, entropy: &dyn Entropy) -> Self {
        let round = seen.map_or(0, Self::round).saturating_add(1);
        let mut bytes = [0; Self::BYTES];
        bytes[..ROUND_BYTES].copy_from_slice(&round.min(Self::ROUND_MAX).to_be_bytes()[2..]);
        entropy.fill(&mut bytes[ROUND_BYTES..]);
        Self(bytes)
    }

    /// A new ballot after everything up to and with this round.
    pub fn above(round: u64, entropy: &dyn Entropy) -> Self {
        Self::after(Some(Self::end_of(round)), entropy)
    }

    /// Higher than every ballot of this round that anybody made.
    pub fn end_of(round: u64) -> Self {
        let mut bytes = [0xff; Self::BYTES];
        bytes[..ROUND_BYTES].copy_from_slice(&round.min(Self::ROUND_MAX).to_be_bytes()[2..]);
        Self(bytes)
    }

    /// The round.
    pub fn round(self) -> u64 {
        let mut round = [0; 8];
        round[2..].copy_from_slice(&self.0[..ROUND_BYTES]);
        u64::from_be_bytes(round)
    }

    /// A ballot from its stored bytes.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes an acceptor compares.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Ballot({}, {:02x}{:02x})",
            self.round(),
            self.0[6],
            self.0[7]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlyonce_core::OsEntropy;

    #[test]
    fn a_later_round_is_a_higher_ballot_whatever_its_random_part() {
        let entropy = OsEntropy::new();
        let mut last = Ballot::after(None, &entropy);
        for round in 2..600 {
            let next = Ballot::after(Some(last), &entropy);
            assert!(next > last);
            assert_eq!(next.round(), round);
            last = next;
        }
    }

    #[test]
    fn two_attempts_in_one_round_have_two_ballots() {
        let entropy = OsEntropy::new();
        assert_ne!(Ballot::after(None, &entropy), Ballot::after(None, &entropy));
    }
}

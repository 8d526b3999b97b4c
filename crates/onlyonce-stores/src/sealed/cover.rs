//! Fingerprints under a cover: a permutation of them for every key, slot and recipe. Without the
//! key nobody can compute it, so a guessed request cannot be compared with a stolen store; with
//! the key it can be taken off, so that a record still tells its fingerprint.
//!
//! The permutation is that of Luby and Rackoff: four rounds of a Feistel network over two halves of
//! 128 bits, each with a pseudorandom function of its own, here HMAC-SHA-256.

use hmac::{Hmac, KeyInit, Mac};
use onlyonce_core::{Fingerprint, Slot};
use sha2::Sha256;

const ROUNDS: u8 = 4;
const HALF_BYTES: usize = 16;

type Half = [u8; HALF_BYTES];

/// The cover of one key.
#[derive(Clone)]
pub(super) struct Cover {
    /// HMAC with the key already absorbed.
    keyed: Hmac<Sha256>,
}

impl Cover {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let keyed = Hmac::new_from_slice(key).expect("HMAC takes a key of any length");
        Self { keyed }
    }

    /// Puts the cover on.
    pub(super) fn on(&self, slot: &Slot, fingerprint: Fingerprint) -> Fingerprint {
        let recipe = fingerprint.recipe();
        let (mut left, mut right) = halves(fingerprint.digest());
        for round in 0..ROUNDS {
            let next = xor(left, self.round(round, slot, recipe, &right));
            (left, right) = (right, next);
        }
        Fingerprint::new(recipe, joined(left, right))
    }

    /// Takes the cover off. What was covered under another key becomes a fingerprint that no
    /// request has.
    pub(super) fn off(&self, slot: &Slot, covered: Fingerprint) -> Fingerprint {
        let recipe = covered.recipe();
        let (mut left, mut right) = halves(covered.digest());
        for round in (0..ROUNDS).rev() {
            let before = xor(right, self.round(round, slot, recipe, &left));
            (left, right) = (before, left);
        }
        Fingerprint::new(recipe, joined(left, right))
    }

    /// All inputs have fixed lengths, so that no two of them run together.
    fn round(&self, round: u8, slot: &Slot, recipe: u8, half: &Half) -> Half {
        let mut mac = self.keyed.clone();
        mac.update(&[round, recipe]);
        mac.update(slot.as_bytes());
        mac.update(half);
        let digest: [u8; 32] = mac.finalize().into_bytes().into();
        halves(&digest).0
    }
}

fn halves(digest: &[u8; 2 * HALF_BYTES]) -> (Half, Half) {
    let (mut left, mut right) = ([0; HALF_BYTES], [0; HALF_BYTES]);
    left.copy_from_slice(&digest[..HALF_BYTES]);
    right.copy_from_slice(&digest[HALF_BYTES..]);
    (left, right)
}

fn joined(left: Half, right: Half) -> [u8; 2 * HALF_BYTES] {
    let mut digest = [0; 2 * HALF_BYTES];
    digest[..HALF_BYTES].copy_from_slice(&left);
    digest[HALF_BYTES..].copy_from_slice(&right);
    digest
}

fn xor(a: Half, b: Half) -> Half {
    std::array::from_fn(|at| a[at] ^ b[at])
}

#[cfg(test)]
mod tests;

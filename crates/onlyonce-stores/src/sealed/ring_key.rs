//! One key of a ring: what is derived from it for each use. The key itself is not kept.

use std::fmt::Write as _;

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::cipher::Cipher;
use super::cover::Cover;

pub(super) const KEY_BYTES: usize = 32;

pub(super) struct RingKey {
    id: String,
    /// Zeroes its key when it is dropped.
    cipher: Cipher,
    cover: Cover,
    check: [u8; 32],
}

impl RingKey {
    pub(super) fn new(id: String, bytes: &[u8; KEY_BYTES]) -> Self {
        Self {
            id,
            cipher: Cipher::new(derived(bytes, b"onlyonce seal 1")),
            cover: Cover::new(&derived(bytes, b"onlyonce fingerprint 1")),
            check: *derived(bytes, b"onlyonce check 1"),
        }
    }

    /// A key whose id tells it from all others.
    pub(super) fn named_by_itself(bytes: &[u8; KEY_BYTES]) -> Self {
        let mut key = Self::new("k".to_owned(), bytes);
        for byte in &key.check[..4] {
            write!(key.id, "{byte:02x}").expect("a string takes whatever is written");
        }
        key
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn cipher(&self) -> &Cipher {
        &self.cipher
    }

    pub(super) fn cover(&self) -> &Cover {
        &self.cover
    }

    /// A digest by which the key is recognised. It tells nothing about the key.
    pub(super) fn check(&self) -> &[u8; 32] {
        &self.check
    }
}

fn derived(bytes: &[u8; KEY_BYTES], purpose: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut out = Zeroizing::new([0; 32]);
    Hkdf::<Sha256>::new(None, bytes)
        .expand(purpose, &mut *out)
        .expect("32 bytes are within what HKDF gives");
    out
}

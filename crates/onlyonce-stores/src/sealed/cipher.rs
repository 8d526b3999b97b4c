//! XChaCha20-Poly1305 at the speed of the machine. `ring`, which rustls links anyway, has the cipher in
//! assembly, with a nonce of 12 bytes; the longer nonce, which may be drawn at random, is turned into a
//! key of its own by HChaCha20 (draft-irtf-cfrg-xchacha-03, section 2.3). The bytes are those of every
//! other implementation.

use chacha20::{R20, hchacha};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::ring_key::KEY_BYTES;

pub(super) const NONCE_BYTES: usize = 24;
pub(super) const TAG_BYTES: usize = 16;
/// How much of the nonce makes the key.
const KEYED_BYTES: usize = 16;
const SHORT_NONCE_BYTES: usize = 12;

pub(super) struct Cipher(Zeroizing<[u8; KEY_BYTES]>);

impl Cipher {
    pub(super) fn new(key: Zeroizing<[u8; KEY_BYTES]>) -> Self {
        Self(key)
    }

    /// Encrypts `content` in place; returns the tag that goes after it.
    pub(super) fn encrypt(
        &self,
        nonce: &[u8; NONCE_BYTES],
        bound_to: &[u8],
        content: &mut [u8],
    ) -> [u8; TAG_BYTES] {
        let (key, nonce) = self.for_nonce(nonce);
        let tag = key
            .seal_in_place_separate_tag(nonce, Aad::from(bound_to), content)
            .expect("an answer is far smaller than what the cipher can take");
        tag.as_ref()
            .try_into()
            .expect("the tags of this cipher have 16 bytes")
    }

    /// Decrypts ciphertext and tag; `None` if either, or what they are bound to, is not what was encrypted.
    pub(super) fn decrypt(
        &self,
        nonce: &[u8; NONCE_BYTES],
        bound_to: &[u8],
        sealed: &[u8],
    ) -> Option<Vec<u8>> {
        let (key, nonce) = self.for_nonce(nonce);
        let mut content = sealed.to_vec();
        let length = key
            .open_in_place(nonce, Aad::from(bound_to), &mut content)
            .ok()?
            .len();
        content.truncate(length);
        Some(content)
    }

    /// The key that belongs to this nonce alone, and what is left of the nonce.
    fn for_nonce(&self, nonce: &[u8; NONCE_BYTES]) -> (LessSafeKey, Nonce) {
        let (keyed, rest) = nonce.split_at(KEYED_BYTES);
        let keyed: [u8; KEYED_BYTES] = keyed.try_into().expect("it was split there");
        let derived = hchacha::<R20>(&(*self.0).into(), &keyed.into());
        let derived = Zeroizing::new(<[u8; KEY_BYTES]>::from(derived));
        let key = UnboundKey::new(&CHACHA20_POLY1305, &*derived)
            .expect("the keys of this cipher have 32 bytes");
        let mut short = [0; SHORT_NONCE_BYTES];
        short[SHORT_NONCE_BYTES - rest.len()..].copy_from_slice(rest);
        (LessSafeKey::new(key), Nonce::assume_unique_for_key(short))
    }
}

#[cfg(test)]
mod tests;

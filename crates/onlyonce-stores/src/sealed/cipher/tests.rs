use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use proptest::prelude::*;

use super::*;

fn ours(key: [u8; KEY_BYTES]) -> Cipher {
    Cipher::new(Zeroizing::new(key))
}

fn sealed(cipher: &Cipher, nonce: &[u8; NONCE_BYTES], bound_to: &[u8], plain: &[u8]) -> Vec<u8> {
    let mut body = plain.to_vec();
    let tag = cipher.encrypt(nonce, bound_to, &mut body);
    body.extend_from_slice(&tag);
    body
}

proptest! {
    #[test]
    fn the_bytes_are_those_of_another_implementation(
        key: [u8; KEY_BYTES],
        nonce: [u8; NONCE_BYTES],
        bound_to in proptest::collection::vec(any::<u8>(), 0..100),
        plain in proptest::collection::vec(any::<u8>(), 0..2_000),
    ) {
        let theirs = XChaCha20Poly1305::new(&key.into());
        let payload = Payload { msg: &plain, aad: &bound_to };
        let expected = theirs.encrypt(&XNonce::from(nonce), payload).unwrap();

        let body = sealed(&ours(key), &nonce, &bound_to, &plain);

        prop_assert_eq!(&body, &expected);
        prop_assert_eq!(ours(key).decrypt(&nonce, &bound_to, &body), Some(plain));
    }
}

#[test]
fn a_changed_byte_anywhere_is_noticed() {
    let (cipher, nonce) = (ours([1; KEY_BYTES]), [2; NONCE_BYTES]);
    let body = sealed(&cipher, &nonce, b"slot", b"an answer");

    for at in 0..body.len() {
        let mut changed = body.clone();
        changed[at] ^= 1;
        assert_eq!(cipher.decrypt(&nonce, b"slot", &changed), None, "byte {at}");
    }
    for at in 0..NONCE_BYTES {
        let mut other = nonce;
        other[at] ^= 1;
        assert_eq!(cipher.decrypt(&other, b"slot", &body), None, "nonce {at}");
    }
    assert_eq!(cipher.decrypt(&nonce, b"slut", &body), None);
    assert_eq!(
        cipher.decrypt(&nonce, b"slot", &body[..TAG_BYTES - 1]),
        None
    );
    assert_eq!(cipher.decrypt(&nonce, b"slot", b""), None);
}

use std::time::Duration;

use http::StatusCode;
use onlyonce_core::OsEntropy;

use crate::packed::UNPACKED_BYTES_MAX;

use super::*;

const SLOT: Slot = Slot::from_bytes([2; Slot::BYTES]);
const TOKEN: Token = Token::from_bytes([3; Token::BYTES]);
const FINGERPRINT: Fingerprint = Fingerprint::new(1, [4; 32]);
const BOUND: Bound<'static> = Bound {
    slot: &SLOT,
    token: &TOKEN,
    fingerprint: FINGERPRINT,
};

fn ring() -> KeyRing {
    KeyRing::parse("a uXkWzYGHK9nCGFwtcTz6HcJpTPtdCgb4SfTc0ULuYsA=").unwrap()
}

fn opened(ring: &KeyRing, sealed: Response) -> Result<Opened, SealError> {
    let stored = ring.first().cover().on(&SLOT, FINGERPRINT);
    open(ring, &SLOT, &TOKEN, stored, &Arc::new(sealed))
}

fn answer() -> Response {
    let mut answer = Response::new(StatusCode::CREATED, "made");
    answer.took = Duration::from_millis(5);
    answer.resource = Some("payment/7".to_owned());
    answer
}

/// Zeros: what is pinned below must not depend on chance.
struct NoEntropy;

impl Entropy for NoEntropy {
    fn fill(&self, out: &mut [u8]) {
        out.fill(0);
    }
}

#[test]
fn nothing_is_unpacked_beyond_the_bound() {
    let (ring, mark) = (
        ring(),
        Mark {
            key: "a",
            is_packed: true,
        },
    );
    let bomb = zstd::bulk::compress(&vec![0; UNPACKED_BYTES_MAX + 1], 1).unwrap();
    let outside = answer();
    let bound_to = BOUND.with(&outside, &mark);
    let mut ciphertext = bomb;
    let cipher = ring.first().cipher();
    let tag = cipher.encrypt(&[0; NONCE_BYTES], &bound_to, &mut ciphertext);
    ciphertext.extend_from_slice(&tag);
    assert!(ciphertext.len() < 100_000);

    let sealed = Response {
        headers: HeaderMap::from_iter([(MARK, mark.to_text().parse().unwrap())]),
        body: [&[0; NONCE_BYTES], &ciphertext[..]].concat().into(),
        resource: None,
        ..outside
    };

    assert_eq!(
        opened(&ring, sealed).err(),
        Some(SealError::Broken { slot: SLOT })
    );
}

#[test]
fn what_is_too_large_to_be_unpacked_is_not_packed() {
    assert!(pack(&vec![0; UNPACKED_BYTES_MAX], 0).is_some());
    assert!(pack(&vec![0; UNPACKED_BYTES_MAX + 1], 0).is_none());
}

#[test]
fn nothing_of_one_answer_is_in_the_next_that_is_packed() {
    let (one, two) = (vec![1; 5000], vec![2; 70_000]);
    let first = pack(&one, 0);

    assert_ne!(pack(&two, 0), first);
    assert_eq!(pack(&one, 0), first);
}

#[test]
fn a_mark_says_nothing_but_what_it_may() {
    let broken = Some(SealError::Broken { slot: SLOT });
    for (text, expected) in [
        ("", broken.clone()),
        ("1", broken.clone()),
        ("1;a", broken.clone()),
        ("1;key=", broken.clone()),
        ("1;key=a b", broken.clone()),
        ("1;key=a;gzip", broken.clone()),
        ("1;key=a;zstd;", broken.clone()),
        ("one;key=a", broken),
        (
            "2;anything",
            Some(SealError::UnknownFormat {
                found: "2".to_owned(),
            }),
        ),
        ("1;key=a", None),
        ("1;key=a;zstd", None),
    ] {
        let value = HeaderValue::from_static(text);

        assert_eq!(Mark::parse(&value, &SLOT).err(), expected, "{text}");
    }
}

/// What is stored must still open after an upgrade.
#[test]
fn the_form_of_a_sealed_answer_never_changes() {
    let ring = ring();

    let sealed = seal(ring.first(), &BOUND, &answer(), usize::MAX, &NoEntropy);

    let hex: String = sealed.body.iter().map(|it| format!("{it:02x}")).collect();
    assert_eq!(
        hex,
        "0000000000000000000000000000000000000000000000001e625c98c9a90fd5f2beb3d79ec0637f6d0404e064b32d42f0561b1fa8c24e8a837db9d114e718df408e6d61b86fdbaee760ade46b"
    );
    assert_eq!(sealed.headers[MARK], "1;key=a");
    assert_eq!(*opened(&ring, sealed).ok().unwrap().response, answer());
}

#[test]
fn the_same_answer_is_sealed_differently_each_time() {
    let (ring, entropy) = (ring(), OsEntropy::new());

    let one = seal(ring.first(), &BOUND, &answer(), usize::MAX, &entropy);
    let two = seal(ring.first(), &BOUND, &answer(), usize::MAX, &entropy);

    assert_ne!(one.body, two.body);
}

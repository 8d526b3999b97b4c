//! What to look for: any eight bytes of a secret in a row, plain, as hexadecimal digits, as base64
//! or as a list of numbers.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// So much of a secret is too much. A hint of four characters is not.
const WINDOW_BYTES: usize = 8;

/// The spellings of some secrets.
#[derive(Default)]
pub(super) struct Needles {
    needles: BTreeSet<String>,
}

impl Needles {
    /// All spellings of these.
    pub(super) fn of(secrets: &[&str]) -> Self {
        let mut needles = Self::default();
        for secret in secrets {
            needles.add(secret);
        }
        needles
    }

    /// And of this one.
    pub(super) fn add(&mut self, secret: &str) {
        for window in secret.as_bytes().windows(WINDOW_BYTES) {
            let hex = |upper: bool| -> String {
                let digits = |byte: &u8| match upper {
                    true => format!("{byte:02X}"),
                    false => format!("{byte:02x}"),
                };
                window.iter().map(digits).collect()
            };
            let numbers: Vec<_> = window.iter().map(u8::to_string).collect();
            let plain = std::str::from_utf8(window).expect("secrets here are ASCII");
            self.needles.insert(plain.to_owned());
            self.needles.insert(hex(false));
            self.needles.insert(hex(true));
            self.needles.insert(numbers.join(", "));
            self.needles.insert(numbers.join(","));
        }
        // Whatever stands before a secret, one of three starts fits base64's groups of three.
        for start in 0..3 {
            let whole_groups = &secret.as_bytes()[start..][..(secret.len() - start) / 3 * 3];
            for window in whole_groups.chunks_exact(9) {
                self.needles.insert(STANDARD.encode(window));
                self.needles.insert(URL_SAFE_NO_PAD.encode(window));
            }
        }
    }

    /// The same where the first eight characters of these keys are told, as they are of keys of 28
    /// characters or more: any eight in a row after the first are still too much.
    pub(super) fn but_for_labels_of(mut self, keys: &[&str]) -> Self {
        for key in keys.iter().filter(|key| key.len() >= 28) {
            self.needles.remove(&key[..WINDOW_BYTES]);
        }
        self
    }

    /// Fails if some of a secret is in the haystack.
    pub(super) fn assert_absent(&self, place: &str, haystack: impl AsRef<[u8]>) {
        let haystack = String::from_utf8_lossy(haystack.as_ref());
        if let Some(needle) = self.find(&haystack) {
            panic!("{place} shows {needle:?}: {haystack}");
        }
    }

    fn find(&self, haystack: &str) -> Option<&str> {
        let found = self
            .needles
            .iter()
            .find(|it| haystack.contains(it.as_str()));
        found.map(String::as_str)
    }
}

#[test]
fn a_secret_is_found_in_any_spelling_and_a_hint_is_not() {
    let secret = "Zy-lantern-4711-marmalade";
    let needles = Needles::of(&[secret]);

    for leak in [
        "key=Zy-lantern-4711-marmalade".to_owned(),
        "…tern-4711-ma…".to_owned(),
        secret.bytes().map(|byte| format!("{byte:02x}")).collect(),
        secret.bytes().map(|byte| format!("{byte:02X}")).collect(),
        format!("{:?}", secret.as_bytes()),
        STANDARD.encode(secret),
        STANDARD.encode(format!("1{secret}")),
        URL_SAFE_NO_PAD.encode(format!("22{secret}333")),
    ] {
        assert!(needles.find(&leak).is_some(), "{leak}");
    }
    assert!(needles.find("Zy-l…1234abcd").is_none());
    let key = "Zy-lantern-4711-marmalade-tea";
    let labelled = Needles::of(&[key]).but_for_labels_of(&[key]);
    assert!(labelled.find("Zy-lante…1234abcd").is_none());
    assert!(labelled.find("Zy-lanter…1234abcd").is_some());
}

//! Fresh keys: a run never meets what an earlier one left behind.

use onlyonce_core::{Entropy, Timestamp};

/// A random UUID of version 4, in lower case and with at least one letter.
pub(crate) fn uuid(entropy: &dyn Entropy) -> String {
    made(entropy, 0x40, |_| {})
}

/// The same of version 7, which carries this time.
pub(crate) fn uuid_v7(entropy: &dyn Entropy, now: Timestamp) -> String {
    let millis = now.as_millis().to_be_bytes();
    made(entropy, 0x70, |bytes| {
        bytes[..6].copy_from_slice(&millis[2..]);
    })
}

fn made(entropy: &dyn Entropy, version: u8, time: impl Fn(&mut [u8; 16])) -> String {
    loop {
        let mut bytes = [0; 16];
        entropy.fill(&mut bytes);
        time(&mut bytes);
        bytes[6] = (bytes[6] & 0x0f) | version;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // Without a letter it would have no other case to compare with.
        if hex.contains(|c: char| c.is_ascii_alphabetic()) {
            let [a, b, c, d, e] = [
                &hex[..8],
                &hex[8..12],
                &hex[12..16],
                &hex[16..20],
                &hex[20..],
            ];
            return format!("{a}-{b}-{c}-{d}-{e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use onlyonce_core::key::Charset;
    use onlyonce_core::{Key, KeyRule, OsEntropy};

    use super::uuid;

    #[test]
    fn every_key_is_a_new_uuid_of_version_4_whose_case_can_change() {
        let (entropy, rule) = (
            OsEntropy::new(),
            KeyRule {
                charset: Charset::UuidV4,
                ..KeyRule::default()
            },
        );
        let mut seen = std::collections::BTreeSet::new();

        for _ in 0..1000 {
            let key = uuid(&entropy);

            assert!(Key::parse(key.as_bytes(), &rule).is_ok());
            assert_ne!(key, key.to_uppercase());
            assert!(seen.insert(key));
        }
    }
}

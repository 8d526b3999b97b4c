//! New ids, and the time to show with what they name.

use std::sync::Arc;

use onlyonce::core::{Clock as _, Entropy, OsEntropy, SystemClock, Timestamp};

/// Makes ids that nobody can guess.
#[derive(Clone)]
pub(crate) struct Ids(Arc<dyn Entropy>);

impl Ids {
    pub(crate) fn new() -> Self {
        Self(Arc::new(OsEntropy::new()))
    }

    /// `prefix` and 24 hexadecimal digits.
    pub(crate) fn make(&self, prefix: &str) -> String {
        let mut bytes = [0; 12];
        self.0.fill(&mut bytes);
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{prefix}{digits}")
    }

    /// A UUID of version 4.
    pub(crate) fn uuid(&self) -> String {
        let mut bytes = [0; 16];
        self.0.fill(&mut bytes);
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let (a, b, c, d, e) = (
            &digits[..8],
            &digits[8..12],
            &digits[12..16],
            &digits[16..20],
            &digits[20..],
        );
        format!("{a}-{b}-{c}-{d}-{e}")
    }
}

/// The machine's date and time.
pub(crate) fn now() -> Timestamp {
    SystemClock::new().wall()
}

/// As a column holds it.
pub(crate) fn column(at: Timestamp) -> i64 {
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
}

/// As people read it.
pub(crate) fn shown(column: i64) -> String {
    Timestamp::from_millis(u64::try_from(column).unwrap_or(0)).to_rfc3339()
}

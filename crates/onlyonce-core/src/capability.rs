//! A lease as a text that is handed to another program, which can complete the record with it.

use std::fmt::{self, Write as _};

use crate::store::Lease;

/// The right to complete one slot in one attempt: useless once the claim has ended. Its holder
/// decides on the answer, so it is shown to nobody but the program that does the work, and never
/// logged.
///
/// As a text it is 96 hexadecimal digits: the slot, then the token of the attempt, whose 128 random
/// bits cannot be guessed. The completing function of a SQL store takes it: `onlyonce store sql`
/// shows how.
#[derive(Clone, PartialEq, Eq)]
pub struct Capability(String);

impl Capability {
    /// The text itself, for the program that does the work.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Lease {
    /// The right to complete this claim, for another program.
    pub fn capability(&self) -> Capability {
        let bytes = self.slot.as_bytes().iter().chain(self.token.as_bytes());
        let mut text = String::with_capacity(96);
        for byte in bytes {
            write!(text, "{byte:02x}").expect("a String takes all that is written to it");
        }
        Capability(text)
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Capability(…)")
    }
}

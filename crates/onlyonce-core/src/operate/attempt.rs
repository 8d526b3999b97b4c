//! The name of one attempt at a slot, for operators, who look first and act later.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::clock::Timestamp;
use crate::record::Record;
use crate::slot::Slot;

#[cfg(test)]
mod tests;

/// One attempt at a slot: when the slot was first claimed, and which attempt since then. What was found
/// out about one attempt says nothing about a later one at the same slot.
///
/// Written as `SLOT-MILLISECONDS-ATTEMPT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptId {
    slot: Slot,
    created_at: Timestamp,
    attempt: u32,
}

impl AttemptId {
    /// The attempt that `record`, found in `slot`, is of.
    pub fn of(slot: &Slot, record: &Record) -> Self {
        Self {
            slot: *slot,
            created_at: record.created_at,
            attempt: record.attempt,
        }
    }

    /// Where it is.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.created_at.as_millis();
        write!(f, "{}-{millis}-{}", self.slot, self.attempt)
    }
}

/// A text that names no attempt.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` names no attempt: give it as a record's `attempt_id` has it")]
pub struct AttemptIdError(String);

impl FromStr for AttemptId {
    type Err = AttemptIdError;

    fn from_str(text: &str) -> Result<Self, AttemptIdError> {
        let parts = || {
            let (slot, rest) = text.split_once('-')?;
            let (millis, attempt) = rest.split_once('-')?;
            Some(Self {
                slot: Slot::from_hex(slot)?,
                created_at: Timestamp::from_millis(millis.parse().ok()?),
                attempt: attempt.parse().ok()?,
            })
        };
        parts().ok_or_else(|| AttemptIdError(text.to_owned()))
    }
}

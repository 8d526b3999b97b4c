//! What a script answers.

use ::redis::Value;
use bytes::Bytes;
use onlyonce_core::{Record, StoreError};

use super::trouble::{Trouble, refusal};
use super::value::{Head, MILLIS_MAX};

pub(super) enum Reply {
    /// Nothing is there.
    Absent,
    /// The script did what it was asked to.
    Acted(Told),
    /// It changed nothing: this is there.
    Found(Record),
    /// The token was released before.
    Dead,
    /// Nothing is there, and no new record may be made.
    Full,
}

/// What a script tells of what it did.
pub(super) struct Told(Vec<Value>);

impl Told {
    pub(super) fn number(&self, at: usize) -> Result<u64, Trouble> {
        match self.0.get(at) {
            Some(Value::Int(number)) => u64::try_from(*number).map_err(|_| Trouble::Odd),
            Some(_) | None => Err(Trouble::Odd),
        }
    }

    pub(super) fn bytes(&mut self, at: usize) -> Option<Bytes> {
        let Value::BulkString(bytes) = self.0.get_mut(at)? else {
            return None;
        };
        Some(Bytes::from(std::mem::take(bytes)))
    }
}

impl Reply {
    pub(super) fn read(answer: Value) -> Result<Self, StoreError> {
        if let Some(trouble) = refusal(&answer) {
            return Err(trouble.into());
        }
        let Value::Array(mut parts) = answer else {
            return Err(Trouble::Odd.into());
        };
        if parts.is_empty() {
            return Err(Trouble::Odd.into());
        }
        let Value::Int(kind) = parts.remove(0) else {
            return Err(Trouble::Odd.into());
        };
        match kind {
            0 => Ok(Self::Absent),
            1 => Ok(Self::Acted(Told(parts))),
            2 => Ok(Self::Found(found(Told(parts))?)),
            3 => Ok(Self::Dead),
            4 => Ok(Self::Full),
            _ => Err(Trouble::Odd.into()),
        }
    }
}

/// Value, time left, end.
fn found(mut told: Told) -> Result<Record, StoreError> {
    let value = told.bytes(0).ok_or(Trouble::Odd)?;
    let head = Head::read(&value)?;
    let keep_left = told.number(1)?;
    // A key without an end has none to show.
    let ends = told.number(2).unwrap_or(u64::MAX - MILLIS_MAX);
    Ok(head.record(&value, keep_left, ends)?)
}

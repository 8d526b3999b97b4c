//! What a script answers, and what it means.

use std::time::Duration;

use ::redis::Value;
use bytes::Bytes;
use onlyonce_quorum::{Ballot, Fault, Held, Seen};

use crate::trouble::Trouble;

/// What a server has of a register.
pub(super) fn seen(told: &[Value]) -> Result<Seen, Fault> {
    let [_, wall, promised, accepted, elapsed, value] = told else {
        return Err(odd());
    };
    let accepted = match ballot(Some(accepted))? {
        None => None,
        Some(ballot) => Some(Held {
            ballot,
            value: bytes(value).map(Bytes::copy_from_slice).ok_or_else(odd)?,
            elapsed: time(elapsed)?,
        }),
    };
    Ok(Seen {
        wall: time(wall)?,
        promised: ballot(Some(promised))?,
        accepted,
    })
}

/// A ballot, or none where there is an empty string.
pub(super) fn ballot(told: Option<&Value>) -> Result<Option<Ballot>, Fault> {
    let told = told.and_then(bytes).ok_or_else(odd)?;
    if told.is_empty() {
        return Ok(None);
    }
    let told = told.try_into().map_err(|_| odd())?;
    Ok(Some(Ballot::from_bytes(told)))
}

/// The server's date, which comes second in every answer.
pub(super) fn date(told: &[Value]) -> Result<Duration, Fault> {
    time(told.get(1).ok_or_else(odd)?)
}

fn time(told: &Value) -> Result<Duration, Fault> {
    let Value::Int(millis) = told else {
        return Err(odd());
    };
    Ok(Duration::from_millis(u64::try_from(*millis).unwrap_or(0)))
}

pub(in crate::quorum) fn bytes(told: &Value) -> Option<&[u8]> {
    let Value::BulkString(bytes) = told else {
        return None;
    };
    Some(bytes)
}

pub(super) fn odd() -> Fault {
    fault(&Trouble::Odd)
}

pub(super) fn fault(trouble: &Trouble) -> Fault {
    if trouble.is_refusal_with("OOM") {
        return Fault::Full;
    }
    Fault::Away(trouble.to_string())
}

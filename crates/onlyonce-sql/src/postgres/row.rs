//! From a row to a record.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::codec;
use onlyonce_core::operate::Ended;
use onlyonce_core::{Fingerprint, OnLapse, Record, Slot, State, StoreError, Timestamp, Token};
use sqlx::postgres::{PgRow, Postgres};
use sqlx::{Decode, Row, Type};

use super::trouble::{Trouble, corrupt};

/// The longest duration that is told apart from a longer one: four thousand years.
const DURATION_MAX: Duration = Duration::from_secs(4_000 * 8_766 * 3_600);

/// A duration as the statements take it.
pub(super) fn micros(duration: Duration) -> i64 {
    let micros = duration.min(DURATION_MAX).as_micros();
    i64::try_from(micros).expect("four thousand years fit")
}

/// A text as a column takes it: PostgreSQL knows no zero character.
pub(super) fn text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

pub(super) fn column<'r, T>(row: &'r PgRow, name: &str) -> Result<T, StoreError>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
{
    Ok(row.try_get(name).map_err(Trouble::from)?)
}

pub(super) fn slot(row: &PgRow) -> Result<Slot, StoreError> {
    Ok(Slot::from_bytes(column(row, "slot")?))
}

/// A time that is left: what is over has none.
pub(super) fn left(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

pub(super) fn timestamp(row: &PgRow, name: &str) -> Result<Timestamp, StoreError> {
    let millis: i64 = column(row, name)?;
    Ok(Timestamp::from_millis(u64::try_from(millis).unwrap_or(0)))
}

/// The record in the columns that begin with `r_`.
pub(super) fn record(row: &PgRow) -> Result<Record, StoreError> {
    let completed: Option<i64> = column(row, "r_completed")?;
    let attempt: i32 = column(row, "r_attempt")?;
    let replays: i64 = column(row, "r_replays")?;
    let rerun: bool = column(row, "r_rerun")?;
    let fingerprint: Vec<u8> = column(row, "r_fingerprint")?;
    let meta: Vec<u8> = column(row, "r_meta")?;
    Ok(Record {
        token: Token::from_bytes(column(row, "r_token")?),
        fingerprint: Fingerprint::from_bytes(&fingerprint)
            .ok_or_else(|| corrupt("a fingerprint has an unexpected form"))?,
        on_lapse: if rerun { OnLapse::Rerun } else { OnLapse::Hold },
        attempt: u32::try_from(attempt).unwrap_or(0),
        meta: Arc::new(codec::decode_meta(&Bytes::from(meta)).map_err(corrupt)?),
        created_at: timestamp(row, "r_created")?,
        completed_at: match completed {
            Some(_) => Some(timestamp(row, "r_completed")?),
            None => None,
        },
        expires_at: timestamp(row, "r_expires")?,
        keep_left: left(column(row, "r_keep_left")?),
        replays: u64::try_from(replays).unwrap_or(0),
        state: state(row)?,
    })
}

/// A row that a sweep has dropped: whether it held a record, and what is told of it if that was
/// finished and can be read.
pub(super) fn dropped(row: &PgRow) -> Result<(bool, Option<Ended>), StoreError> {
    let state: &str = column(row, "r_state")?;
    let is_finished = matches!(state, "D" | "F");
    Ok((state != "R", is_finished.then(|| ended(row).ok()).flatten()))
}

fn ended(row: &PgRow) -> Result<Ended, StoreError> {
    let fingerprint: Vec<u8> = column(row, "r_fingerprint")?;
    let meta: Vec<u8> = column(row, "r_meta")?;
    let replays: i64 = column(row, "r_replays")?;
    let response: Option<Vec<u8>> = column(row, "r_response")?;
    let response = response.and_then(|it| codec::decode_response(&Bytes::from(it)).ok());
    Ok(Ended {
        slot: slot(row)?,
        token: Token::from_bytes(column(row, "r_token")?),
        fingerprint: Fingerprint::from_bytes(&fingerprint)
            .ok_or_else(|| corrupt("a fingerprint has an unexpected form"))?,
        meta: Arc::new(codec::decode_meta(&Bytes::from(meta)).map_err(corrupt)?),
        keep_for: left(column(row, "keep_for")?),
        lifetime: left(column(row, "lifetime")?),
        replays: u64::try_from(replays).unwrap_or(0),
        response: response.map(Arc::new),
    })
}

/// The finished record that a granted claim has replaced, if it has one.
pub(super) fn replaced(row: &PgRow) -> Option<Ended> {
    let state: Option<&str> = column(row, "r_state").ok()?;
    if !matches!(state, Some("D" | "F")) {
        return None;
    }
    let keep_left: i64 = column(row, "r_keep_left").ok()?;
    Ended::of_record(slot(row).ok()?, &record(row).ok()?, left(-keep_left))
}

fn state(row: &PgRow) -> Result<State, StoreError> {
    let name: &str = column(row, "r_state")?;
    match name {
        "P" => Ok(State::Pending {
            lease_left: left(column(row, "r_lease_left")?),
        }),
        "D" | "F" => {
            let response: Vec<u8> = column(row, "r_response")?;
            let response = codec::decode_response(&Bytes::from(response)).map_err(corrupt)?;
            Ok(State::finished(Arc::new(response)))
        }
        "U" => Ok(State::Unknown),
        _ => Err(corrupt("a record is in no state there is")),
    }
}

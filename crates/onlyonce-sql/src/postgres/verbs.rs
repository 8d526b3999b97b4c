//! The verbs, as rows of their statements.

use bytes::Bytes;
use onlyonce_core::codec;
use onlyonce_core::operate::Ended;
use onlyonce_core::store::Receipt;
use onlyonce_core::{
    Claim, Claimed, Completed, Lease, OnLapse, Overtaken, Release, Released, Renewed, Response,
    Slot, State, StoreError, Token,
};
use sqlx::postgres::PgRow;
use std::sync::Arc;
use std::time::Duration;

use super::arg::Arg;
use super::batches::Verb;
use super::row::{column, left, micros, record, replaced, text, timestamp};
use super::statements::{Statement, Statements};
use super::trouble::corrupt;

fn bytes<T>(rows: &[&T], of: impl Fn(&T) -> Bytes) -> Arg {
    Arg::Bytess(rows.iter().map(|row| of(row)).collect())
}

fn ints<T>(rows: &[&T], of: impl Fn(&T) -> Duration) -> Arg {
    Arg::Ints(rows.iter().map(|row| micros(of(row))).collect())
}

fn bools<T>(rows: &[&T], of: impl Fn(&T) -> bool) -> Arg {
    Arg::Bools(rows.iter().map(|row| of(row)).collect())
}

fn texts<T>(rows: &[&T], of: impl Fn(&T) -> Option<String>) -> Arg {
    Arg::Texts(rows.iter().map(|row| of(row)).collect())
}

fn slot_bytes(slot: &Slot) -> Bytes {
    Bytes::copy_from_slice(slot.as_bytes())
}

fn token_bytes(token: &Token) -> Bytes {
    Bytes::copy_from_slice(token.as_bytes())
}

fn unexpected(verdict: &str) -> StoreError {
    corrupt(format!("the statement answered {verdict}"))
}

pub(super) struct Claiming(pub(super) Claim);

impl Verb for Claiming {
    type Answer = Claimed;

    fn statement(statements: &Statements) -> &Statement {
        &statements.claim
    }

    fn args(rows: &[&Self], _again: bool) -> Vec<Arg> {
        vec![
            bytes(rows, |it| slot_bytes(&it.0.slot)),
            bytes(rows, |it| token_bytes(&it.0.token)),
            bytes(rows, |it| it.0.fingerprint.to_bytes().to_vec().into()),
            bools(rows, |it| it.0.on_lapse == OnLapse::Rerun),
            ints(rows, |it| it.0.lease_for),
            ints(rows, |it| it.0.keep_for),
            bytes(rows, |it| codec::encode_meta(&it.0.meta)),
            texts(rows, |it| Some(text(&it.0.meta.operation))),
            texts(rows, |it| it.0.meta.actor.as_deref().map(text)),
            texts(rows, |it| Some(text(&it.0.meta.hint.to_text()))),
        ]
    }

    fn slot(&self) -> Slot {
        self.0.slot
    }

    /// What is finished, unknown or held by another's live lease is so for everyone who asks.
    fn follows(&self, from: &Claimed) -> Option<Claimed> {
        let Claimed::Taken(record) = from else {
            return None;
        };
        let open = match record.state {
            State::Pending { lease_left } => lease_left.is_zero() || record.token == self.0.token,
            State::Done(_) | State::Failed(_) | State::Unknown => false,
        };
        (!open).then(|| from.clone())
    }

    fn read(&self, row: &PgRow) -> Result<(Claimed, bool), StoreError> {
        let verdict: &str = column(row, "verdict")?;
        match verdict {
            "G" => {
                let overtook: Option<Vec<u8>> = column(row, "overtook")?;
                let attempt: i32 = column(row, "granted")?;
                let overtook = match overtook {
                    Some(meta) => Some(Overtaken {
                        meta: Arc::new(codec::decode_meta(&Bytes::from(meta)).map_err(corrupt)?),
                        age: left(column(row, "age")?),
                    }),
                    None => None,
                };
                let took = overtook.is_some();
                let lease = Lease {
                    attempt: u32::try_from(attempt).unwrap_or(1),
                    ..self.0.lease()
                };
                Ok((Claimed::Granted { lease, overtook }, took))
            }
            "T" => Ok((Claimed::Taken(record(row)?), false)),
            "X" => Ok((Claimed::Dead, false)),
            other => Err(unexpected(other)),
        }
    }

    fn replaced(&self, row: &PgRow) -> Option<Ended> {
        let is_granted = column::<&str>(row, "verdict").ok()? == "G";
        is_granted.then(|| replaced(row)).flatten()
    }
}

pub(super) struct Renewing {
    pub(super) lease: Lease,
    pub(super) lease_for: Duration,
}

impl Verb for Renewing {
    type Answer = Renewed;

    fn statement(statements: &Statements) -> &Statement {
        &statements.renew
    }

    fn args(rows: &[&Self], again: bool) -> Vec<Arg> {
        vec![
            bytes(rows, |it| slot_bytes(&it.lease.slot)),
            bytes(rows, |it| token_bytes(&it.lease.token)),
            ints(rows, |it| it.lease_for),
            Arg::Bool(again),
        ]
    }

    fn slot(&self) -> Slot {
        self.lease.slot
    }

    fn read(&self, row: &PgRow) -> Result<(Renewed, bool), StoreError> {
        let verdict: &str = column(row, "verdict")?;
        match verdict {
            "K" => Ok((Renewed::Kept, false)),
            "L" => Ok((Renewed::Lost, false)),
            "B" => Ok((Renewed::Busy, false)),
            other => Err(unexpected(other)),
        }
    }
}

pub(super) struct Completing {
    slot: Slot,
    token: Token,
    state: &'static str,
    response: Bytes,
    keep_for: Duration,
    /// What its claim asked for.
    asked_for: Duration,
}

impl Completing {
    pub(super) fn new(lease: &Lease, response: &Response, keep_for: Duration) -> Self {
        Self {
            slot: lease.slot,
            token: lease.token,
            state: finished(response),
            response: codec::encode_response(response),
            keep_for,
            asked_for: lease.keep_for,
        }
    }
}

/// The state of a record with this answer, as its column has it.
pub(super) fn finished(response: &Response) -> &'static str {
    if response.is_failure() { "F" } else { "D" }
}

impl Verb for Completing {
    type Answer = Completed;

    fn statement(statements: &Statements) -> &Statement {
        &statements.complete
    }

    fn args(rows: &[&Self], _again: bool) -> Vec<Arg> {
        vec![
            bytes(rows, |it| slot_bytes(&it.slot)),
            bytes(rows, |it| token_bytes(&it.token)),
            texts(rows, |it| Some(it.state.to_owned())),
            bytes(rows, |it| it.response.clone()),
            ints(rows, |it| it.keep_for),
            ints(rows, |it| it.asked_for),
        ]
    }

    fn slot(&self) -> Slot {
        self.slot
    }

    fn bytes(&self) -> usize {
        self.response.len()
    }

    /// A record that was finished with our own token was finished inside a transaction: then this
    /// is the first that those who wait can hear of it.
    fn read(&self, row: &PgRow) -> Result<(Completed, bool), StoreError> {
        let verdict: &str = column(row, "verdict")?;
        match verdict {
            "S" => {
                let receipt = Receipt {
                    created_at: timestamp(row, "created")?,
                    completed_at: timestamp(row, "completed")?,
                    expires_at: timestamp(row, "expires")?,
                };
                Ok((Completed::Stored(receipt), true))
            }
            "F" => {
                let record = record(row)?;
                let ours = record.token == self.token;
                Ok((Completed::Found(record), ours))
            }
            "A" => Ok((Completed::Absent, false)),
            other => Err(unexpected(other)),
        }
    }
}

pub(super) struct Releasing {
    pub(super) lease: Lease,
    pub(super) why: Release,
}

impl Verb for Releasing {
    type Answer = Released;

    fn statement(statements: &Statements) -> &Statement {
        &statements.release
    }

    fn args(rows: &[&Self], _again: bool) -> Vec<Arg> {
        vec![
            bytes(rows, |it| slot_bytes(&it.lease.slot)),
            bytes(rows, |it| token_bytes(&it.lease.token)),
            bools(rows, |it| it.why == Release::Unknown),
            ints(rows, |it| it.lease.lease_for),
        ]
    }

    fn slot(&self) -> Slot {
        self.lease.slot
    }

    fn read(&self, row: &PgRow) -> Result<(Released, bool), StoreError> {
        let verdict: &str = column(row, "verdict")?;
        match verdict {
            "S" => Ok((Released::Ended, true)),
            "E" => Ok((Released::Ended, false)),
            "F" => Ok((Released::Found(record(row)?), false)),
            other => Err(unexpected(other)),
        }
    }
}

/// Asks how long a claim's lease still lasts; nothing if the claim is over or has lapsed.
pub(super) struct Looking {
    pub(super) slot: Slot,
    pub(super) seen: Token,
}

impl Verb for Looking {
    type Answer = Option<Duration>;

    fn statement(statements: &Statements) -> &Statement {
        &statements.look
    }

    fn args(rows: &[&Self], _again: bool) -> Vec<Arg> {
        vec![
            bytes(rows, |it| slot_bytes(&it.slot)),
            bytes(rows, |it| token_bytes(&it.seen)),
        ]
    }

    fn slot(&self) -> Slot {
        self.slot
    }

    fn read(&self, row: &PgRow) -> Result<(Option<Duration>, bool), StoreError> {
        let lease_left: Option<i64> = column(row, "lease_left")?;
        let lease_left = lease_left.map(left).filter(|left| !left.is_zero());
        Ok((lease_left, false))
    }
}

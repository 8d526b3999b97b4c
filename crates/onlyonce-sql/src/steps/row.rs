//! A row as its columns, both ways. What cannot be read with certainty is refused, never guessed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::codec::{self, CodecError};
use onlyonce_core::entry::{Entry, Kept, Phase, timestamp};
use onlyonce_core::operate::{Ended, StateName, Swept};
use onlyonce_core::{Fingerprint, OnLapse, Slot, Timestamp, Token};
use thiserror::Error;

use super::held::{Dead, Held};
use super::{from_millis, to_millis};

/// The columns that [`read_slot`] and [`read_held`] read, in their order.
pub(crate) const READ_COLUMNS: &str = "slot, state, token, fingerprint, rerun, attempt, \
     created_at, completed_at, lease_until, expires_at, tail, replays, meta, dead, response";

/// The columns that [`read_ended`] reads, in their order: the first are those of [`READ_COLUMNS`].
pub(crate) fn ended_columns() -> String {
    format!(
        "slot, state, token, fingerprint, meta, COALESCE(completed_at, created_at), expires_at, \
         replays, CASE WHEN bytes <= {} THEN response END",
        Ended::RESPONSE_BYTES_MAX
    )
}

/// What is written of a row besides its slot, in the order in which [`bind`] binds it.
pub(crate) const WRITTEN: [&str; 19] = [
    "state",
    "token",
    "fingerprint",
    "rerun",
    "attempt",
    "created_at",
    "completed_at",
    "lease_until",
    "expires_at",
    "tail",
    "replays",
    "operation",
    "actor",
    "hint",
    "meta",
    "dead",
    "sweep_at",
    "bytes",
    "response",
];

/// The state of a row that holds no record, but tokens that must not come back.
const RELEASED: &str = "R";

/// Why a row could not be read.
#[derive(Debug, Error)]
pub(crate) enum Misread {
    #[error(transparent)]
    Column(#[from] sqlx::Error),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error("column `{0}` holds what was never written there")]
    Value(&'static str),
}

/// What is written to a row, besides its slot. Moments are milliseconds since 1970.
pub(crate) struct Cells {
    /// `P`ending, `D`one, `F`ailed, `U`nknown or `R`eleased.
    pub(crate) state: &'static str,
    pub(crate) token: [u8; Token::BYTES],
    pub(crate) fingerprint: [u8; 33],
    pub(crate) rerun: bool,
    pub(crate) attempt: i64,
    pub(crate) created_at: i64,
    pub(crate) completed_at: Option<i64>,
    pub(crate) lease_until: Option<i64>,
    pub(crate) expires_at: i64,
    pub(crate) tail: i64,
    pub(crate) replays: i64,
    pub(crate) operation: Arc<str>,
    pub(crate) actor: Option<Arc<str>>,
    pub(crate) hint: String,
    pub(crate) meta: Bytes,
    pub(crate) response: Option<Bytes>,
    pub(crate) dead: Vec<u8>,
    /// When the row may be swept.
    pub(crate) sweep_at: i64,
}

impl Cells {
    /// The columns of `held`; nothing if its row is no longer needed.
    pub(crate) fn of(held: &Held, now: Duration) -> Option<Self> {
        let sweep_at = held.needed_until();
        let dead = held.dead.to_bytes();
        match &held.entry.kept {
            Some(kept) => Some(Self::of_record(kept, dead, to_millis(sweep_at))),
            None if sweep_at > now => Some(Self::released(dead, to_millis(sweep_at))),
            None => None,
        }
    }

    fn of_record(kept: &Kept, dead: Vec<u8>, sweep_at: i64) -> Self {
        let (state, lease_until, response) = match &kept.phase {
            Phase::Pending { lease_until } => ("P", Some(to_millis(*lease_until)), None),
            Phase::Finished(response) if response.is_failure() => ("F", None, Some(response)),
            Phase::Finished(response) => ("D", None, Some(response)),
            Phase::Unknown => ("U", None, None),
        };
        Self {
            state,
            token: *kept.token.as_bytes(),
            fingerprint: kept.fingerprint.to_bytes(),
            rerun: kept.on_lapse == OnLapse::Rerun,
            attempt: i64::from(kept.attempt),
            created_at: millis_of(kept.created_at),
            completed_at: kept.completed_at.map(millis_of),
            lease_until,
            expires_at: to_millis(kept.expires),
            tail: to_millis(kept.tail),
            replays: i64::try_from(kept.replays).unwrap_or(i64::MAX),
            operation: Arc::clone(&kept.meta.operation),
            actor: kept.meta.actor.clone(),
            hint: kept.meta.hint.to_text(),
            meta: codec::encode_meta(&kept.meta),
            response: response.map(|response| codec::encode_response(response)),
            dead,
            sweep_at,
        }
    }

    fn released(dead: Vec<u8>, sweep_at: i64) -> Self {
        Self {
            state: RELEASED,
            token: [0; Token::BYTES],
            fingerprint: [0; 33],
            rerun: false,
            attempt: 0,
            created_at: 0,
            completed_at: None,
            lease_until: None,
            expires_at: 0,
            tail: 0,
            replays: 0,
            operation: "".into(),
            actor: None,
            hint: String::new(),
            meta: Bytes::new(),
            response: None,
            dead,
            sweep_at,
        }
    }

    /// How much room the answer takes.
    pub(crate) fn bytes(&self) -> i64 {
        let bytes = self.response.as_ref().map_or(0, Bytes::len);
        i64::try_from(bytes).unwrap_or(i64::MAX)
    }
}

/// Binds what [`WRITTEN`] names.
macro_rules! bind {
    ($query:expr, $cells:expr) => {{
        let cells = $cells;
        let bytes = cells.bytes();
        $query
            .bind(cells.state)
            .bind(cells.token.to_vec())
            .bind(cells.fingerprint.to_vec())
            .bind(cells.rerun)
            .bind(cells.attempt)
            .bind(cells.created_at)
            .bind(cells.completed_at)
            .bind(cells.lease_until)
            .bind(cells.expires_at)
            .bind(cells.tail)
            .bind(cells.replays)
            .bind(cells.operation.to_string())
            .bind(cells.actor.map(|actor| actor.to_string()))
            .bind(cells.hint)
            .bind(cells.meta.to_vec())
            .bind(cells.dead)
            .bind(cells.sweep_at)
            .bind(bytes)
            .bind(cells.response.map(|response| response.to_vec()))
    }};
}
pub(crate) use bind;

/// The condition for a live record to be in `state`, where `now` is the database's clock.
pub(crate) fn in_state(state: StateName, now: &str) -> String {
    match state {
        StateName::Pending => format!("state = 'P' AND lease_until > {now}"),
        StateName::Lapsed => format!("state = 'P' AND lease_until <= {now}"),
        StateName::Done => "state = 'D'".to_owned(),
        StateName::Failed => "state = 'F'".to_owned(),
        StateName::Unknown => "state = 'U'".to_owned(),
    }
}

/// A row that a sweep has dropped.
pub(crate) struct Dropped {
    /// Whether it held a record, and not only tokens that must not come back.
    pub(crate) is_record: bool,
    /// What is told of it, if it was finished and can be read.
    pub(crate) ended: Option<Ended>,
}

impl Dropped {
    /// Reads [`ended_columns`] of a row that was dropped at `now`.
    pub(crate) fn read(row: &impl Columns, now: Duration) -> Result<Self, sqlx::Error> {
        let state = row.text(1)?;
        let is_finished = matches!(&*state, "D" | "F");
        Ok(Self {
            is_record: state != RELEASED,
            ended: is_finished.then(|| read_ended(row, now).ok()).flatten(),
        })
    }

    /// What a sweep says that has dropped these, and was told of the ends that claims have made.
    pub(crate) fn swept(dropped: Vec<Self>, replaced: Vec<Ended>) -> Swept {
        let records = dropped.iter().filter(|it| it.is_record).count();
        let mut ended: Vec<_> = dropped.into_iter().filter_map(|it| it.ended).collect();
        ended.extend(replaced);
        Swept { records, ended }
    }
}

fn read_ended(row: &impl Columns, now: Duration) -> Result<Ended, Misread> {
    let token = row.bytes(2)?.try_into();
    let fingerprint = Fingerprint::from_bytes(&row.bytes(3)?);
    let since = from_millis(row.int(5)?);
    let response = row.maybe_bytes(8)?;
    let response = response.and_then(|it| codec::decode_response(&it.into()).ok());
    Ok(Ended {
        slot: read_slot(row)?,
        token: Token::from_bytes(token.map_err(|_| Misread::Value("token"))?),
        fingerprint: fingerprint.ok_or(Misread::Value("fingerprint"))?,
        meta: Arc::new(codec::decode_meta(&row.bytes(4)?.into())?),
        keep_for: from_millis(row.int(6)?).saturating_sub(since),
        lifetime: now.saturating_sub(since),
        replays: u64::try_from(row.int(7)?).map_err(|_| Misread::Value("replays"))?,
        response: response.map(Arc::new),
    })
}

/// A row of any of the databases, column by column.
pub(crate) trait Columns {
    fn bytes(&self, at: usize) -> Result<Vec<u8>, sqlx::Error>;
    fn maybe_bytes(&self, at: usize) -> Result<Option<Vec<u8>>, sqlx::Error>;
    fn text(&self, at: usize) -> Result<String, sqlx::Error>;
    fn int(&self, at: usize) -> Result<i64, sqlx::Error>;
    fn maybe_int(&self, at: usize) -> Result<Option<i64>, sqlx::Error>;
}

macro_rules! columns_of {
    ($feature:literal, $row:ty) => {
        #[cfg(feature = $feature)]
        impl Columns for $row {
            fn bytes(&self, at: usize) -> Result<Vec<u8>, sqlx::Error> {
                sqlx::Row::try_get(self, at)
            }
            fn maybe_bytes(&self, at: usize) -> Result<Option<Vec<u8>>, sqlx::Error> {
                sqlx::Row::try_get(self, at)
            }
            fn text(&self, at: usize) -> Result<String, sqlx::Error> {
                sqlx::Row::try_get(self, at)
            }
            fn int(&self, at: usize) -> Result<i64, sqlx::Error> {
                sqlx::Row::try_get(self, at)
            }
            fn maybe_int(&self, at: usize) -> Result<Option<i64>, sqlx::Error> {
                sqlx::Row::try_get(self, at)
            }
        }
    };
}

columns_of!("mysql", sqlx::mysql::MySqlRow);
columns_of!("sqlite", sqlx::sqlite::SqliteRow);

/// Reads the first of [`READ_COLUMNS`].
pub(crate) fn read_slot(row: &impl Columns) -> Result<Slot, Misread> {
    let slot = row.bytes(0)?.try_into();
    Ok(Slot::from_bytes(slot.map_err(|_| Misread::Value("slot"))?))
}

/// Reads the rest of [`READ_COLUMNS`].
pub(crate) fn read_held(row: &impl Columns) -> Result<Held, Misread> {
    let dead = Dead::from_bytes(&row.bytes(13)?).ok_or(Misread::Value("dead"))?;
    let kept = match &*row.text(1)? {
        RELEASED => None,
        state => Some(read_kept(row, state)?),
    };
    let entry = Entry { kept };
    Ok(Held { entry, dead })
}

fn read_kept(row: &impl Columns, state: &str) -> Result<Kept, Misread> {
    let token = row.bytes(2)?.try_into();
    let fingerprint = Fingerprint::from_bytes(&row.bytes(3)?);
    let meta = codec::decode_meta(&row.bytes(12)?.into())?;
    Ok(Kept {
        token: Token::from_bytes(token.map_err(|_| Misread::Value("token"))?),
        fingerprint: fingerprint.ok_or(Misread::Value("fingerprint"))?,
        on_lapse: match row.int(4)? {
            0 => OnLapse::Hold,
            1 => OnLapse::Rerun,
            _ => return Err(Misread::Value("rerun")),
        },
        attempt: u32::try_from(row.int(5)?).map_err(|_| Misread::Value("attempt"))?,
        created_at: timestamp(from_millis(row.int(6)?)),
        completed_at: row.maybe_int(7)?.map(|at| timestamp(from_millis(at))),
        expires: from_millis(row.int(9)?),
        tail: from_millis(row.int(10)?),
        replays: u64::try_from(row.int(11)?).map_err(|_| Misread::Value("replays"))?,
        meta: Arc::new(meta),
        phase: read_phase(row, state)?,
    })
}

fn read_phase(row: &impl Columns, state: &str) -> Result<Phase, Misread> {
    match state {
        "P" => {
            let lease_until = row.maybe_int(8)?.ok_or(Misread::Value("lease_until"))?;
            let lease_until = from_millis(lease_until);
            Ok(Phase::Pending { lease_until })
        }
        "D" | "F" => {
            let response = row.maybe_bytes(14)?.ok_or(Misread::Value("response"))?;
            let response = codec::decode_response(&response.into())?;
            Ok(Phase::Finished(Arc::new(response)))
        }
        "U" => Ok(Phase::Unknown),
        _ => Err(Misread::Value("state")),
    }
}

fn millis_of(moment: Timestamp) -> i64 {
    i64::try_from(moment.as_millis()).unwrap_or(i64::MAX)
}

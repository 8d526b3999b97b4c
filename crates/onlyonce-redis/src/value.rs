//! What is kept under a slot's key: a head of fixed length that the scripts cut by position, what
//! the record tells people, the answer, and the tokens that were released and must stay dead.
//! `scripts/common.lua` has the same layout; the two change together.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use onlyonce_core::codec::{self, CodecError};
use onlyonce_core::{Claim, Fingerprint, OnLapse, Record, Response, State, Timestamp, Token};
use thiserror::Error;

#[cfg(test)]
mod tests;

const MARK: &[u8; 2] = b"O1";
/// The length of the head.
pub(super) const HEAD_BYTES: usize = 126;
const GRAVE_BYTES: usize = 24;
/// What counts as for ever: five thousand years. Sums of a few stay exact in a script.
pub(super) const MILLIS_MAX: u64 = 157_680_000_000_000;

/// Why a value cannot be read.
#[derive(Debug, Error)]
pub(super) enum Unreadable {
    /// Not one of our values.
    #[error("the key holds something else than a record: forget it, or choose another prefix")]
    NotOurs,
    /// A part does not hold what it should.
    #[error("the record's {0} cannot be read: forget it or restore the store")]
    Part(&'static str),
    /// What is behind the head is damaged.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// A duration as the scripts count it: rounded up, so that no lease is shorter than asked for.
pub(super) fn millis(duration: Duration) -> u64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).map_or(MILLIS_MAX, |millis| millis.min(MILLIS_MAX))
}

/// The time to live of a new claim's key. Redis has no key that lives for no time.
pub(super) fn claim_px(claim: &Claim) -> u64 {
    (millis(claim.lease_for) + millis(claim.keep_for)).max(1)
}

/// The value of a new claim. When it was made is for the server to say.
pub(super) fn pending(claim: &Claim) -> Bytes {
    let meta = codec::encode_meta(&claim.meta);
    let mut out = BytesMut::with_capacity(HEAD_BYTES + meta.len());
    out.put_slice(MARK);
    out.put_u8(b'P');
    out.put_slice(claim.token.as_bytes());
    out.put_slice(&claim.fingerprint.to_bytes());
    out.put_u8(match claim.on_lapse {
        OnLapse::Rerun => b'r',
        OnLapse::Hold => b'h',
    });
    out.put_u32(1);
    out.put_u64(millis(claim.keep_for));
    out.put_u64(0);
    out.put_u64(claim_px(claim));
    out.put_bytes(0, 5 * 8);
    out.put_u32(u32::try_from(meta.len()).expect("what is told to people is bounded far below"));
    out.put_u8(0);
    out.put_slice(&meta);
    out.freeze()
}

/// The state an answer is stored as.
pub(super) fn finished_as(response: &Response) -> &'static str {
    if response.is_failure() { "F" } else { "D" }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Pending,
    Done,
    Failed,
    Unknown,
    /// Nothing but graves: absent for everyone but a claim.
    Released,
}

/// The head of a value.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) standing: Standing,
    pub(super) token: Token,
    fingerprint: Fingerprint,
    on_lapse: OnLapse,
    attempt: u32,
    /// How long the record outlives its lease.
    tail: u64,
    /// How much earlier than that its lease was ended.
    early: u64,
    /// The time to live that a native claim began with.
    px: u64,
    created: u64,
    completed: u64,
    /// Zero until a script has touched the record: then only the key's time to live tells.
    expires: u64,
    /// When the last grave is due.
    graved: u64,
    replays: u64,
    meta_bytes: usize,
    graves: usize,
}

impl Head {
    /// Reads the head of `value`, which need not hold more.
    pub(super) fn read(value: &[u8]) -> Result<Self, Unreadable> {
        if value.len() < HEAD_BYTES || !value.starts_with(MARK) {
            return Err(Unreadable::NotOurs);
        }
        let standing = match value[2] {
            b'P' => Standing::Pending,
            b'D' => Standing::Done,
            b'F' => Standing::Failed,
            b'U' => Standing::Unknown,
            b'R' => Standing::Released,
            _ => return Err(Unreadable::Part("state")),
        };
        let on_lapse = match value[52] {
            b'r' => OnLapse::Rerun,
            b'h' => OnLapse::Hold,
            0 if standing == Standing::Released => OnLapse::Rerun,
            _ => return Err(Unreadable::Part("rule for a lapse")),
        };
        let number = |at: usize| u64::from_be_bytes(array(value, at));
        let fingerprint: [u8; 33] = array(value, 19);
        Ok(Self {
            standing,
            token: Token::from_bytes(array(value, 3)),
            fingerprint: Fingerprint::from_bytes(&fingerprint)
                .ok_or(Unreadable::Part("fingerprint"))?,
            on_lapse,
            attempt: u32::from_be_bytes(array(value, 53)),
            tail: number(57),
            early: number(65),
            px: number(73),
            created: number(81),
            completed: number(89),
            expires: number(97),
            graved: number(105),
            replays: number(113),
            meta_bytes: u32::from_be_bytes(array(value, 121)) as usize,
            graves: usize::from(value[125]),
        })
    }

    /// How long the record is still kept if its key has this time to live; nothing if only its
    /// graves are. A key without an end is kept for ever.
    pub(super) fn keep_left(&self, pttl: i64) -> Option<u64> {
        let Ok(pttl) = u64::try_from(pttl) else {
            return Some(MILLIS_MAX);
        };
        match self.graved.saturating_sub(self.expires) {
            _ if self.standing == Standing::Released => None,
            0 => Some(pttl),
            longer => pttl.checked_sub(longer).filter(|left| *left > 0),
        }
    }

    /// What is left of the lease, if this much is left of the record.
    pub(super) fn lease_left(&self, keep_left: u64) -> Duration {
        Duration::from_millis(keep_left.saturating_sub(self.tail.saturating_add(self.early)))
    }

    /// When the record ends, if a script has said so.
    pub(super) fn known_end(&self) -> Option<u64> {
        (self.expires > 0).then_some(self.expires)
    }

    /// The whole record, of which `keep_left` is left until `ends`.
    pub(super) fn record(
        &self,
        value: &Bytes,
        keep_left: u64,
        ends: u64,
    ) -> Result<Record, Unreadable> {
        let (meta, answer) = self.parts(value)?;
        let state = match self.standing {
            Standing::Pending => State::Pending {
                lease_left: self.lease_left(keep_left),
            },
            Standing::Done | Standing::Failed => {
                let response = codec::decode_response(&value.slice(answer))?;
                State::finished(Arc::new(response))
            }
            Standing::Unknown => State::Unknown,
            Standing::Released => return Err(Unreadable::Part("state")),
        };
        let created = match self.created {
            0 => ends.saturating_sub(self.px),
            created => created,
        };
        Ok(Record {
            token: self.token,
            fingerprint: self.fingerprint,
            on_lapse: self.on_lapse,
            attempt: self.attempt,
            meta: Arc::new(codec::decode_meta(&value.slice(meta))?),
            created_at: Timestamp::from_millis(created),
            completed_at: (self.completed > 0).then(|| Timestamp::from_millis(self.completed)),
            expires_at: Timestamp::from_millis(ends),
            keep_left: Duration::from_millis(keep_left),
            replays: self.replays,
            state,
        })
    }

    /// Where the meta and the answer are.
    fn parts(&self, value: &Bytes) -> Result<(Range<usize>, Range<usize>), Unreadable> {
        let meta_end = HEAD_BYTES.saturating_add(self.meta_bytes);
        let answer_end = value.len().checked_sub(self.graves * GRAVE_BYTES);
        match answer_end {
            Some(answer_end) if meta_end <= answer_end => {
                Ok((HEAD_BYTES..meta_end, meta_end..answer_end))
            }
            Some(_) | None => Err(Unreadable::Part("length")),
        }
    }
}

/// `N` bytes of the head.
fn array<const N: usize>(value: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&value[at..at + N]);
    bytes
}

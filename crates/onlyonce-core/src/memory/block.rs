//! A finished record as one block of bytes: its length, what the shard asks for most, and the
//! record as the codec packs it. Nearly all records are finished, and a block takes a third of the
//! room.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::looks::{Due, Tag};
use crate::codec::{self, Glance};
use crate::entry::{Entry, Kept, timestamp};
use crate::fingerprint::Fingerprint;
use crate::record::{Meta, Replay};
use crate::slot::Slot;

const DUE_AT: usize = 4;
const SECONDS_AT: usize = DUE_AT + 4;
const NANOS_AT: usize = SECONDS_AT + 8;
const SLOT_AT: usize = NANOS_AT + 4;
const RECORD_AT: usize = SLOT_AT + Slot::BYTES;

#[derive(Clone, Copy)]
pub(super) struct Block<'a>(pub(super) &'a [u8]);

impl<'a> Block<'a> {
    pub(super) fn due(self) -> Due {
        Due(u32::from_le_bytes(self.array(DUE_AT)))
    }

    pub(super) fn is_live(self, now: Duration) -> bool {
        self.expires() > now
    }

    pub(super) fn expires(self) -> Duration {
        let seconds = u64::from_le_bytes(self.array(SECONDS_AT));
        Duration::new(seconds, u32::from_le_bytes(self.array(NANOS_AT)))
    }

    pub(super) fn slot(self) -> Slot {
        Slot::from_bytes(self.array(SLOT_AT))
    }

    pub(super) fn is_of(self, slot: &Slot) -> bool {
        self.0[SLOT_AT..RECORD_AT] == *slot.as_bytes()
    }

    pub(super) fn tag(self) -> Tag {
        Tag(u32::from_le_bytes(self.array(SLOT_AT)))
    }

    /// The record, from a copy: who is given the answer may keep it for longer than we do.
    pub(super) fn entry(self, known: Option<&Arc<Meta>>) -> Entry {
        let record = Bytes::copy_from_slice(&self.0[RECORD_AT..]);
        let kept = codec::unpack(&record, known).expect("what was packed here can be unpacked");
        Entry {
            kept: Some(Kept {
                expires: self.expires(),
                ..kept
            }),
        }
    }

    /// The answer, if it is of this meaning. Of the rest of the record nothing is copied.
    pub(super) fn replay(self, fingerprint: &Fingerprint) -> Option<Replay> {
        let packed = &self.0[RECORD_AT..];
        let replay = codec::unpack_replay(packed, fingerprint, timestamp(self.expires()));
        replay.expect("what was packed here can be unpacked")
    }

    /// What a search goes by. Nothing is copied.
    pub(super) fn glance(self) -> Glance<'a> {
        codec::glance(&self.0[RECORD_AT..]).expect("what was packed here can be unpacked")
    }

    fn array<const N: usize>(self, at: usize) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&self.0[at..at + N]);
        array
    }
}

/// Writes a block over what is in `out`.
pub(super) fn write(out: &mut Vec<u8>, slot: &Slot, due: Due, mut kept: Kept) {
    // It has its place in the block: once is enough.
    let expires = std::mem::take(&mut kept.expires);
    out.clear();
    out.extend_from_slice(&[0; DUE_AT]);
    out.extend_from_slice(&due.0.to_le_bytes());
    out.extend_from_slice(&expires.as_secs().to_le_bytes());
    out.extend_from_slice(&expires.subsec_nanos().to_le_bytes());
    out.extend_from_slice(slot.as_bytes());
    codec::pack(out, &kept);
    let length = u32::try_from(out.len()).expect("answers are bounded far below 4 GiB");
    out[..DUE_AT].copy_from_slice(&length.to_le_bytes());
}

pub(super) fn set_due(block: &mut [u8], due: Due) {
    block[DUE_AT..SECONDS_AT].copy_from_slice(&due.0.to_le_bytes());
}

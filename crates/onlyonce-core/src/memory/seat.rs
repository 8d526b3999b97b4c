//! One slot's record in memory: as it is worked with while it is open, and as one block of bytes
//! once it has its answer. Nearly all records are finished, and a block takes a third of the room.

use std::time::Duration;

use bytes::Bytes;

use crate::codec;
use crate::entry::{Change, Entry, Kept, Phase};
use crate::slot::Slot;

/// A slot's place in its shard.
pub(super) struct Seat {
    /// What the table finds it by: the start of its slot.
    pub(super) tag: u64,
    form: Form,
}

enum Form {
    Open(Box<Open>),
    Packed(Packed),
}

struct Open {
    slot: Slot,
    due: u64,
    entry: Entry,
}

/// The slot, when to look at it again, the length of its answer, and the record as the codec
/// writes it.
struct Packed(Box<[u8]>);

const DUE_AT: usize = Slot::BYTES;
const BYTES_AT: usize = DUE_AT + 8;
const RECORD_AT: usize = BYTES_AT + 8;

impl Seat {
    /// A seat with nothing in it yet.
    pub(super) fn new(slot: &Slot) -> Self {
        Self {
            tag: slot.tag(),
            form: Form::Open(Box::new(Open {
                slot: *slot,
                due: 0,
                entry: Entry::default(),
            })),
        }
    }

    pub(super) fn slot(&self) -> Slot {
        match &self.form {
            Form::Open(open) => open.slot,
            Form::Packed(packed) => Slot::from_bytes(packed.array(0)),
        }
    }

    pub(super) fn is_of(&self, slot: &Slot) -> bool {
        self.tag == slot.tag() && self.slot() == *slot
    }

    /// When the expiry queue will look at it: not after it expires. Zero: not queued.
    pub(super) fn due(&self) -> u64 {
        match &self.form {
            Form::Open(open) => open.due,
            Form::Packed(packed) => u64::from_le_bytes(packed.array(DUE_AT)),
        }
    }

    pub(super) fn set_due(&mut self, due: u64) {
        match &mut self.form {
            Form::Open(open) => open.due = due,
            Form::Packed(packed) => {
                packed.0[DUE_AT..BYTES_AT].copy_from_slice(&due.to_le_bytes());
            }
        }
    }

    /// How many bytes its answer has.
    pub(super) fn bytes(&self) -> usize {
        match &self.form {
            Form::Open(open) => open.entry.kept.as_ref().map_or(0, Kept::bytes),
            Form::Packed(packed) => {
                let bytes = u64::from_le_bytes(packed.array(BYTES_AT));
                usize::try_from(bytes).unwrap_or(usize::MAX)
            }
        }
    }

    /// Looks at the record.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Entry) -> T) -> T {
        match &self.form {
            Form::Open(open) => look(&open.entry),
            Form::Packed(packed) => look(&packed.entry()),
        }
    }

    /// One atomic step on the record. Says what came of it, and when what is left expires.
    pub(super) fn step<T>(
        &mut self,
        step: impl FnOnce(&mut Entry) -> (T, Change),
    ) -> (T, Change, Option<Expiry>) {
        let (slot, due) = (self.slot(), self.due());
        match &mut self.form {
            Form::Open(open) => {
                let (answer, change) = step(&mut open.entry);
                let expiry = Expiry::of(&open.entry);
                if is_finished(&open.entry) {
                    self.form = Form::new(slot, due, std::mem::take(&mut open.entry));
                }
                (answer, change, expiry)
            }
            Form::Packed(packed) => {
                let mut entry = packed.entry();
                let (answer, change) = step(&mut entry);
                let expiry = Expiry::of(&entry);
                if change != Change::Nothing {
                    self.form = Form::new(slot, due, entry);
                }
                (answer, change, expiry)
            }
        }
    }
}

fn is_finished(entry: &Entry) -> bool {
    let phase = entry.kept.as_ref().map(|kept| &kept.phase);
    matches!(phase, Some(Phase::Finished(_)))
}

impl Form {
    fn new(slot: Slot, due: u64, entry: Entry) -> Self {
        match &entry.kept {
            Some(kept) if is_finished(&entry) => Self::Packed(Packed::new(slot, due, kept)),
            Some(_) | None => Self::Open(Box::new(Open { slot, due, entry })),
        }
    }
}

impl Packed {
    fn new(slot: Slot, due: u64, kept: &Kept) -> Self {
        let record = codec::encode(kept);
        let mut block = Vec::with_capacity(RECORD_AT + record.len());
        block.extend_from_slice(slot.as_bytes());
        block.extend_from_slice(&due.to_le_bytes());
        block.extend_from_slice(&(kept.bytes() as u64).to_le_bytes());
        block.extend_from_slice(&record);
        Self(block.into_boxed_slice())
    }

    /// The record, from a copy: who is given the answer may keep it for longer than we do.
    fn entry(&self) -> Entry {
        let record = Bytes::copy_from_slice(&self.0[RECORD_AT..]);
        let kept = codec::decode(&record).expect("what was packed here can be unpacked");
        Entry { kept: Some(kept) }
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(&self.0[at..at + N]);
        array
    }
}

/// When a record ends, in milliseconds, and when it is worth looking whether it has.
#[derive(Clone, Copy)]
pub(super) struct Expiry {
    pub(super) ends: u64,
    /// A claim ends later than the answer it usually becomes: one look serves both.
    pub(super) first_look: u64,
}

impl Expiry {
    fn of(entry: &Entry) -> Option<Self> {
        let kept = entry.kept.as_ref()?;
        let ends = millis(kept.expires);
        let answered = kept
            .created_at
            .as_millis()
            .saturating_add(millis(kept.tail));
        Some(Self {
            ends,
            first_look: answered.clamp(1, ends.max(1)),
        })
    }
}

/// Whole milliseconds, rounded up: what is due by them is over.
pub(super) fn millis(moment: Duration) -> u64 {
    u64::try_from(moment.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

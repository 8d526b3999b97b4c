//! The bytes of a segment: a header, then one frame for every record written. Each frame stands
//! alone and is checksummed, so that what was damaged or cut off is recognised, never guessed.
//!
//! A frame is mark, replays, check of the replays, checksum of the rest, length of the payload,
//! kind, whether it begins a commit, when it is due, slot, payload; numbers are little-endian.

use bytes::Bytes;
use onlyonce_core::Slot;

/// The format this build writes, and the only one it reads.
pub(super) const VERSION: u32 = 1;
/// A segment's header.
pub(super) const HEADER_BYTES: usize = 64;
/// What precedes a frame's payload.
pub(super) const HEAD_BYTES: usize = 64;
/// Where a frame's replays are, to be counted in place.
pub(super) const REPLAYS_AT: usize = 4;
pub(super) const REPLAYS_BYTES: usize = 8;
/// How long a payload may be: a segment's offsets have 32 bits, and one frame may not fill them.
pub(super) const PAYLOAD_BYTES_MAX: usize = 1 << 30;

const MARK: [u8; 4] = *b"1Of1";
const HEADER_MARK: [u8; 8] = *b"onlyonce";
const SUMMED_AT: usize = 16;

/// What a frame says of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A claim that runs or lapsed.
    Pending = b'p',
    /// An answer.
    Finished = b'f',
    /// Whether it happened is unknown.
    Unknown = b'u',
    /// The slot is free again.
    Gone = b'g',
    /// Nothing: the store was closed in order.
    Closed = b'c',
}

impl Kind {
    pub(super) fn of_byte(byte: u8) -> Option<Self> {
        [
            Self::Pending,
            Self::Finished,
            Self::Unknown,
            Self::Gone,
            Self::Closed,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }

    /// Whether it is a record, and not the end of one.
    pub(super) fn is_record(self) -> bool {
        match self {
            Self::Pending | Self::Finished | Self::Unknown => true,
            Self::Gone | Self::Closed => false,
        }
    }
}

/// What precedes a frame's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// Whether it is the first frame of a commit: then everything before it was made durable
    /// before it was written.
    pub(super) begins: bool,
    /// When it has expired for certain, in milliseconds since 1970.
    pub(super) due: u64,
    pub(super) slot: Slot,
    /// Replays counted since it was written.
    pub(super) replays: u32,
    /// The length of its payload.
    pub(super) payload_bytes: u32,
}

/// A frame as read back.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) head: Head,
    pub(super) payload: Bytes,
}

impl Head {
    /// The length of the whole frame.
    pub(super) fn bytes(&self) -> usize {
        HEAD_BYTES + self.payload_bytes as usize
    }

    /// Reads the head at the start of `bytes`; its checksum is for [`is_whole`] to check.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<HEAD_BYTES>()?;
        if head[..4] != MARK {
            return None;
        }
        let replays = u32_at(head, REPLAYS_AT);
        let is_counted = u32_at(head, REPLAYS_AT + 4) == replays_check(replays);
        let payload_bytes = u32_at(head, 16);
        let begins = match head[21] {
            0 => false,
            1 => true,
            _ => return None,
        };
        let mut slot = [0; Slot::BYTES];
        slot.copy_from_slice(&head[32..64]);
        Some(Self {
            kind: Kind::of_byte(head[20])?,
            begins,
            due: u64_at(head, 24),
            slot: Slot::from_bytes(slot),
            replays: if is_counted { replays } else { 0 },
            payload_bytes,
        })
        .filter(|_| payload_bytes as usize <= PAYLOAD_BYTES_MAX)
    }

    /// Appends the frame of this head and `payload` to `out`.
    pub(super) fn write(&self, payload: &[u8], salt: u32, out: &mut Vec<u8>) {
        let from = out.len();
        out.extend_from_slice(&MARK);
        out.extend_from_slice(&replays_field(self.replays));
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.payload_bytes.to_le_bytes());
        out.extend_from_slice(&[self.kind as u8, u8::from(self.begins), 0, 0]);
        out.extend_from_slice(&self.due.to_le_bytes());
        out.extend_from_slice(self.slot.as_bytes());
        out.extend_from_slice(payload);
        let sum = checksum(&out[from + SUMMED_AT..], salt).to_le_bytes();
        out[from + 12..from + 16].copy_from_slice(&sum);
    }
}

/// Whether `frame`, as long as its head says, is what was written into the segment of this salt.
pub(super) fn is_whole(frame: &[u8], salt: u32) -> bool {
    frame.len() >= HEAD_BYTES && checksum(&frame[SUMMED_AT..], salt) == u32_at(frame, 12)
}

/// The first whole frame at or after the start of `bytes` that begins a commit.
pub(super) fn find_beginning(bytes: &[u8], salt: u32) -> Option<usize> {
    let mut from = 0;
    while let Some(near) = bytes[from..].windows(MARK.len()).position(|it| it == MARK) {
        let at = from + near;
        let found = Head::parse(&bytes[at..]).filter(|head| head.begins);
        if let Some(head) = found
            && let Some(frame) = bytes.get(at..at + head.bytes())
            && is_whole(frame, salt)
        {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// How often a frame was replayed since it was written, as it is counted in place: with its own
/// check, because the frame's checksum leaves it out.
pub(super) fn replays_field(replays: u32) -> [u8; REPLAYS_BYTES] {
    let mut field = [0; REPLAYS_BYTES];
    field[..4].copy_from_slice(&replays.to_le_bytes());
    field[4..].copy_from_slice(&replays_check(replays).to_le_bytes());
    field
}

fn replays_check(replays: u32) -> u32 {
    crc32fast::hash(&replays.to_le_bytes())
}

/// A segment's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: u32,
    /// Goes into every checksum: what a client sends cannot pass for a frame.
    pub(super) salt: u32,
    /// When it was begun, in milliseconds since 1970.
    pub(super) began: u64,
    /// Where the segment before it ends.
    pub(super) previous_end: u64,
}

/// Why a header was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderError {
    /// Of another format.
    Version(u32),
    /// Not a header, or damaged.
    Damaged,
}

impl Header {
    pub(super) fn write(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&HEADER_MARK);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.salt.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.began.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.previous_end.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..60]).to_le_bytes();
        bytes[60..].copy_from_slice(&sum);
        bytes
    }

    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderError> {
        if bytes[..8] != HEADER_MARK || crc32fast::hash(&bytes[..60]) != u32_at(bytes, 60) {
            return Err(HeaderError::Damaged);
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        Ok(Self {
            id: u32_at(bytes, 12),
            salt: u32_at(bytes, 16),
            began: u64_at(bytes, 24),
            previous_end: u64_at(bytes, 32),
        })
    }
}

/// The checksum of `bytes` under a segment's salt.
pub(super) fn checksum(bytes: &[u8], salt: u32) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(bytes);
    hasher.finalize()
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

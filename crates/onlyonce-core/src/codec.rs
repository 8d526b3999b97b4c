//! The one binary form of what is kept, for every store: a whole record where the store keeps
//! bytes, its response and what it tells people where the store has columns for the rest.
//! Versioned and checksummed: what cannot be read with certainty is refused, never guessed.
//!
//! Layout: magic `1O`, version, kind, length of the head (u32 LE), head, body, CRC-32 of all
//! before it. The head is written as postcard would write it. A response has a second form, which
//! SQL can write: see `plain`.

use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use crate::clock::Timestamp;
use crate::entry::{Kept, Phase};
use crate::fingerprint::Fingerprint;
use crate::key::Hint;
use crate::record::{Meta, Replay};
use crate::response::Response;

use self::wire::Reader;

mod head;
mod plain;
#[cfg(test)]
mod tests;
mod wire;

const MAGIC: [u8; 2] = *b"1O";
/// The version this build writes, and the only one it reads.
pub const VERSION: u8 = 1;
const PREFIX_BYTES: usize = MAGIC.len() + 1 + 1 + 4;
const CHECKSUM_BYTES: usize = 4;
/// Room for everything but the body, of most records.
const HEAD_BYTES_USUAL: usize = 448;

/// Why stored bytes were refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Not one of our records.
    #[error("the stored bytes are not a record: they do not start with its mark")]
    NotARecord,
    /// Written by another version.
    #[error(
        "the record has format version {found}, this build reads version {VERSION}: upgrade this process, or let the record expire"
    )]
    UnknownVersion {
        /// The version found.
        found: u8,
    },
    /// Cut short, changed or garbled.
    #[error("the stored record is damaged ({what}): forget the key or restore the store")]
    Damaged {
        /// Which part does not hold.
        what: &'static str,
    },
}

/// What a frame holds, so that one kind is never read as another.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Record = b'r',
    Response = b'a',
    Meta = b'm',
}

/// A record's bytes.
pub fn encode(kept: &Kept) -> Bytes {
    frame(Kind::Record, head::body(kept), |out| {
        head::write_record(out, kept);
    })
}

/// Reads a record back. The body and what is in its headers are slices of `bytes`, not copies.
pub fn decode(bytes: &Bytes) -> Result<Kept, CodecError> {
    let (content, head_bytes) = split(Kind::Record, bytes)?;
    let mut reader = Reader::new(&content);
    let kept = head::read_record(&mut reader, &content, None)?;
    ends_at(head_bytes, &reader)?;
    Ok(kept)
}

/// Writes a record that stays in this process: head and body, with neither mark nor checksum.
pub(crate) fn pack(out: &mut Vec<u8>, kept: &Kept) {
    head::write_record(out, kept);
    out.extend_from_slice(head::body(kept));
}

/// Reads back what [`pack`] wrote. What is told to people is `known`, as far as it is the same.
pub(crate) fn unpack(packed: &Bytes, known: Option<&Arc<Meta>>) -> Result<Kept, CodecError> {
    head::read_record(&mut Reader::new(packed), packed, known)
}

/// The answer in what [`pack`] wrote, if it is of this meaning.
pub(crate) fn unpack_replay(
    packed: &[u8],
    fingerprint: &Fingerprint,
    expires_at: Timestamp,
) -> Result<Option<Replay>, CodecError> {
    let mut reader = Reader::new(packed);
    let head = head::read_before_phase(&mut reader)?;
    if head.fingerprint != *fingerprint {
        return Ok(None);
    }
    // From a copy: who is given the answer may keep it for longer than we do.
    let rest = Bytes::copy_from_slice(reader.rest());
    let phase = head::read_phase(&mut Reader::new(&rest), &rest)?;
    let Phase::Finished(response) = phase else {
        return Ok(None);
    };
    Ok(Some(Replay {
        response,
        original_at: Some(head.created_at),
        expires_at: Some(expires_at),
        original_trace: head.meta.trace()?,
        replays: head.replays,
        asked: None,
    }))
}

/// What a search goes by in what [`pack`] wrote. Nothing is copied.
pub(crate) struct Glance<'a> {
    pub(crate) created_at: Timestamp,
    pub(crate) hint: Hint,
    pub(crate) operation: &'a [u8],
    pub(crate) actor: Option<&'a [u8]>,
}

/// Glances at what [`pack`] wrote.
pub(crate) fn glance(packed: &[u8]) -> Result<Glance<'_>, CodecError> {
    let head = head::read_before_phase(&mut Reader::new(packed))?;
    Ok(Glance {
        created_at: head.created_at,
        hint: head.meta.hint,
        operation: head.meta.operation,
        actor: head.meta.actor,
    })
}

/// A response's bytes.
pub fn encode_response(response: &Response) -> Bytes {
    frame(Kind::Response, &response.body, |out| {
        head::write_response(out, response);
    })
}

/// Reads a response back. The body and what is in its headers are slices of `bytes`, not copies.
pub fn decode_response(bytes: &Bytes) -> Result<Response, CodecError> {
    if bytes.starts_with(&plain::MAGIC) {
        return plain::decode(bytes);
    }
    let (content, head_bytes) = split(Kind::Response, bytes)?;
    let mut reader = Reader::new(&content);
    let response = head::read_response(&mut reader, &content)?;
    ends_at(head_bytes, &reader)?;
    Ok(response)
}

/// The bytes of what a record tells people.
pub fn encode_meta(meta: &Meta) -> Bytes {
    frame(Kind::Meta, &[], |out| head::write_meta(out, meta))
}

/// Reads back what a record tells people.
pub fn decode_meta(bytes: &Bytes) -> Result<Meta, CodecError> {
    let (content, head_bytes) = split(Kind::Meta, bytes)?;
    let mut reader = Reader::new(&content);
    let meta = head::read_meta(&mut reader)?.to_meta(None)?;
    ends_at(head_bytes, &reader)?;
    if !reader.rest().is_empty() {
        return Err(damaged("bytes behind what is told to people"));
    }
    Ok(meta)
}

fn frame(kind: Kind, body: &[u8], write_head: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::with_capacity(HEAD_BYTES_USUAL + body.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, kind as u8]);
    out.extend_from_slice(&[0; 4]);
    write_head(&mut out);
    let length = u32::try_from(out.len() - PREFIX_BYTES);
    let length = length.expect("header bytes are bounded far below 4 GiB");
    out[PREFIX_BYTES - 4..PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
    out.reserve_exact(body.len() + CHECKSUM_BYTES);
    out.extend_from_slice(body);
    let checksum = crc32fast::hash(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.into()
}

/// Checks mark, version, kind, lengths and checksum; gives head and body in one, and how much of it
/// is the head.
fn split(kind: Kind, bytes: &Bytes) -> Result<(Bytes, usize), CodecError> {
    if bytes.len() < MAGIC.len() + 1 || bytes[..MAGIC.len()] != MAGIC {
        return Err(CodecError::NotARecord);
    }
    let found = bytes[MAGIC.len()];
    if found != VERSION {
        return Err(CodecError::UnknownVersion { found });
    }
    if bytes.len() < PREFIX_BYTES + CHECKSUM_BYTES {
        return Err(damaged("cut short"));
    }
    let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
    if crc32fast::hash(content).to_le_bytes() != checksum {
        return Err(damaged("checksum"));
    }
    if content[MAGIC.len() + 1] != kind as u8 {
        return Err(damaged("another kind of bytes"));
    }
    let mut length = [0; 4];
    length.copy_from_slice(&bytes[PREFIX_BYTES - 4..PREFIX_BYTES]);
    let head_bytes = usize::try_from(u32::from_le_bytes(length))
        .ok()
        .filter(|length| *length <= content.len() - PREFIX_BYTES)
        .ok_or_else(|| damaged("head length"))?;
    Ok((bytes.slice(PREFIX_BYTES..content.len()), head_bytes))
}

/// What was read must be the whole head, and nothing of the body.
fn ends_at(head_bytes: usize, reader: &Reader<'_>) -> Result<(), CodecError> {
    match reader.position() == head_bytes {
        true => Ok(()),
        false => Err(damaged("head is longer or shorter than it says")),
    }
}

fn damaged(what: &'static str) -> CodecError {
    CodecError::Damaged { what }
}

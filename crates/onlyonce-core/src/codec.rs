//! The one binary form of what is kept, for every store: a whole record where the store keeps
//! bytes, its response and what it tells people where the store has columns for the rest.
//! Versioned and checksummed: what cannot be read with certainty is refused, never guessed.
//!
//! Layout: magic `1O`, version, kind, length of the head (u32 LE), head, body, CRC-32 of all
//! before it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clock::Timestamp;
use crate::entry::{Kept, Phase};
use crate::fingerprint::Fingerprint;
use crate::record::{Meta, OnLapse, Token};
use crate::response::{Origin, Response};

#[cfg(test)]
mod tests;

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

#[derive(Serialize, Deserialize)]
struct Head<'a> {
    token: Token,
    recipe: u8,
    fingerprint: [u8; 32],
    on_lapse: OnLapse,
    attempt: u32,
    meta: Meta,
    created_at: Timestamp,
    completed_at: Option<Timestamp>,
    expires: Duration,
    tail: Duration,
    replays: u64,
    #[serde(borrow)]
    phase: HeadPhase<'a>,
}

#[derive(Serialize, Deserialize)]
enum HeadPhase<'a> {
    Pending {
        lease_until: Duration,
    },
    #[serde(borrow)]
    Finished(HeadResponse<'a>),
    Unknown,
}

/// Names and values where they are: neither written nor read are they copied on the way.
type Fields<'a> = Vec<(&'a str, &'a [u8])>;

#[derive(Serialize, Deserialize)]
struct HeadResponse<'a> {
    status: u16,
    #[serde(borrow)]
    headers: Fields<'a>,
    #[serde(borrow)]
    trailers: Option<Fields<'a>>,
    origin: HeadOrigin,
    took: Duration,
    resource: Option<String>,
}

#[derive(Serialize, Deserialize)]
enum HeadOrigin {
    Handler,
    Panicked,
    TooLarge,
}

/// A record's bytes.
pub fn encode(kept: &Kept) -> Bytes {
    let (phase, body) = match &kept.phase {
        Phase::Pending { lease_until } => (
            HeadPhase::Pending {
                lease_until: *lease_until,
            },
            &[][..],
        ),
        Phase::Finished(response) => (
            HeadPhase::Finished(HeadResponse::of(response)),
            &response.body[..],
        ),
        Phase::Unknown => (HeadPhase::Unknown, &[][..]),
    };
    let head = Head {
        token: kept.token,
        recipe: kept.fingerprint.recipe(),
        fingerprint: *kept.fingerprint.digest(),
        on_lapse: kept.on_lapse,
        attempt: kept.attempt,
        meta: Meta::clone(&kept.meta),
        created_at: kept.created_at,
        completed_at: kept.completed_at,
        expires: kept.expires,
        tail: kept.tail,
        replays: kept.replays,
        phase,
    };
    frame(Kind::Record, &head, body)
}

/// Reads a record back. The body and what is in its headers are slices of `bytes`, not copies.
pub fn decode(bytes: &Bytes) -> Result<Kept, CodecError> {
    let (head, body) = split(Kind::Record, bytes)?;
    let head: Head<'_> = read(&head)?;
    let phase = match head.phase {
        HeadPhase::Finished(response) => {
            Phase::Finished(Arc::new(response.with_body(bytes, body)?))
        }
        HeadPhase::Pending { .. } | HeadPhase::Unknown if !body.is_empty() => {
            return Err(damaged("a body without a response"));
        }
        HeadPhase::Pending { lease_until } => Phase::Pending { lease_until },
        HeadPhase::Unknown => Phase::Unknown,
    };
    Ok(Kept {
        token: head.token,
        fingerprint: Fingerprint::new(head.recipe, head.fingerprint),
        on_lapse: head.on_lapse,
        attempt: head.attempt,
        meta: Arc::new(head.meta),
        created_at: head.created_at,
        completed_at: head.completed_at,
        expires: head.expires,
        tail: head.tail,
        replays: head.replays,
        phase,
    })
}

/// A response's bytes.
pub fn encode_response(response: &Response) -> Bytes {
    frame(Kind::Response, &HeadResponse::of(response), &response.body)
}

/// Reads a response back. The body and what is in its headers are slices of `bytes`, not copies.
pub fn decode_response(bytes: &Bytes) -> Result<Response, CodecError> {
    let (head, body) = split(Kind::Response, bytes)?;
    read::<HeadResponse<'_>>(&head)?.with_body(bytes, body)
}

/// The bytes of what a record tells people.
pub fn encode_meta(meta: &Meta) -> Bytes {
    frame(Kind::Meta, meta, &[])
}

/// Reads back what a record tells people.
pub fn decode_meta(bytes: &Bytes) -> Result<Meta, CodecError> {
    let (meta, body) = split(Kind::Meta, bytes)?;
    let meta = read(&meta)?;
    if !body.is_empty() {
        return Err(damaged("bytes behind what is told to people"));
    }
    Ok(meta)
}

fn frame(kind: Kind, head: &impl Serialize, body: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(HEAD_BYTES_USUAL + body.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, kind as u8]);
    out.extend_from_slice(&[0; 4]);
    let mut out =
        postcard::to_extend(head, out).expect("a record holds only what the format can write");
    let length = u32::try_from(out.len() - PREFIX_BYTES);
    let length = length.expect("header bytes are bounded far below 4 GiB");
    out[PREFIX_BYTES - 4..PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
    out.reserve_exact(body.len() + CHECKSUM_BYTES);
    out.extend_from_slice(body);
    let checksum = crc32fast::hash(&out);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.into()
}

fn read<'a, H: Deserialize<'a>>(head: &'a [u8]) -> Result<H, CodecError> {
    let (head, rest) = postcard::take_from_bytes(head).map_err(|_| damaged("head"))?;
    if !rest.is_empty() {
        return Err(damaged("head has trailing bytes"));
    }
    Ok(head)
}

/// Checks mark, version, kind, lengths and checksum; gives head and body.
fn split(kind: Kind, bytes: &Bytes) -> Result<(Bytes, Bytes), CodecError> {
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
    let head_end = usize::try_from(u32::from_le_bytes(length))
        .ok()
        .and_then(|length| length.checked_add(PREFIX_BYTES))
        .filter(|end| *end <= content.len())
        .ok_or_else(|| damaged("head length"))?;
    let head = bytes.slice(PREFIX_BYTES..head_end);
    let body = bytes.slice(head_end..content.len());
    Ok((head, body))
}

fn damaged(what: &'static str) -> CodecError {
    CodecError::Damaged { what }
}

fn fields(map: &HeaderMap) -> Fields<'_> {
    let fields = map.iter();
    fields
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect()
}

impl<'a> HeadResponse<'a> {
    fn of(response: &'a Response) -> Self {
        Self {
            status: response.status.as_u16(),
            headers: fields(&response.headers),
            trailers: response.trailers.as_ref().map(fields),
            origin: match response.origin {
                Origin::Handler => HeadOrigin::Handler,
                Origin::Panicked => HeadOrigin::Panicked,
                Origin::TooLarge => HeadOrigin::TooLarge,
            },
            took: response.took,
            resource: response.resource.clone(),
        }
    }

    /// The response, of which `bytes` is the whole frame.
    fn with_body(self, bytes: &Bytes, body: Bytes) -> Result<Response, CodecError> {
        let header_map = |fields: Fields<'_>| header_map(fields, bytes);
        Ok(Response {
            status: StatusCode::from_u16(self.status).map_err(|_| damaged("status"))?,
            headers: header_map(self.headers)?,
            body,
            trailers: self.trailers.map(header_map).transpose()?,
            origin: match self.origin {
                HeadOrigin::Handler => Origin::Handler,
                HeadOrigin::Panicked => Origin::Panicked,
                HeadOrigin::TooLarge => Origin::TooLarge,
            },
            took: self.took,
            resource: self.resource,
        })
    }
}

fn header_map(fields: Fields<'_>, bytes: &Bytes) -> Result<HeaderMap, CodecError> {
    let map = HeaderMap::try_with_capacity(fields.len());
    let mut map = map.map_err(|_| damaged("too many headers"))?;
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| damaged("header name"))?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(value))
            .map_err(|_| damaged("header value"))?;
        map.try_append(name, value)
            .map_err(|_| damaged("too many headers"))?;
    }
    Ok(map)
}

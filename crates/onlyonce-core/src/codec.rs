//! The one binary form of a record, for every store that keeps bytes. Versioned and checksummed:
//! what cannot be read with certainty is refused, never guessed. Deadlines are not part of it;
//! each store keeps them on its own clock.
//!
//! Layout: magic `1O`, version, length of the head (u32 LE), head, body, CRC-32 of all before it.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::record::{Meta, OnLapse, Record, State, Token};
use crate::response::{Origin, Response};

#[cfg(test)]
mod tests;

const MAGIC: [u8; 2] = *b"1O";
/// The version this build writes, and the only one it reads.
pub const VERSION: u8 = 1;
const PREFIX_BYTES: usize = MAGIC.len() + 1 + 4;
const CHECKSUM_BYTES: usize = 4;

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

/// The deadlines and counts that a store keeps beside the bytes, as of now on its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// What is left of the lease, for a pending record; zero is lapsed.
    pub lease_left: Duration,
    /// What is left of the retention.
    pub keep_left: Duration,
    /// When that ends, to show.
    pub expires_at: Timestamp,
    /// Replays counted so far.
    pub replays: u64,
}

#[derive(Serialize, Deserialize)]
struct Head {
    token: Token,
    recipe: u8,
    fingerprint: [u8; 32],
    on_lapse: OnLapse,
    attempt: u32,
    meta: Meta,
    created_at: Timestamp,
    completed_at: Option<Timestamp>,
    state: HeadState,
}

#[derive(Serialize, Deserialize)]
enum HeadState {
    Pending,
    Done(HeadResponse),
    Failed(HeadResponse),
    Unknown,
}

#[derive(Serialize, Deserialize)]
struct HeadResponse {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    trailers: Option<Vec<(String, Vec<u8>)>>,
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
pub fn encode(record: &Record) -> Bytes {
    let head = Head {
        token: record.token,
        recipe: record.fingerprint.recipe(),
        fingerprint: *record.fingerprint.digest(),
        on_lapse: record.on_lapse,
        attempt: record.attempt,
        meta: Meta::clone(&record.meta),
        created_at: record.created_at,
        completed_at: record.completed_at,
        state: match &record.state {
            State::Pending { .. } => HeadState::Pending,
            State::Done(response) => HeadState::Done(head_response(response)),
            State::Failed(response) => HeadState::Failed(head_response(response)),
            State::Unknown => HeadState::Unknown,
        },
    };
    let head = postcard::to_allocvec(&head).expect("a record holds only what the format can write");
    let body = record.response().map_or(&[][..], |response| &response.body);

    let mut out = BytesMut::with_capacity(PREFIX_BYTES + head.len() + body.len() + CHECKSUM_BYTES);
    out.put_slice(&MAGIC);
    out.put_u8(VERSION);
    out.put_u32_le(u32::try_from(head.len()).expect("header bytes are bounded far below 4 GiB"));
    out.put_slice(&head);
    out.put_slice(body);
    let checksum = crc32fast::hash(&out);
    out.put_u32_le(checksum);
    out.freeze()
}

/// Reads a record back. The body is a slice of `bytes`, not a copy.
pub fn decode(bytes: &Bytes, left: Left) -> Result<Record, CodecError> {
    let (head, body) = split(bytes)?;
    let (head, rest) = postcard::take_from_bytes::<Head>(&head).map_err(|_| damaged("head"))?;
    if !rest.is_empty() {
        return Err(damaged("head has trailing bytes"));
    }
    let answered = matches!(head.state, HeadState::Done(_) | HeadState::Failed(_));
    if !answered && !body.is_empty() {
        return Err(damaged("a body without a response"));
    }
    let state = match head.state {
        HeadState::Pending => State::Pending {
            lease_left: left.lease_left,
        },
        HeadState::Done(response) => State::Done(Arc::new(response.with_body(body)?)),
        HeadState::Failed(response) => State::Failed(Arc::new(response.with_body(body)?)),
        HeadState::Unknown => State::Unknown,
    };
    Ok(Record {
        token: head.token,
        fingerprint: Fingerprint::new(head.recipe, head.fingerprint),
        on_lapse: head.on_lapse,
        attempt: head.attempt,
        meta: Arc::new(head.meta),
        created_at: head.created_at,
        completed_at: head.completed_at,
        expires_at: left.expires_at,
        keep_left: left.keep_left,
        replays: left.replays,
        state,
    })
}

/// Checks mark, version, lengths and checksum; gives head and body.
fn split(bytes: &Bytes) -> Result<(Bytes, Bytes), CodecError> {
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
    let mut length = [0; 4];
    length.copy_from_slice(&bytes[MAGIC.len() + 1..PREFIX_BYTES]);
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

fn head_response(response: &Response) -> HeadResponse {
    HeadResponse {
        status: response.status.as_u16(),
        headers: head_fields(&response.headers),
        trailers: response.trailers.as_ref().map(head_fields),
        origin: match response.origin {
            Origin::Handler => HeadOrigin::Handler,
            Origin::Panicked => HeadOrigin::Panicked,
            Origin::TooLarge => HeadOrigin::TooLarge,
        },
        took: response.took,
        resource: response.resource.clone(),
    }
}

fn head_fields(map: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    map.iter()
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
        .collect()
}

impl HeadResponse {
    fn with_body(self, body: Bytes) -> Result<Response, CodecError> {
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

fn header_map(fields: Vec<(String, Vec<u8>)>) -> Result<HeaderMap, CodecError> {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| damaged("header name"))?;
        let value = HeaderValue::from_maybe_shared(Bytes::from(value))
            .map_err(|_| damaged("header value"))?;
        map.try_append(name, value)
            .map_err(|_| damaged("too many headers"))?;
    }
    Ok(map)
}

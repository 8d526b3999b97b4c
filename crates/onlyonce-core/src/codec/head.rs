//! What is in a head, field by field: of a record, of a response, and of what is told to people.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::wire::{Malformed, Reader, put_bytes, put_duration, put_number, put_option, text};
use super::{CodecError, damaged};
use crate::clock::Timestamp;
use crate::entry::{Kept, Phase};
use crate::fingerprint::Fingerprint;
use crate::key::Hint;
use crate::record::{Meta, OnLapse, Token};
use crate::response::{Origin, Response};

/// A name and a value take a byte each at least, for their lengths.
const FIELD_BYTES_MIN: usize = 2;

/// What comes behind the head.
pub(super) fn body(kept: &Kept) -> &[u8] {
    match &kept.phase {
        Phase::Finished(response) => &response.body,
        Phase::Pending { .. } | Phase::Unknown => &[],
    }
}

pub(super) fn write_record(out: &mut Vec<u8>, kept: &Kept) {
    out.extend_from_slice(kept.token.as_bytes());
    out.push(kept.fingerprint.recipe());
    out.extend_from_slice(kept.fingerprint.digest());
    out.push(match kept.on_lapse {
        OnLapse::Rerun => 0,
        OnLapse::Hold => 1,
    });
    put_number(out, kept.attempt.into());
    write_meta(out, &kept.meta);
    put_number(out, kept.created_at.as_millis());
    put_option(out, kept.completed_at, |out, at| {
        put_number(out, at.as_millis());
    });
    put_duration(out, kept.expires);
    put_duration(out, kept.tail);
    put_number(out, kept.replays);
    match &kept.phase {
        Phase::Pending { lease_until } => {
            out.push(0);
            put_duration(out, *lease_until);
        }
        Phase::Finished(response) => {
            out.push(1);
            write_response(out, response);
        }
        Phase::Unknown => out.push(2),
    }
}

/// A record's head up to its phase, where it was read.
pub(super) struct BeforePhase<'a> {
    token: Token,
    pub(super) fingerprint: Fingerprint,
    on_lapse: OnLapse,
    attempt: u32,
    pub(super) meta: MetaRead<'a>,
    pub(super) created_at: Timestamp,
    completed_at: Option<Timestamp>,
    expires: Duration,
    tail: Duration,
    pub(super) replays: u64,
}

/// Reads a head, and takes what is behind it in `content` for the body.
pub(super) fn read_record(
    reader: &mut Reader<'_>,
    content: &Bytes,
    known: Option<&Arc<Meta>>,
) -> Result<Kept, CodecError> {
    let head = read_before_phase(reader)?;
    Ok(Kept {
        token: head.token,
        fingerprint: head.fingerprint,
        on_lapse: head.on_lapse,
        attempt: head.attempt,
        meta: head.meta.shared(known)?,
        created_at: head.created_at,
        completed_at: head.completed_at,
        expires: head.expires,
        tail: head.tail,
        replays: head.replays,
        phase: read_phase(reader, content)?,
    })
}

pub(super) fn read_before_phase<'a>(
    reader: &mut Reader<'a>,
) -> Result<BeforePhase<'a>, CodecError> {
    Ok(BeforePhase {
        token: Token::from_bytes(reader.array()?),
        fingerprint: Fingerprint::new(reader.byte()?, reader.array()?),
        on_lapse: match reader.byte()? {
            0 => OnLapse::Rerun,
            1 => OnLapse::Hold,
            _ => return Err(damaged("what to do on a lapse")),
        },
        attempt: reader.small()?,
        meta: read_meta(reader)?,
        created_at: Timestamp::from_millis(reader.number()?),
        completed_at: reader.option(Reader::number)?.map(Timestamp::from_millis),
        expires: reader.duration()?,
        tail: reader.duration()?,
        replays: reader.number()?,
    })
}

/// Reads the phase, and takes what is behind it in `content` for the body.
pub(super) fn read_phase(reader: &mut Reader<'_>, content: &Bytes) -> Result<Phase, CodecError> {
    let phase = match reader.byte()? {
        0 => Phase::Pending {
            lease_until: reader.duration()?,
        },
        1 => return Ok(Phase::Finished(Arc::new(read_response(reader, content)?))),
        2 => Phase::Unknown,
        _ => return Err(damaged("phase")),
    };
    match reader.rest() {
        [] => Ok(phase),
        [_, ..] => Err(damaged("a body without a response")),
    }
}

pub(super) fn write_response(out: &mut Vec<u8>, response: &Response) {
    put_number(out, response.status.as_u16().into());
    write_fields(out, &response.headers);
    put_option(out, response.trailers.as_ref(), write_fields);
    out.push(match response.origin {
        Origin::Handler => 0,
        Origin::Panicked => 1,
        Origin::TooLarge => 2,
    });
    put_duration(out, response.took);
    put_option(out, response.resource.as_deref(), put_text);
}

/// Reads a head, and takes what is behind it in `content` for the body.
pub(super) fn read_response(
    reader: &mut Reader<'_>,
    content: &Bytes,
) -> Result<Response, CodecError> {
    Ok(Response {
        status: StatusCode::from_u16(reader.small()?).map_err(|_| damaged("status"))?,
        headers: read_fields(reader, content)?,
        trailers: reader.option(|reader| read_fields(reader, content))?,
        origin: match reader.byte()? {
            0 => Origin::Handler,
            1 => Origin::Panicked,
            2 => Origin::TooLarge,
            _ => return Err(damaged("origin")),
        },
        took: reader.duration()?,
        resource: reader
            .option(|reader| text(reader.bytes()?))?
            .map(Into::into),
        // The last one: only now is the head behind us.
        body: content.slice(reader.position()..),
    })
}

fn write_fields(out: &mut Vec<u8>, map: &HeaderMap) {
    put_number(out, map.len() as u64);
    for (name, value) in map {
        put_bytes(out, name.as_str().as_bytes());
        put_bytes(out, value.as_bytes());
    }
}

/// Room for what is added to a stored answer when it is replayed: growing a header map later hashes
/// it all over again.
const MARKS_USUAL: usize = 4;

fn read_fields(reader: &mut Reader<'_>, content: &Bytes) -> Result<HeaderMap, CodecError> {
    let fields = reader.small()?;
    if fields > reader.rest().len() / FIELD_BYTES_MIN {
        return Err(damaged("more headers than there are bytes"));
    }
    let map = HeaderMap::try_with_capacity(fields + MARKS_USUAL);
    let mut map = map.map_err(|_| damaged("too many headers"))?;
    for _ in 0..fields {
        let name = HeaderName::from_bytes(reader.bytes()?).map_err(|_| damaged("header name"))?;
        let value = content.slice_ref(reader.bytes()?);
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| damaged("header value"))?;
        map.try_append(name, value)
            .map_err(|_| damaged("too many headers"))?;
    }
    Ok(map)
}

pub(super) fn write_meta(out: &mut Vec<u8>, meta: &Meta) {
    out.extend_from_slice(&meta.hint.to_bytes());
    put_text(out, &meta.operation);
    put_option(out, meta.actor.as_deref(), put_text);
    put_text(out, &meta.holder);
    put_option(out, meta.trace.as_deref(), put_text);
    put_option(out, meta.credential, |out, digest| {
        out.extend_from_slice(&digest);
    });
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

/// What is told to people, where it was read; whether it is text is not known yet.
pub(super) struct MetaRead<'a> {
    pub(super) hint: Hint,
    pub(super) operation: &'a [u8],
    pub(super) actor: Option<&'a [u8]>,
    holder: &'a [u8],
    trace: Option<&'a [u8]>,
    credential: Option<[u8; 32]>,
}

pub(super) fn read_meta<'a>(reader: &mut Reader<'a>) -> Result<MetaRead<'a>, Malformed> {
    Ok(MetaRead {
        hint: Hint::from_bytes(reader.array()?),
        operation: reader.bytes()?,
        actor: reader.option(Reader::bytes)?,
        holder: reader.bytes()?,
        trace: reader.option(Reader::bytes)?,
        credential: reader.option(Reader::array)?,
    })
}

impl MetaRead<'_> {
    /// `known` itself if it says the same, as it does for most retries: then nothing is copied.
    fn shared(&self, known: Option<&Arc<Meta>>) -> Result<Arc<Meta>, Malformed> {
        match known {
            Some(known) if self.says_the_same_as(known) => Ok(Arc::clone(known)),
            Some(_) | None => Ok(Arc::new(self.to_meta(known.map(|known| &**known))?)),
        }
    }

    /// The trace of the original request.
    pub(super) fn trace(&self) -> Result<Option<Arc<str>>, Malformed> {
        let trace = self.trace.map(|trace| text(trace).map(Arc::from));
        trace.transpose()
    }

    fn says_the_same_as(&self, meta: &Meta) -> bool {
        let optional = |read: Option<&[u8]>, known: &Option<Arc<str>>| {
            read == known.as_ref().map(|known| known.as_bytes())
        };
        self.hint == meta.hint
            && *self.operation == *meta.operation.as_bytes()
            && optional(self.actor, &meta.actor)
            && *self.holder == *meta.holder.as_bytes()
            && optional(self.trace, &meta.trace)
            && self.credential == meta.credential
    }

    /// A copy, which shares with `known` the texts that many records have in common.
    pub(super) fn to_meta(&self, known: Option<&Meta>) -> Result<Meta, Malformed> {
        let copy = |read: &[u8]| text(read).map(Arc::from);
        let share = |read: &[u8], known: Option<&Arc<str>>| match known {
            Some(known) if *known.as_bytes() == *read => Ok(Arc::clone(known)),
            Some(_) | None => copy(read),
        };
        Ok(Meta {
            hint: self.hint,
            operation: share(self.operation, known.map(|it| &it.operation))?,
            actor: self.actor.map(copy).transpose()?,
            holder: share(self.holder, known.map(|it| &it.holder))?,
            trace: self.trace.map(copy).transpose()?,
            credential: self.credential,
        })
    }
}

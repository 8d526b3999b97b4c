//! A finished record as the quick store keeps it: an answer whose body is the record.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes};
use http::StatusCode;
use onlyonce_core::{OnLapse, Record, Response, State, Timestamp, Token, codec};

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 1 + Token::BYTES + 4 * 8 + 4 + 1 + 4;

/// The copy of a record; nothing if it is not finished.
pub(super) fn write(record: &Record) -> Option<Response> {
    let response = codec::encode_response(record.response()?);
    let meta = codec::encode_meta(&record.meta);
    let mut body = Vec::with_capacity(HEAD_BYTES + meta.len() + response.len());
    body.put_u8(VERSION);
    body.put_slice(record.token.as_bytes());
    body.put_u64(record.created_at.as_millis());
    body.put_u64(record.completed_at?.as_millis());
    body.put_u64(record.expires_at.as_millis());
    body.put_u64(record.replays);
    body.put_u32(record.attempt);
    body.put_u8(match record.on_lapse {
        OnLapse::Rerun => 0,
        OnLapse::Hold => 1,
    });
    body.put_u32(u32::try_from(meta.len()).ok()?);
    body.put_slice(&meta);
    body.put_slice(&response);
    Some(Response::new(StatusCode::OK, body))
}

/// The record of a copy, with as much time as the copy has left. Nothing if it is only a marker, or
/// cannot be read: the durable store has what it was made from.
pub(super) fn read(found: &Record) -> Option<Record> {
    let body = &found.response()?.body;
    let (head, rest) = body.split_first_chunk::<HEAD_BYTES>()?;
    let (version, head) = head.split_first()?;
    let (token, head) = head.split_first_chunk::<{ Token::BYTES }>()?;
    let mut numbers = head[..32].chunks_exact(8).map(|it| {
        let bytes = it.try_into().expect("they are chunks of eight");
        u64::from_be_bytes(bytes)
    });
    let [created_at, completed_at, expires_at, replays] =
        std::array::from_fn(|_| numbers.next().unwrap_or_default());
    let attempt = u32::from_be_bytes(head[32..36].try_into().ok()?);
    let on_lapse = match head[36] {
        0 => OnLapse::Rerun,
        1 => OnLapse::Hold,
        _ => return None,
    };
    let meta_bytes = usize::try_from(u32::from_be_bytes(head[37..41].try_into().ok()?)).ok()?;
    if *version != VERSION || rest.len() < meta_bytes {
        return None;
    }
    let rest: Bytes = body.slice(HEAD_BYTES..);
    let meta = codec::decode_meta(&rest.slice(..meta_bytes)).ok()?;
    let response = codec::decode_response(&rest.slice(meta_bytes..)).ok()?;
    Some(Record {
        token: Token::from_bytes(*token),
        fingerprint: found.fingerprint,
        on_lapse,
        attempt,
        meta: Arc::new(meta),
        created_at: Timestamp::from_millis(created_at),
        completed_at: Some(Timestamp::from_millis(completed_at)),
        expires_at: Timestamp::from_millis(expires_at),
        keep_left: found.keep_left,
        replays,
        state: State::finished(Arc::new(response)),
    })
}

//! The form of an answer that SQL can write: what a database function makes of a status, headers
//! and a body, inside a transaction of a program in any language.
//!
//! Layout: `1P`, version `1`, the lengths of head and body as eight hexadecimal digits each, the
//! head as JSON (`{"status":201,"headers":{"content-type":["text/plain"],"link":["a","b"]}}`), the
//! body. It has no checksum: SQLite cannot compute one. The lengths tell what was cut short.

use std::fmt;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, PROXY_AUTHENTICATE, RETRY_AFTER, SERVER, SET_COOKIE, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::{CodecError, damaged};
use crate::response::Response;

pub(super) const MAGIC: [u8; 2] = *b"1P";
const VERSION: u8 = b'1';
const LENGTH_DIGITS: usize = 8;
const PREFIX_BYTES: usize = MAGIC.len() + 1 + 2 * LENGTH_DIGITS;

/// What belongs to one connection, one moment or one caller, and how long the body is. It is
/// not replayed.
const NEVER_STORED: [HeaderName; 13] = [
    CONNECTION,
    CONTENT_LENGTH,
    DATE,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-connection"),
    RETRY_AFTER,
    SERVER,
    SET_COOKIE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Reads an answer back. The body is a slice of `bytes`, not a copy.
pub(super) fn decode(bytes: &Bytes) -> Result<Response, CodecError> {
    match bytes.get(MAGIC.len()) {
        Some(&VERSION) => {}
        Some(&found) => return Err(CodecError::UnknownVersion { found }),
        None => return Err(damaged("cut short")),
    }
    let head_bytes = length(bytes, MAGIC.len() + 1)?;
    let body_bytes = length(bytes, MAGIC.len() + 1 + LENGTH_DIGITS)?;
    let whole = PREFIX_BYTES
        .checked_add(head_bytes)
        .and_then(|it| it.checked_add(body_bytes));
    if whole != Some(bytes.len()) {
        return Err(damaged("cut short"));
    }
    let head = &bytes[PREFIX_BYTES..PREFIX_BYTES + head_bytes];
    let head: Head = serde_json::from_slice(head).map_err(|_| damaged("head"))?;
    let status = StatusCode::from_u16(head.status).map_err(|_| damaged("status"))?;
    let mut headers = head.headers.0;
    for name in NEVER_STORED {
        headers.remove(name);
    }
    Ok(Response {
        headers,
        ..Response::new(status, bytes.slice(PREFIX_BYTES + head_bytes..))
    })
}

fn length(bytes: &Bytes, at: usize) -> Result<usize, CodecError> {
    let digits = bytes.get(at..at + LENGTH_DIGITS);
    let digits = digits.filter(|it| it.iter().all(u8::is_ascii_hexdigit));
    let digits = digits.and_then(|it| std::str::from_utf8(it).ok());
    let length = digits.and_then(|it| usize::from_str_radix(it, 16).ok());
    length.ok_or_else(|| damaged("a length"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    status: u16,
    headers: Fields,
}

/// Headers: each name with a list of values.
struct Fields(HeaderMap);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("headers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut headers = HeaderMap::new();
        while let Some((name, values)) = map.next_entry::<String, Vec<Octets>>()? {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(serde::de::Error::custom)?;
            for Octets(value) in values {
                let value = HeaderValue::from_bytes(&value).map_err(serde::de::Error::custom)?;
                let added = headers.try_append(name.clone(), value);
                added.map_err(serde::de::Error::custom)?;
            }
        }
        Ok(Fields(headers))
    }
}

/// The bytes of a JSON text. A lone surrogate, which databases let pass, is three bytes of it.
struct Octets(Vec<u8>);

impl<'de> Deserialize<'de> for Octets {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_bytes(OctetsVisitor)
    }
}

struct OctetsVisitor;

impl Visitor<'_> for OctetsVisitor {
    type Value = Octets;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<Octets, E> {
        Ok(Octets(text.as_bytes().to_vec()))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Octets, E> {
        Ok(Octets(bytes.to_vec()))
    }
}

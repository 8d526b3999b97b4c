//! One answer under seal: an ordinary [`Response`] of the same status, origin and time, whose one
//! header says how it is sealed and whose body is a nonce and the ciphertext of the rest.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use onlyonce_core::{Entropy, Fingerprint, Response, Slot, Token, codec};
use thiserror::Error;

use crate::packed::{pack, unpack};

use super::cipher::{NONCE_BYTES, TAG_BYTES};
use super::ring::{KeyRing, is_key_id};
use super::ring_key::RingKey;

/// The header of a sealed answer. Never sent: the answer it marks is opened or refused.
const MARK: HeaderName = HeaderName::from_static("onlyonce-sealed");
const VERSION: &str = "1";

/// Why a stored answer could not be opened: the source of an error of kind `Corrupt`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SealError {
    /// The ring lacks the key.
    #[error("sealed with key `{id}`, which is not in the ring: add it back")]
    MissingKey {
        /// Which.
        id: String,
    },
    /// Written by a later version.
    #[error("sealed in format {found}, this build reads {VERSION}: upgrade this process")]
    UnknownFormat {
        /// The format found.
        found: String,
    },
    /// Changed, moved from another record, or cut short.
    #[error(
        "the seal of slot {slot} is broken: its bytes were changed or are another record's; forget it or restore the store"
    )]
    Broken {
        /// Where.
        slot: Slot,
    },
    /// Not sealed at all.
    #[error(
        "slot {slot} holds an answer that is not sealed: forget it, or allow plain records in the ring until those from before sealing have expired"
    )]
    Plain {
        /// Where.
        slot: Slot,
    },
    /// Another claim took over while an operator resolved the one before.
    #[error(
        "slot {slot} changed hands while it was resolved, and its answer cannot be read: forget it"
    )]
    ChangedHands {
        /// Where.
        slot: Slot,
    },
}

/// What an answer is bound to, besides its state and the way it is sealed.
pub(super) struct Bound<'a> {
    pub(super) slot: &'a Slot,
    pub(super) token: &'a Token,
    pub(super) fingerprint: Fingerprint,
}

/// An opened answer, and the fingerprint that it turned out to be bound to.
pub(super) struct Opened {
    pub(super) response: Arc<Response>,
    pub(super) fingerprint: Fingerprint,
}

impl Bound<'_> {
    /// The associated data. Only the last part has no fixed length.
    fn with(&self, response: &Response, mark: &Mark<'_>) -> Vec<u8> {
        let state = if response.is_failure() { b'F' } else { b'D' };
        [
            b"onlyonce sealed answer".as_slice(),
            self.slot.as_bytes(),
            self.token.as_bytes(),
            &self.fingerprint.to_bytes(),
            &[state],
            mark.to_text().as_bytes(),
        ]
        .concat()
    }
}

/// How an answer is sealed, as its header says: `1;key=ID` or `1;key=ID;zstd`.
struct Mark<'a> {
    key: &'a str,
    is_packed: bool,
}

impl<'a> Mark<'a> {
    fn to_text(&self) -> String {
        let packed = if self.is_packed { ";zstd" } else { "" };
        format!("{VERSION};key={}{packed}", self.key)
    }

    fn parse(value: &'a HeaderValue, slot: &Slot) -> Result<Self, SealError> {
        let broken = || SealError::Broken { slot: *slot };
        let mut parts = value.to_str().map_err(|_| broken())?.split(';');
        let found = parts.next().unwrap_or_default();
        if found != VERSION {
            let is_number = !found.is_empty() && found.bytes().all(|it| it.is_ascii_digit());
            return Err(if is_number {
                SealError::UnknownFormat {
                    found: found.to_owned(),
                }
            } else {
                broken()
            });
        }
        let key = parts.next().and_then(|part| part.strip_prefix("key="));
        let key = key.filter(|id| is_key_id(id)).ok_or_else(broken)?;
        let is_packed = match parts.next() {
            None => false,
            Some("zstd") => true,
            Some(_) => return Err(broken()),
        };
        match parts.next() {
            None => Ok(Self { key, is_packed }),
            Some(_) => Err(broken()),
        }
    }
}

pub(super) fn seal(
    key: &RingKey,
    bound: &Bound<'_>,
    response: &Response,
    compress_above: usize,
    entropy: &dyn Entropy,
) -> Response {
    let plain = codec::encode_response(response);
    let packed = pack(&plain, compress_above);
    let mark = Mark {
        key: key.id(),
        is_packed: packed.is_some(),
    };
    let content = packed.as_deref().unwrap_or(&plain);
    let mut nonce = [0; NONCE_BYTES];
    entropy.fill(&mut nonce);
    let mut body = Vec::with_capacity(NONCE_BYTES + content.len() + TAG_BYTES);
    body.extend_from_slice(&nonce);
    body.extend_from_slice(content);
    let bound_to = bound.with(response, &mark);
    let cipher = key.cipher();
    let tag = cipher.encrypt(&nonce, &bound_to, &mut body[NONCE_BYTES..]);
    body.extend_from_slice(&tag);
    let mark = HeaderValue::from_str(&mark.to_text()).expect("a key's id is fit for a header");
    Response {
        headers: HeaderMap::from_iter([(MARK, mark)]),
        origin: response.origin,
        took: response.took,
        ..Response::new(response.status, body)
    }
}

/// Opens what is stored in `slot` by `token` with the fingerprint `stored`. Which key that was
/// covered under is not written anywhere; the seal holds for the right one only.
pub(super) fn open(
    ring: &KeyRing,
    slot: &Slot,
    token: &Token,
    stored: Fingerprint,
    sealed: &Arc<Response>,
) -> Result<Opened, SealError> {
    let mut marks = sealed.headers.get_all(MARK).iter();
    let Some(mark) = marks.next() else {
        return plain(ring, slot, stored, sealed);
    };
    let mark = Mark::parse(mark, slot)?;
    let key = ring.get(mark.key).ok_or_else(|| SealError::MissingKey {
        id: mark.key.to_owned(),
    })?;
    for fingerprint in ring.uncovered(slot, stored, mark.key) {
        let bound = Bound {
            slot,
            token,
            fingerprint,
        };
        let Some(content) = decrypt(key, &bound, &mark, sealed) else {
            continue;
        };
        if let Some(response) = unpack(content, mark.is_packed)
            && sealed.headers.len() == 1
            && is_outside_of(sealed, &response)
        {
            return Ok(Opened {
                response: Arc::new(response),
                fingerprint,
            });
        }
        break;
    }
    Err(SealError::Broken { slot: *slot })
}

/// An answer without a seal: someone who can write to the store could have put it there.
fn plain(
    ring: &KeyRing,
    slot: &Slot,
    stored: Fingerprint,
    response: &Arc<Response>,
) -> Result<Opened, SealError> {
    if !ring.allows_plain() {
        return Err(SealError::Plain { slot: *slot });
    }
    Ok(Opened {
        response: Arc::clone(response),
        fingerprint: stored,
    })
}

fn decrypt(
    key: &RingKey,
    bound: &Bound<'_>,
    mark: &Mark<'_>,
    sealed: &Response,
) -> Option<Vec<u8>> {
    let (nonce, ciphertext) = sealed.body.split_first_chunk::<NONCE_BYTES>()?;
    let bound_to = bound.with(sealed, mark);
    key.cipher().decrypt(nonce, &bound_to, ciphertext)
}

/// Whether what is readable of the sealed answer is what was sealed in it.
fn is_outside_of(sealed: &Response, response: &Response) -> bool {
    sealed.status == response.status
        && sealed.origin == response.origin
        && sealed.took == response.took
        && sealed.trailers.is_none()
        && sealed.resource.is_none()
}

#[cfg(test)]
mod tests;

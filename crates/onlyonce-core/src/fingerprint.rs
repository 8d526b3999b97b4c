//! What a request means, as 32 bytes: a key may replay only the request it was first used with.
//! Every part is tagged and length-framed, so no two part sequences hash the same input, and parts
//! are canonical where a spelling carries no meaning, so that a faithful retry never conflicts.

mod form;
pub(crate) mod json;
mod media;
mod multipart;
mod rule;

use std::borrow::Cow;
use std::fmt;

use sha2::{Digest, Sha256};

pub use rule::{BodyRule, FingerprintRule, Numbers, RequestParts, is_encoded};

/// SHA-256 of a request's meaning, with the recipe that made it.
///
/// Two fingerprints of different recipes are never equal; a store keeps the recipe, so that a later
/// version can tell "other request" from "other recipe". `Debug` and `Display` show a short digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint {
    recipe: u8,
    digest: [u8; 32],
}

/// Hashes tagged, length-framed parts into a [`Fingerprint`].
#[derive(Clone, Debug, Default)]
pub struct FingerprintBuilder {
    hash: Sha256,
}

/// What a hashed part is. The tags are stored in no record but shape every digest: never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// The request method, as sent.
    Method = 1,
    /// The canonical path.
    Path = 2,
    /// The canonical, sorted query; absent when empty.
    Query = 3,
    /// One header line, `name:value`.
    Header = 4,
    /// The media type's essence, then each of its parameters.
    ContentType = 5,
    /// A body counted byte by byte.
    Body = 6,
    /// A body in canonical JSON.
    JsonBody = 7,
    /// A body in canonical `application/x-www-form-urlencoded`.
    FormBody = 8,
    /// The digest of a multipart body's parts.
    MultipartBody = 9,
    /// What the caller proved its identity with.
    Credential = 10,
    /// The name of an operation that is not an HTTP request.
    Operation = 11,
    /// The input of such an operation.
    Input = 12,
    /// A place in a JSON body of which only some places count; what is there follows.
    JsonPlace = 13,
}

/// The canonical form of a JSON text: RFC 8785, except that numbers keep their written digits and
/// repeated member names all stay, in their order. `None` for anything but JSON in UTF-8 of at most
/// 128 nested levels without lone surrogate escapes.
pub fn canonical_json(input: &[u8]) -> Option<Vec<u8>> {
    json::canonicalise(input, false).map(Cow::into_owned)
}

/// A key for a caller that has none: SHA-256, in lower-case hex, over `context` and the JSON in
/// `form`, equal whatever the member order and whitespace. With `trim`, surrounding whitespace of
/// string values counts for nothing either. `None` if `form` is not JSON (see [`canonical_json`]).
pub fn derive_key(context: &str, form: &[u8], trim: bool) -> Option<String> {
    let canonical = json::canonicalise(form, trim)?;
    let mut builder = FingerprintBuilder::new();
    builder
        .part(Part::Operation, context.as_bytes())
        .part(Part::JsonBody, &canonical);
    Some(hex(builder.finish().digest()))
}

impl Fingerprint {
    /// The recipe now in force. A change to what is hashed, or how, takes the next number.
    pub const RECIPE: u8 = 1;

    /// A fingerprint read back from where it was kept.
    pub const fn new(recipe: u8, digest: [u8; 32]) -> Self {
        Self { recipe, digest }
    }

    /// The recipe that made this fingerprint.
    pub const fn recipe(&self) -> u8 {
        self.recipe
    }

    /// The digest itself.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The recipe, then the digest.
    pub fn to_bytes(&self) -> [u8; 33] {
        let mut bytes = [0; 33];
        bytes[0] = self.recipe;
        bytes[1..].copy_from_slice(&self.digest);
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote; `None` unless there are exactly 33 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&recipe, digest) = bytes.split_first()?;
        Some(Self::new(recipe, digest.try_into().ok()?))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fp:{}", hex(&self.digest[..4]))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FingerprintBuilder {
    /// A builder that has hashed nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Hashes one part: its tag, its length as a little-endian `u64`, its bytes.
    pub fn part(&mut self, tag: Part, bytes: &[u8]) -> &mut Self {
        self.pieces(tag, &[bytes])
    }

    /// The fingerprint of all parts so far, under [`Fingerprint::RECIPE`].
    pub fn finish(self) -> Fingerprint {
        Fingerprint::new(Fingerprint::RECIPE, self.hash.finalize().into())
    }

    /// One header line. A name holds no colon, so the pair needs no frame of its own.
    fn header(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        self.pieces(Part::Header, &[name, b":", value])
    }

    /// One part whose bytes lie in several places.
    fn pieces(&mut self, tag: Part, pieces: &[&[u8]]) -> &mut Self {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut frame = [0; 9];
        frame[0] = tag as u8;
        frame[1..].copy_from_slice(&(length as u64).to_le_bytes());
        self.hash.update(frame);
        for piece in pieces {
            self.hash.update(piece);
        }
        self
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

#[cfg(test)]
mod tests;

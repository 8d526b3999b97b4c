//! Where a record lives: a keyed digest over scope and key. Parts are named and length-framed,
//! so that no two different tuples share a slot, and the digest gives away neither.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use siphasher::sip::SipHasher24;

use crate::entropy::Entropy;
use crate::key::{Hint, Key};

#[cfg(test)]
mod tests;

/// Whose key it is and for what: namespace, route, caller and what else keeps callers apart.
///
/// ```
/// use onlyonce_core::Scope;
///
/// let a = Scope::new("prod").with("tenant", "a:b").with("user", "c");
/// let b = Scope::new("prod").with("tenant", "a").with("user", "b:c");
/// assert_ne!(a, b);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    framed: Vec<u8>,
}

/// How much of the buffer an ordinary scope needs, so that building one allocates once.
const SCOPE_BYTES_USUAL: usize = 192;

impl Scope {
    /// A scope within `namespace`: an environment, a product, a tenant of the whole installation.
    pub fn new(namespace: &str) -> Self {
        let mut scope = Self {
            framed: Vec::with_capacity(SCOPE_BYTES_USUAL),
        };
        scope.add("namespace", Some(namespace));
        scope
    }

    /// Adds a named part that is there. An empty value is still a value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.add(name, Some(value));
        self
    }

    /// Adds a named part that is absent: an anonymous caller is not one whose name is empty.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.add(name, None::<&[u8]>);
        self
    }

    /// Adds a named part in place: [`with`](Self::with) its value, or [`without`](Self::without).
    pub fn add(&mut self, name: &str, value: Option<impl AsRef<[u8]>>) {
        self.frame(1, name.as_bytes());
        match value {
            Some(value) => self.frame(2, value.as_ref()),
            None => self.frame(3, b""),
        }
    }

    /// Tag, length and bytes. The length is in base 128: every byte less is one less to digest.
    fn frame(&mut self, tag: u8, bytes: &[u8]) {
        self.framed.push(tag);
        let mut length = bytes.len();
        while length >= 0x80 {
            self.framed.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        self.framed.push(length as u8);
        self.framed.extend_from_slice(bytes);
    }
}

/// A scope may name a person: only its size is shown.
impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({} bytes)", self.framed.len())
    }
}

/// The store's address of one keyed operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot([u8; Slot::BYTES]);

impl Slot {
    /// The length of a slot.
    pub const BYTES: usize = 32;

    /// A slot from its stored bytes.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes a store indexes by.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Reads the 64 hexadecimal digits that [`Display`](fmt::Display) writes.
    pub fn from_hex(text: &str) -> Option<Self> {
        unhex(text).map(Self)
    }

    /// Its first eight bytes: uniform, because a slot is a digest.
    pub(crate) fn tag(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(first)
    }

    /// Which of `shards` shares this slot belongs to. By its high bits: maps use the low ones.
    pub(crate) fn shard(&self, shards: usize) -> usize {
        usize::try_from(self.tag() >> 48).unwrap_or(0) % shards
    }

    /// The first eight hexadecimal digits, for logs.
    pub fn short(&self) -> impl fmt::Display {
        Hex([self.0[0], self.0[1], self.0[2], self.0[3]])
    }
}

impl std::hash::Hash for Slot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.tag());
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Hex(self.0), f)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({})", self.short())
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) struct Hex<const N: usize>(pub(crate) [u8; N]);

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads as many hexadecimal digits as make `N` bytes, no more and no fewer.
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    Some(bytes)
}

/// Hashes a slot by itself: it is a digest already, and the order must not depend on the run.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    /// For what is hashed along with a slot: its bits must reach both ends of the hash.
    fn write(&mut self, bytes: &[u8]) {
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(MIX);
            self.0 = mixed ^ (mixed >> 32);
        }
    }

    fn write_u64(&mut self, bucket: u64) {
        self.0 = bucket;
    }
}

/// A map keyed by slot.
pub type SlotMap<V> = std::collections::HashMap<Slot, V, BuildHasherDefault<SlotHasher>>;

/// The installation's secret: with it, stored slots cannot be guessed back into keys.
#[derive(Clone)]
pub struct SlotSecret {
    bytes: [u8; SlotSecret::BYTES],
    /// HMAC with the key already absorbed: half the work of every digest.
    keyed: Hmac<Sha256>,
    /// Marks keys, so that they can be found again. Every request makes a mark, so it is made by
    /// a hash that is secret for its key, and cheap.
    marker: SipHasher24,
}

impl SlotSecret {
    /// The length of a secret.
    pub const BYTES: usize = 32;

    /// A configured secret.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let keyed = Hmac::new_from_slice(&bytes).expect("HMAC takes a key of any length");
        let mut secret = Self {
            bytes,
            keyed,
            marker: SipHasher24::new(),
        };
        let [marker @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            secret.digest(b"m", b"", b"");
        secret.marker = SipHasher24::new_with_key(&marker);
        secret
    }

    /// A configured secret, written as 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        unhex(text).map(Self::from_bytes)
    }

    /// A new secret.
    pub fn generate(entropy: &dyn Entropy) -> Self {
        let mut bytes = [0; Self::BYTES];
        entropy.fill(&mut bytes);
        Self::from_bytes(bytes)
    }

    /// The secret itself, to keep it somewhere safe.
    pub fn expose(&self) -> &[u8; Self::BYTES] {
        &self.bytes
    }

    /// The address of `key` within `scope`.
    pub fn slot(&self, scope: &Scope, key: &Key) -> Slot {
        Slot(self.digest(b"s", &scope.framed, key.expose().as_bytes()))
    }

    /// What a record tells of `key`: enough to find it again for whoever has key and secret.
    pub fn hint(&self, key: &Key) -> Hint {
        let mark = self.marker.hash(key.expose().as_bytes()).to_le_bytes();
        let [mark @ .., _, _] = mark;
        Hint::of(key.expose(), mark)
    }

    /// A digest of a credential: to recognise it again without keeping it.
    pub fn credential(&self, credential: &[u8]) -> [u8; 32] {
        self.digest(b"c", b"", credential)
    }

    /// The purpose has one byte and the first part its length before it, so parts cannot shift.
    fn digest(&self, purpose: &[u8; 1], first: &[u8], rest: &[u8]) -> [u8; 32] {
        let mut mac = self.keyed.clone();
        mac.update(purpose);
        mac.update(&(first.len() as u64).to_le_bytes());
        mac.update(first);
        mac.update(rest);
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for SlotSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlotSecret(…)")
    }
}

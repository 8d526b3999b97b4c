//! The keys that seal and open. Of a key, only what is derived from it is kept, and nothing of it
//! is ever shown.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use onlyonce_core::{Entropy, Fingerprint, Slot};
use thiserror::Error;
use zeroize::Zeroizing;

use super::key_file;
use super::ring_key::{KEY_BYTES, RingKey};

const KEYS_MAX: usize = 64;
const ID_BYTES_MAX: usize = 32;
const RETIRED: &str = "retired";

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Keys by their ids: the first seals, all open.
///
/// As text, it is one key a line, its id and 32 bytes in base64; `retired` in place of the bytes
/// for a key that is no longer needed, so that it is known to be missing on purpose; and comments.
///
/// ```
/// use onlyonce_stores::KeyRing;
///
/// let ring = KeyRing::parse("
///     ## since March
///     2025-03 uXkWzYGHK9nCGFwtcTz6HcJpTPtdCgb4SfTc0ULuYsA=
///     2024-10 XnFwOqxiVZSDsXGBzcz8dTq9C4zZgzlL5FZOZQxjBYY=
///     2024-03 retired
/// ").unwrap();
/// assert_eq!(format!("{ring:?}"), "KeyRing(2025-03, 2024-10)");
/// ```
#[derive(Clone)]
pub struct KeyRing {
    /// Never empty.
    keys: Vec<Arc<RingKey>>,
    retired: Vec<String>,
    allows_plain: bool,
}

/// Why there is no ring.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyRingError {
    /// A line cannot be read.
    #[error("line {line} of the key ring: {why}")]
    Line {
        /// Which, counted from 1.
        line: usize,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// There is no key.
    #[error(
        "the key ring has no key: write a line `ID KEY`, with a key from `openssl rand -base64 32`"
    )]
    Empty,
    /// Too many keys.
    #[error("the key ring has more than {KEYS_MAX} lines of keys: retire or drop the oldest")]
    TooMany,
    /// Others can read the keys.
    #[error("the key file is open to others (mode {mode:o}): run `chmod 600 {}`", path.display())]
    Exposed {
        /// Where.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file cannot be read or made.
    #[error("the key file {} cannot be {action}", path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// What was tried: read or created.
        action: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}

impl KeyRing {
    /// A ring of one new key.
    pub fn generate(entropy: &dyn Entropy) -> Self {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        entropy.fill(&mut *bytes);
        Self::of_one(RingKey::named_by_itself(&bytes))
    }

    /// Reads a ring from its text.
    pub fn parse(text: &str) -> Result<Self, KeyRingError> {
        let mut keys: Vec<Arc<RingKey>> = Vec::new();
        let mut retired: Vec<String> = Vec::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let wrong = |why: &str| KeyRingError::Line {
                line,
                why: why.to_owned(),
            };
            let (id, key) = parse_line(content).map_err(|why| wrong(&why))?;
            if keys.iter().any(|known| known.id() == id) || retired.contains(&id) {
                return Err(wrong(&format!("there is a key `{id}` already")));
            }
            match key {
                Some(bytes) => keys.push(Arc::new(RingKey::new(id, &bytes))),
                None => retired.push(id),
            }
            if keys.len() + retired.len() > KEYS_MAX {
                return Err(KeyRingError::TooMany);
            }
        }
        if keys.is_empty() {
            return Err(KeyRingError::Empty);
        }
        Ok(Self {
            keys,
            retired,
            allows_plain: false,
        })
    }

    /// Reads a ring from a file, which only its owner may read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, KeyRingError> {
        let text = key_file::read(path.as_ref())?;
        Self::parse(&text)
    }

    /// The same, but makes the file with a new key if there is none. Keep a copy of it elsewhere:
    /// without it, what was sealed is lost.
    pub fn from_file_or_new(
        path: impl AsRef<Path>,
        entropy: &dyn Entropy,
    ) -> Result<Self, KeyRingError> {
        let path = path.as_ref();
        if !path.exists() {
            let mut bytes = Zeroizing::new([0; KEY_BYTES]);
            entropy.fill(&mut *bytes);
            let key = RingKey::named_by_itself(&bytes);
            key_file::create(path, &new_text(key.id(), &bytes), entropy)?;
        }
        Self::from_file(path)
    }

    /// Accepts records that are not sealed, for a store that is already in use: allow it for as
    /// long as records from before are kept, and no longer. By default they are refused, because
    /// someone who can write to the store could otherwise put in any answer.
    #[must_use]
    pub fn allow_plain(mut self) -> Self {
        self.allows_plain = true;
        self
    }

    fn of_one(key: RingKey) -> Self {
        Self {
            keys: vec![Arc::new(key)],
            retired: Vec::new(),
            allows_plain: false,
        }
    }

    pub(super) fn first(&self) -> &RingKey {
        &self.keys[0]
    }

    pub(super) fn get(&self, id: &str) -> Option<&RingKey> {
        let found = self.keys.iter().find(|key| key.id() == id);
        found.map(|key| &**key)
    }

    pub(super) fn retired(&self) -> &[String] {
        &self.retired
    }

    pub(super) fn allows_plain(&self) -> bool {
        self.allows_plain
    }

    /// Whether `stored` is `fingerprint` under any key, or bare where that is allowed.
    pub(super) fn covers(
        &self,
        slot: &Slot,
        fingerprint: Fingerprint,
        stored: Fingerprint,
    ) -> bool {
        let is_covered = |key: &Arc<RingKey>| key.cover().on(slot, fingerprint) == stored;
        self.keys.iter().any(is_covered) || (self.allows_plain && fingerprint == stored)
    }

    /// What `stored` may be without its cover, beginning with the likeliest: the key that sealed.
    pub(super) fn uncovered(
        &self,
        slot: &Slot,
        stored: Fingerprint,
        likeliest: &str,
    ) -> impl Iterator<Item = Fingerprint> {
        let (likely, others): (Vec<_>, Vec<_>) =
            self.keys.iter().partition(|key| key.id() == likeliest);
        let keys = likely.into_iter().chain(others);
        let bare = self.allows_plain.then_some(stored);
        keys.map(move |key| key.cover().off(slot, stored))
            .chain(bare)
    }
}

/// Keys are not shown.
impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.keys.iter().map(|key| key.id()).collect();
        write!(f, "KeyRing({})", ids.join(", "))
    }
}

/// Whether `id` can name a key: short, and fit for a header, a file name and a table.
pub(super) fn is_key_id(id: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_fit)
}

type KeyBytes = Zeroizing<[u8; KEY_BYTES]>;

/// An id, and its key unless that is retired. The message never repeats what may be a key.
fn parse_line(content: &str) -> Result<(String, Option<KeyBytes>), String> {
    let mut words = content.split_whitespace();
    let (Some(id), Some(key), None) = (words.next(), words.next(), words.next()) else {
        return Err("it should be two words, `ID KEY` or `ID retired`".to_owned());
    };
    if !is_key_id(id) {
        return Err(format!(
            "the id should be at most {ID_BYTES_MAX} of A-Z a-z 0-9 - _ ."
        ));
    }
    if key == RETIRED {
        return Ok((id.to_owned(), None));
    }
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    match BASE64.decode_slice(key, &mut *bytes) {
        Ok(KEY_BYTES) => Ok((id.to_owned(), Some(bytes))),
        Ok(_) | Err(_) => Err(format!(
            "the key `{id}` should be {KEY_BYTES} bytes in base64: make one with `openssl rand -base64 {KEY_BYTES}`"
        )),
    }
}

fn new_text(id: &str, bytes: &[u8; KEY_BYTES]) -> Zeroizing<String> {
    let key = Zeroizing::new(BASE64.encode(bytes));
    Zeroizing::new(format!(
        "# Keys of sealed onlyonce records: the first seals, all open. Without them, what is\n\
         # stored is lost; keep a copy elsewhere. To rotate, add a line above.\n{id} {}\n",
        *key
    ))
}

#[cfg(test)]
mod tests;

//! What the client sent to name its operation. A key is a secret: it is never printed whole,
//! and only a keyed digest of it (the [`Slot`](crate::Slot)) reaches a store.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use thiserror::Error;

use crate::slot::Hex;

#[cfg(test)]
mod tests;

/// A valid key. `abc-123` and the structured-field string `"abc-123"` are one key.
///
/// ```
/// use onlyonce_core::{Key, KeyRule};
///
/// let rule = KeyRule::default();
/// let bare = Key::parse(b"abc-123", &rule).unwrap();
/// let quoted = Key::parse(b"\"abc-123\"", &rule).unwrap();
/// assert_eq!(bare, quoted);
/// assert!(!format!("{bare:?}").contains("abc-123"));
/// ```
#[derive(Clone)]
pub struct Key(Arc<str>);

/// What a key may look like: part of a [`Policy`](crate::Policy).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRule {
    /// The longest key, in bytes.
    pub bytes_max: usize,
    /// Which characters it may hold.
    pub charset: Charset,
    /// Whether keys should be random: a key that looks like less than 120 bits is reported.
    pub random: bool,
}

impl Default for KeyRule {
    fn default() -> Self {
        Self {
            bytes_max: 255,
            charset: Charset::Visible,
            random: false,
        }
    }
}

impl KeyRule {
    /// What any policy could have let through: to look for a key rather than to take it.
    pub fn any() -> Self {
        Self {
            bytes_max: 64 * 1024,
            charset: Charset::Text,
            random: false,
        }
    }
}

/// The characters of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// Letters, digits, `_`, `.` and `-`.
    UrlSafe,
    /// ASCII from `!` to `~`.
    Visible,
    /// Any text without control characters.
    Text,
    /// A UUID of version 4 in its usual 36-character form.
    UuidV4,
}

/// Why a key was refused. Says what was wrong and where, never the key itself.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Nothing, or only white space.
    #[error("the key is empty")]
    Empty,
    /// Longer than the rule allows.
    #[error("the key has {bytes} bytes; at most {bytes_max} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
    /// A character outside the rule's set.
    #[error("the character at position {at} is not allowed; {expected}")]
    BadCharacter {
        /// Counted from 1.
        at: usize,
        /// What would be right.
        expected: &'static str,
    },
    /// Opens with a quote but is not an RFC 9651 string.
    #[error(
        "the key starts with a quote but is not a quoted string (RFC 9651): close the quote and escape inner quotes"
    )]
    BadQuoting,
    /// Not text.
    #[error("the key is not text: send a string in UTF-8")]
    NotText,
    /// In a body that is JSON for others, and not for us.
    #[error(
        "the body cannot be read as JSON, so it cannot be told which key it has and the request was not run: send JSON in UTF-8 without a byte order mark, as RFC 8259 has it"
    )]
    Unreadable,
    /// Not a UUID of version 4.
    #[error("the key must be a UUID of version 4, such as 550e8400-e29b-41d4-a716-446655440000")]
    NotUuidV4,
    /// Not a UUID of version 7, which carries its time.
    #[error(
        "the key must be a new UUID of version 7 (RFC 9562), such as 018bfbf3-bc00-7000-8000-000000001234"
    )]
    NotUuidV7,
    /// The header that says when the key was made is missing, repeated or no date.
    #[error(
        "{header} must say once when the request was first sent, as an HTTP date such as Fri, 01 Dec 2023 00:00:00 GMT"
    )]
    Untimed {
        /// The header.
        header: http::HeaderName,
    },
    /// The time of a key without the key.
    #[error("{time} was sent without {key}: send both, or neither")]
    OnlyTimed {
        /// The header with the time.
        time: http::HeaderName,
        /// The header with the key.
        key: http::HeaderName,
    },
    /// More than one header line: which one is meant would be a guess.
    #[error("the key was sent {lines} times; send it once")]
    Several {
        /// How many there were.
        lines: usize,
    },
}

impl Key {
    /// Reads a key in its bare or its RFC 9651 quoted form, under `rule`.
    pub fn parse(raw: &[u8], rule: &KeyRule) -> Result<Self, KeyError> {
        let raw = raw.trim_ascii();
        if raw.first() == Some(&b'"') {
            return Self::new(&unquote(raw)?, rule);
        }
        Self::new(
            std::str::from_utf8(raw).map_err(|_| KeyError::NotText)?,
            rule,
        )
    }

    /// A key from plain text that carries no quoting: a function argument, a JSON field.
    pub fn new(text: &str, rule: &KeyRule) -> Result<Self, KeyError> {
        if text.trim().is_empty() {
            return Err(KeyError::Empty);
        }
        if text.len() > rule.bytes_max {
            return Err(KeyError::TooLong {
                bytes: text.len(),
                bytes_max: rule.bytes_max,
            });
        }
        rule.charset.check(text)?;
        Ok(Self(text.into()))
    }

    /// The key itself: to digest it, or to echo it to its own sender. Never log it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// A short, harmless start of the key for people. It bears no mark:
    /// [`SlotSecret::hint`](crate::SlotSecret::hint) makes one by which a key is found again.
    pub fn hint(&self) -> Hint {
        Hint::of(&self.0, [0; Hint::MARK_BYTES])
    }

    /// Whether this looks like fewer random bits than a client should use (D4 §12).
    ///
    /// An estimate from length and alphabet: it catches counters, names and dates.
    pub fn looks_weak(&self) -> bool {
        estimate_bits(&self.0) < RANDOM_BITS_MIN
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}…)", self.hint())
    }
}

/// RFC 9651 §3.3.3; parameters are ignored, as the RFC asks of those a field does not define.
fn unquote(raw: &[u8]) -> Result<String, KeyError> {
    let item: sfv::Item = sfv::Parser::new(raw)
        .parse()
        .map_err(|_| KeyError::BadQuoting)?;
    item.bare_item
        .as_string()
        .map(|text| text.as_str().to_owned())
        .ok_or(KeyError::BadQuoting)
}

impl Charset {
    fn check(self, text: &str) -> Result<(), KeyError> {
        let (allowed, expected): (fn(char) -> bool, _) = match self {
            Self::UrlSafe => (
                |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'),
                "use letters, digits, '_', '.' and '-'",
            ),
            Self::Visible => (
                |c| c.is_ascii_graphic(),
                "use visible ASCII characters without spaces",
            ),
            Self::Text => (|c| !c.is_control(), "leave out control characters"),
            Self::UuidV4 if is_uuid_v4(text.as_bytes()) => return Ok(()),
            Self::UuidV4 => return Err(KeyError::NotUuidV4),
        };
        match text.chars().position(|c| !allowed(c)) {
            Some(index) => Err(KeyError::BadCharacter {
                at: index + 1,
                expected,
            }),
            None => Ok(()),
        }
    }
}

fn is_uuid_v4(text: &[u8]) -> bool {
    text.len() == 36
        && text.iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => *byte == b'-',
            14 => *byte == b'4',
            19 => matches!(byte.to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b'),
            _ => byte.is_ascii_hexdigit(),
        })
}

/// What a record keeps of a key's start.
const HINT_CHARS_MAX: usize = 4;
/// What is told of it while the request is there: in logs and events.
const LABEL_CHARS_MAX: usize = 8;
/// A shorter key shows nothing: four of its characters would be too much of it.
const HINTED_KEY_CHARS_MIN: usize = 20;
/// A key as long as this keeps enough to itself when eight of its characters are told.
const LABELLED_KEY_CHARS_MIN: usize = 28;

/// What a record tells of its key: at most the first four characters of a long one, none of a
/// short one; and a keyed mark, by which whoever has the key and the installation's secret finds
/// its records.
///
/// The hint of a key at hand shows eight characters of one that has 28 or more; a record keeps no
/// more than four. Both are equal.
#[derive(Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "[u8; Hint::BYTES]", into = "[u8; Hint::BYTES]")]
pub struct Hint {
    /// Zeros after what is shown.
    text: [u8; LABEL_CHARS_MAX],
    mark: [u8; Hint::MARK_BYTES],
}

impl PartialEq for Hint {
    fn eq(&self, other: &Self) -> bool {
        self.to_bytes() == other.to_bytes()
    }
}

impl Eq for Hint {}

impl Hint {
    pub(crate) const MARK_BYTES: usize = 6;
    /// What a record keeps of it.
    const BYTES: usize = HINT_CHARS_MAX + Self::MARK_BYTES;

    pub(crate) fn of(key: &str, mark: [u8; Self::MARK_BYTES]) -> Self {
        let mut text = [0; LABEL_CHARS_MAX];
        let shown = match key.chars().count() {
            LABELLED_KEY_CHARS_MIN.. => LABEL_CHARS_MAX,
            HINTED_KEY_CHARS_MIN.. => HINT_CHARS_MAX,
            _ => 0,
        };
        let start = &key.as_bytes()[..shown];
        let graphic = start.iter().take_while(|byte| byte.is_ascii_graphic());
        // All of it, or as much as a record keeps, or nothing.
        let shown = match graphic.count() {
            LABEL_CHARS_MAX => LABEL_CHARS_MAX,
            HINT_CHARS_MAX.. => HINT_CHARS_MAX,
            _ => 0,
        };
        text[..shown].copy_from_slice(&start[..shown]);
        Self { text, mark }
    }

    /// Start and mark, as the codec writes them.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let ([a, b, c, d, ..], [e, f, g, h, i, j]) = (self.text, self.mark);
        [a, b, c, d, e, f, g, h, i, j]
    }

    /// What [`to_bytes`](Self::to_bytes) made of it.
    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, mark @ ..] = bytes;
        Self {
            text: [a, b, c, d, 0, 0, 0, 0],
            mark,
        }
    }

    /// The start of the key as far as it is shown, at most `chars` of it.
    fn shown(&self, chars: usize) -> &str {
        let start = &self.text[..chars];
        let end = start.iter().position(|byte| *byte == 0).unwrap_or(chars);
        std::str::from_utf8(&start[..end]).unwrap_or_default()
    }

    /// Start and mark in at most 16 characters, as a store may index and compare them.
    pub fn to_text(&self) -> String {
        format!("{}{}", self.shown(HINT_CHARS_MAX), Hex(self.mark))
    }
}

impl From<Hint> for [u8; Hint::BYTES] {
    fn from(hint: Hint) -> Self {
        hint.to_bytes()
    }
}

impl From<[u8; Hint::BYTES]> for Hint {
    fn from(bytes: [u8; Self::BYTES]) -> Self {
        Self::from_bytes(bytes)
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown(LABEL_CHARS_MAX))
    }
}

/// As much as a record keeps, so that one looks alike before and after it is stored.
impl fmt::Debug for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", self.shown(HINT_CHARS_MAX))
    }
}

const RANDOM_BITS_MIN: f64 = 120.0;
/// Fewer different characters than this are a pattern, whatever the length.
const DISTINCT_CHARS_MIN: u32 = 8;

fn estimate_bits(text: &str) -> f64 {
    let mut seen = 0u128;
    let mut chars = 0u32;
    let (mut hex_only, mut lower, mut upper, mut digit) = (true, false, false, false);
    for byte in text
        .bytes()
        .filter(|byte| !matches!(byte, b'-' | b'_' | b'.' | b':'))
    {
        seen |= 1 << (byte & 0x7f);
        chars += 1;
        hex_only &= byte.is_ascii_hexdigit();
        lower |= byte.is_ascii_lowercase();
        upper |= byte.is_ascii_uppercase();
        digit |= byte.is_ascii_digit();
    }
    if seen.count_ones() < DISTINCT_CHARS_MIN {
        return 0.0;
    }
    let alphabet = if hex_only && (lower || upper) {
        16
    } else {
        26 * u32::from(lower) + 26 * u32::from(upper) + 10 * u32::from(digit)
    };
    // A UUID of version 4 spends 6 of its 128 bits on version and variant.
    let fixed = if is_uuid_v4(text.as_bytes()) {
        6.0
    } else {
        0.0
    };
    f64::from(chars) * f64::from(alphabet.max(2)).log2() - fixed
}

//! What stands between the quotes of a JSON string: its escapes, its meaning and its order.
//! Names are compared as written, so that sorting decodes nothing unless a name has escapes or
//! leaves ASCII, where UTF-8 and UTF-16 may disagree.

use std::cmp::Ordering;

const BACKSLASH: u16 = b'\\' as u16;

/// A string as written, between its quotes; ordered as RFC 8785 orders names, by UTF-16 code units
/// of what it means.
pub(super) struct Name<'a> {
    raw: &'a str,
    /// Neither escapes nor anything beyond ASCII: bytes sort like UTF-16 code units.
    plain: bool,
}

impl<'a> Name<'a> {
    pub(super) fn new(raw: &'a str, escaped: bool) -> Self {
        Self {
            raw,
            plain: !escaped && raw.is_ascii(),
        }
    }

    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        if self.plain && other.plain {
            self.raw.cmp(other.raw)
        } else {
            units(self.raw).cmp(units(other.raw))
        }
    }
}

/// The UTF-16 code units that a well-formed string stands for.
pub(super) fn units(raw: &str) -> impl Iterator<Item = u16> {
    let mut raw = raw.encode_utf16();
    std::iter::from_fn(move || match raw.next()? {
        BACKSLASH => unescape(&mut raw),
        unit => Some(unit),
    })
}

fn unescape(units: &mut impl Iterator<Item = u16>) -> Option<u16> {
    let mut next = || units.next().and_then(|unit| u8::try_from(unit).ok());
    let byte = match next()? {
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'u' => return hex_unit(&[next()?, next()?, next()?, next()?]),
        itself => itself,
    };
    Some(u16::from(byte))
}

/// The character that a `\u` escape at the start of `text` stands for, and the escape's width: a
/// surrogate needs its other half. `None` if it is malformed or alone.
pub(super) fn escaped_char(text: &[u8]) -> Option<(char, usize)> {
    let unit = |text: &[u8]| hex_unit(text.strip_prefix(b"\\u")?.first_chunk()?);
    let first = unit(text)?;
    if let Some(char) = char::from_u32(first.into()) {
        return Some((char, 6));
    }
    let second = unit(&text[6..])?;
    let char = char::decode_utf16([first, second]).next()?.ok()?;
    Some((char, 12))
}

fn hex_unit(digits: &[u8; 4]) -> Option<u16> {
    digits.iter().try_fold(0, |unit, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(unit << 4 | digit as u16)
    })
}

/// Writes a character as RFC 8785 spells it within a string.
pub(super) fn push_char(out: &mut Vec<u8>, char: char) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let short = match char {
        '"' | '\\' => char,
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\0'..='\u{1f}' => {
            let (high, low) = (char as usize >> 4, char as usize & 15);
            return out.extend_from_slice(&[b'\\', b'u', b'0', b'0', DIGITS[high], DIGITS[low]]);
        }
        _ => return out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
    };
    out.extend_from_slice(&[b'\\', short as u8]);
}

/// Marks, in the top bit of each byte, where a quote, a backslash or a control character is. A mark
/// may be false only above a true one, so the lowest is exact: a borrow starts at a match.
pub(super) fn string_stops(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let below = |word: u64, limit: u8| word.wrapping_sub(EACH * u64::from(limit));
    let equal = |byte: u8| below(word ^ (EACH * u64::from(byte)), 1);
    (below(word, b' ') | equal(b'"') | equal(b'\\')) & !word & (EACH << 7)
}

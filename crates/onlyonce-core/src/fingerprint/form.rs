//! Paths, queries and `application/x-www-form-urlencoded` bodies, one spelling each.
//! Pairs are sorted by name and the order among equal names is kept: `a=1&a=2` is a list.
//! Escapes are compared as bytes, never decoded to text, where `%FE` and `%FF` would be lost alike.

use std::borrow::Cow;

/// A percent sign and two digits.
const ESCAPE_BYTES: usize = 3;

/// A path with one spelling per escape: unreserved bytes bare, other escapes in upper case. What
/// only looks like an escape stays as it is.
pub(super) fn canonical_path(path: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr_iter(b'%', path).all(|at| is_canonical(&path[at..])) {
        return Cow::Borrowed(path);
    }
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        let Some(meant) = escaped_byte(rest) else {
            out.push(byte);
            rest = tail;
            continue;
        };
        push_byte(&mut out, meant);
        rest = &rest[ESCAPE_BYTES..];
    }
    Cow::Owned(out)
}

/// A query with its escapes as in [`canonical_path`] and its pairs sorted by name.
pub(super) fn canonical_query(query: &[u8]) -> Cow<'_, [u8]> {
    // No escape of `&` or `=` is ever undone, so the pairs are the same before and after.
    let query = canonical_path(query);
    match sorted_pairs(&query) {
        Some(sorted) => Cow::Owned(sorted),
        None => query,
    }
}

/// A form in canonical spelling, its pairs sorted by name; `None` if an escape is malformed.
///
/// Unreserved bytes are bare and all others, the space too, are escaped, so that two forms are
/// equal exactly if their decoded fields are. `a` and `a=` stay apart, as some receivers hold.
pub(super) fn canonicalise(body: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len());
    for pair in body
        .split(|&byte| byte == b'&')
        .filter(|pair| !pair.is_empty())
    {
        if !out.is_empty() {
            out.push(b'&');
        }
        push_pair(&mut out, pair)?;
    }
    Some(sorted_pairs(&out).unwrap_or(out))
}

fn push_pair(out: &mut Vec<u8>, pair: &[u8]) -> Option<()> {
    let mut in_name = true;
    let mut rest = pair;
    while let Some((&byte, tail)) = rest.split_first() {
        match byte {
            b'%' => push_byte(out, escaped_byte(rest)?),
            b'=' if in_name => out.push(b'='),
            b'+' => push_byte(out, b' '),
            bare => push_byte(out, bare),
        }
        in_name &= byte != b'=';
        rest = if byte == b'%' {
            &rest[ESCAPE_BYTES..]
        } else {
            tail
        };
    }
    Some(())
}

/// The pairs in order of their names, or `None` if they already are.
fn sorted_pairs(text: &[u8]) -> Option<Vec<u8>> {
    let pairs = || text.split(|&byte| byte == b'&');
    if pairs().is_sorted_by_key(name) {
        return None;
    }
    let mut sorted: Vec<&[u8]> = pairs().collect();
    sorted.sort_by_key(|&pair| name(pair));
    Some(sorted.join(&b'&'))
}

fn name(pair: &[u8]) -> &[u8] {
    memchr::memchr(b'=', pair).map_or(pair, |at| &pair[..at])
}

/// Whether text that starts with a percent sign needs no change there.
fn is_canonical(text: &[u8]) -> bool {
    escaped_byte(text).is_none_or(|meant| {
        !is_unreserved(meant) && !text[1..ESCAPE_BYTES].iter().any(u8::is_ascii_lowercase)
    })
}

/// The byte that an escape at the start of `text` stands for, if there is one.
fn escaped_byte(text: &[u8]) -> Option<u8> {
    let [b'%', high, low] = *text.first_chunk()? else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// Writes a byte bare if it is unreserved, and as an upper-case escape otherwise.
fn push_byte(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if is_unreserved(byte) {
        return out.push(byte);
    }
    let digit = |half: u8| DIGITS[usize::from(half)];
    out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
}

/// RFC 3986, section 2.3: escaped or not, these mean the same.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

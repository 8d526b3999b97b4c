//! One form for every path, so that the path that a route is matched by is the path that the
//! upstream gets; and the other ways in which an upstream may read it.

use std::fmt::Write as _;

#[cfg(test)]
mod tests;

/// What is wrong with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadPath {
    /// A percent sign without two hexadecimal digits after it.
    Escape,
    /// `%00`, where many programs end a text.
    Nul,
}

/// Returns the path in its normal form, or `None` if that is how it was sent. As in RFC 3986,
/// section 6.2.2: dot segments are resolved, escapes of unreserved characters are undone, all
/// others are in upper case; bytes beyond ASCII are escaped.
pub(crate) fn normal(path: &str) -> Result<Option<String>, BadPath> {
    let may_differ = path.bytes().any(|it| it == b'%' || !it.is_ascii()) || path.contains("/.");
    if !may_differ {
        return Ok(None);
    }
    Ok(Some(without_dots(&with_normal_escapes(path)?)))
}

/// The literal text of a route's pattern in the same form; names in braces stay as they are.
pub(crate) fn normal_pattern(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len());
    for (literal, name) in pieces(pattern) {
        let literal = with_normal_escapes(literal)
            .map_err(|_| format!("`{literal}` has a percent sign that is not an escape"))?;
        if ways(&literal) != 0 {
            return Err(format!(
                "`{literal}` is read differently by different servers, and such a path is \
                 refused: put a parameter like {{name}} in place of `%2F`, `\\`, `//`, `;` and \
                 escaped punctuation"
            ));
        }
        out.push_str(&literal);
        out.push_str(name);
    }
    if without_dots(&out) != out {
        return Err(
            "`.` and `..` are resolved before a path is matched: leave them out".to_owned(),
        );
    }
    Ok(out)
}

/// A pattern as literals, each with the parameter that follows it.
fn pieces(pattern: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = pattern;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let start = rest.find('{').unwrap_or(rest.len());
        let (literal, after) = rest.split_at(start);
        let end = after.find('}').map_or(after.len(), |end| end + 1);
        let (name, after) = after.split_at(end);
        rest = after;
        Some((literal, name))
    })
}

/// Escaped punctuation is read as what it stands for.
const ESCAPES: u8 = 1;
/// `%2F`, `\` and `%5C` are read as slashes.
const SLASHES: u8 = 2;
/// What follows a semicolon in a segment is a parameter, and not part of the path.
const PARAMETERS: u8 = 4;
/// Several slashes are read as one.
const MERGED: u8 = 8;
const ALL: u8 = ESCAPES | SLASHES | PARAMETERS | MERGED;

/// The other paths that an upstream may take a path in its normal form for, depending on what
/// it resolves.
pub(crate) fn other_readings(path: &str) -> impl Iterator<Item = String> + '_ {
    let possible = ways(path);
    (1..=ALL)
        .filter(move |ways| ways & !possible == 0)
        .map(move |ways| read(path, ways))
}

/// The ways in which a path can be read differently.
fn ways(path: &str) -> u8 {
    let bytes = path.as_bytes();
    let mut ways = 0;
    for (at, byte) in bytes.iter().enumerate() {
        ways |= match byte {
            b'/' if bytes.get(at + 1) == Some(&b'/') => MERGED,
            b'\\' => SLASHES | MERGED,
            // Without its parameters, a segment may be empty.
            b';' => PARAMETERS | MERGED,
            b'%' => match escaped(&bytes[at + 1..]) {
                Some(b'/' | b'\\') => SLASHES | MERGED,
                Some(b';') => ESCAPES | PARAMETERS | MERGED,
                Some(byte) if is_punctuation(byte) => ESCAPES,
                Some(_) | None => 0,
            },
            _ => 0,
        };
    }
    ways
}

fn read(path: &str, ways: u8) -> String {
    let mut text = path.to_owned();
    if ways & ESCAPES != 0 {
        text = undo_escapes(&text, |byte| is_punctuation(byte).then_some(byte));
    }
    if ways & SLASHES != 0 {
        let is_slash = |byte| matches!(byte, b'/' | b'\\').then_some(b'/');
        text = undo_escapes(&text, is_slash).replace('\\', "/");
    }
    if ways & PARAMETERS != 0 {
        let segments = text.split('/');
        let bare = segments.map(|it| it.split_once(';').map_or(it, |(bare, _)| bare));
        text = bare.collect::<Vec<_>>().join("/");
    }
    if ways & MERGED != 0 {
        let segments = text.split('/').filter(|it| !it.is_empty());
        let mut merged = segments.fold(String::new(), |merged, it| merged + "/" + it);
        if text.ends_with('/') {
            merged.push('/');
        }
        text = merged;
    }
    without_dots(&text)
}

/// Resolves `.` and `..` (RFC 3986, section 5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "." => {}
            ".." => {
                kept.pop();
            }
            _ => {
                kept.push(segment);
                continue;
            }
        }
        if segments.peek().is_none() {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

fn with_normal_escapes(path: &str) -> Result<String, BadPath> {
    let mut out = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let is_escape = first == b'%';
        let byte = if is_escape {
            escaped(after).ok_or(BadPath::Escape)?
        } else {
            first
        };
        if byte == 0 {
            return Err(BadPath::Nul);
        }
        if is_unreserved(byte) || (byte.is_ascii() && !is_escape) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a string takes whatever is written");
        }
        rest = if is_escape { &after[2..] } else { after };
    }
    Ok(out)
}

/// Undoes escapes of a path in its normal form for which `meant` has a character of ASCII.
fn undo_escapes(path: &str, meant: impl Fn(u8) -> Option<u8>) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let undone = escaped(&after.as_bytes()[1..]).and_then(&meant);
        let taken = if undone.is_some() { 3 } else { 1 };
        out.push(undone.map_or('%', char::from));
        rest = &after[taken..];
    }
    out + rest
}

/// The byte that two hexadecimal digits stand for.
fn escaped(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// What has a meaning of its own in a path, or none. Not slashes, and not the percent sign: what
/// it starts was not an escape before.
fn is_punctuation(byte: u8) -> bool {
    byte.is_ascii_punctuation() && !is_unreserved(byte) && !matches!(byte, b'/' | b'\\' | b'%')
}

//! Header lines that a host's server joined with commas, as HTTP allows: taken apart again, so that two keys
//! never look like one.

use http::{HeaderMap, HeaderName, HeaderValue};

#[cfg(test)]
mod tests;

/// How a host has a request's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderLines {
    /// As they were sent.
    AsSent,
    /// Lines of one name are one value, with commas between them (RFC 9110 §5.3).
    Joined,
}

/// Makes of a joined header the lines that it may have been: at each comma that is not inside of a quoted string.
/// A bare value with a comma cannot be told from two lines, and is taken for them.
pub(crate) fn take_apart(headers: &mut HeaderMap, name: &HeaderName) {
    let joined: Vec<HeaderValue> = headers.get_all(name).iter().cloned().collect();
    let lines: Vec<HeaderValue> = joined.iter().flat_map(lines_of).collect();
    if lines.len() == joined.len() {
        return;
    }
    headers.remove(name);
    for line in lines {
        headers.append(name, line);
    }
}

fn lines_of(joined: &HeaderValue) -> Vec<HeaderValue> {
    let parts = split(joined.as_bytes()).into_iter();
    parts
        .map(|part| HeaderValue::from_bytes(part).expect("a part of a valid value is valid"))
        .collect()
}

fn split(value: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = value;
    while let Some(at) = first_comma(rest) {
        let (part, after) = rest.split_at(at);
        parts.push(part.trim_ascii());
        rest = &after[1..];
    }
    parts.push(rest.trim_ascii());
    parts
}

/// Where the first line ends, if another may follow. Quotes count only where a quoted string can begin.
fn first_comma(value: &[u8]) -> Option<usize> {
    let start = value.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let quoted = match value.get(start) {
        Some(b'"') => start + quoted_len(&value[start..]),
        Some(_) | None => 0,
    };
    let comma = value[quoted..].iter().position(|byte| *byte == b',')?;
    Some(quoted + comma)
}

/// The length of the quoted string that this begins with; all of it, if the string does not end.
fn quoted_len(value: &[u8]) -> usize {
    let mut is_escaped = false;
    for (at, byte) in value.iter().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    value.len()
}

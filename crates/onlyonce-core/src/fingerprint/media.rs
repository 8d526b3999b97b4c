//! `Content-Type`, read once: which canonical form a body has, and what of the type counts.
//! The essence and the parameter names are case-insensitive and parameters have no order; their
//! values stay as written, since only some of them are case-insensitive.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::{FingerprintBuilder, Part};

/// A `Content-Type` value in canonical form.
pub(super) struct MediaType<'a> {
    /// `type/subtype` in lower case.
    essence: Cow<'a, [u8]>,
    /// In order of their names; a name that came twice keeps both values in their order.
    parameters: Vec<Parameter<'a>>,
}

struct Parameter<'a> {
    name: Cow<'a, [u8]>,
    /// As written, quotes included; `None` when there is no `=`.
    value: Option<&'a [u8]>,
}

impl<'a> MediaType<'a> {
    /// The type that the headers give, if they give exactly one.
    pub(super) fn sole(headers: &'a HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(CONTENT_TYPE).iter();
        let line = lines.next()?;
        lines.next().is_none().then(|| Self::parse(line.as_bytes()))
    }

    fn parse(value: &'a [u8]) -> Self {
        let (essence, mut rest) = split_at_semicolon(value);
        let mut parameters = Vec::new();
        while let Some(tail) = rest {
            let (segment, next) = split_at_semicolon(tail);
            if !segment.is_empty() {
                parameters.push(Parameter::parse(segment));
            }
            rest = next;
        }
        parameters.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            essence: lower_case(essence),
            parameters,
        }
    }

    /// `application/json`, or any type that says it is JSON underneath.
    pub(super) fn is_json(&self) -> bool {
        *self.essence == *b"application/json"
            || (self.essence.ends_with(b"+json") && self.essence.contains(&b'/'))
    }

    pub(super) fn is_form(&self) -> bool {
        *self.essence == *b"application/x-www-form-urlencoded"
    }

    /// The boundary of a multipart type. Two are none: receivers disagree on which one holds.
    pub(super) fn multipart_boundary(&self) -> Option<&'a [u8]> {
        if !self.essence.starts_with(b"multipart/") {
            return None;
        }
        let mut boundaries = self
            .parameters
            .iter()
            .filter(|parameter| parameter.is_boundary());
        let boundary = boundaries.next()?.value?;
        if boundaries.next().is_some() {
            return None;
        }
        match boundary.strip_prefix(b"\"") {
            Some(quoted) => quoted
                .strip_suffix(b"\"")
                .filter(|inner| !inner.contains(&b'\\')),
            None => Some(boundary),
        }
    }

    /// Hashes the essence and each parameter as a part of its own.
    pub(super) fn add_to(&self, builder: &mut FingerprintBuilder, with_boundary: bool) {
        builder.part(Part::ContentType, &self.essence);
        for parameter in &self.parameters {
            if !with_boundary && parameter.is_boundary() {
                continue;
            }
            match parameter.value {
                Some(value) => {
                    builder.pieces(Part::ContentType, &[&parameter.name, b"=", value]);
                }
                None => {
                    builder.part(Part::ContentType, &parameter.name);
                }
            }
        }
    }
}

impl<'a> Parameter<'a> {
    fn parse(segment: &'a [u8]) -> Self {
        let (name, value) = match memchr::memchr(b'=', segment) {
            Some(at) => (&segment[..at], Some(&segment[at + 1..])),
            None => (segment, None),
        };
        Self {
            name: lower_case(name),
            value,
        }
    }

    fn is_boundary(&self) -> bool {
        *self.name == *b"boundary"
    }
}

/// What stands before the first semicolon outside quotes, trimmed, and what follows it, if any.
fn split_at_semicolon(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut quoted = false;
    let mut escaped = false;
    let semicolon = text.iter().position(|&byte| {
        let literal = escaped;
        escaped = quoted && byte == b'\\' && !literal;
        quoted ^= byte == b'"' && !literal;
        byte == b';' && !quoted
    });
    match semicolon {
        Some(at) => (text[..at].trim_ascii(), Some(&text[at + 1..])),
        None => (text.trim_ascii(), None),
    }
}

fn lower_case(text: &[u8]) -> Cow<'_, [u8]> {
    if text.iter().any(u8::is_ascii_uppercase) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

//! A multipart body by its parts: a client draws a new boundary for every attempt, retries too.
//! Only what RFC 2046 writes plainly is read; a preamble, an epilogue, padding, folded headers or
//! bare line feeds, on which receivers differ, make the body count by its bytes instead.

use memchr::memmem;

use super::{FingerprintBuilder, Part};

/// RFC 2046, section 5.1.1.
const BOUNDARY_BYTES_MAX: usize = 70;

/// The digest of all parts in order; `None` if the body is malformed.
///
/// Each part is its header lines and then one body, so the sequence reads back in one way only. A
/// part that is itself multipart counts by its bytes.
pub(super) fn digest(body: &[u8], boundary: &[u8]) -> Option<[u8; 32]> {
    if boundary.is_empty() || boundary.len() > BOUNDARY_BYTES_MAX {
        return None;
    }
    let delimiter = [b"\r\n--", boundary].concat();
    let finder = memmem::Finder::new(&delimiter);
    let mut builder = FingerprintBuilder::new();
    let mut rest = body.strip_prefix(&delimiter[2..])?;
    while !matches!(rest, b"--" | b"--\r\n") {
        // The line break stays: it ends the delimiter and, in a part without headers, the headers.
        if !rest.starts_with(b"\r\n") {
            return None;
        }
        let end = finder.find(rest)?;
        add_part(&mut builder, &rest[..end])?;
        rest = &rest[end + delimiter.len()..];
    }
    Some(*builder.finish().digest())
}

/// `part` starts with the line break that ended its delimiter.
fn add_part(builder: &mut FingerprintBuilder, part: &[u8]) -> Option<()> {
    let blank_line = memmem::find(part, b"\r\n\r\n")?;
    let mut lines = &part[..blank_line];
    while let Some(line) = lines.strip_prefix(b"\r\n") {
        let end = memmem::find(line, b"\r\n").unwrap_or(line.len());
        add_header(builder, &line[..end])?;
        lines = &line[end..];
    }
    builder.part(Part::Body, &part[blank_line + 4..]);
    Some(())
}

fn add_header(builder: &mut FingerprintBuilder, line: &[u8]) -> Option<()> {
    let (name, value) = line.split_at(memchr::memchr(b':', line)?);
    let is_text = |&byte: &u8| byte == b'\t' || !byte.is_ascii_control();
    if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) || !value.iter().all(is_text) {
        return None;
    }
    builder.header(&name.to_ascii_lowercase(), value[1..].trim_ascii());
    Some(())
}

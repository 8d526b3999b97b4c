//! The list of a segment's frames, in a file beside it, so that opening a store reads no records.
//! Whatever is wrong with it, the segment itself has it all: then that is read instead.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use super::folder::private;
use super::frame::{Header, Kind, u32_at, u64_at};
use super::index::Tag;
use super::lock;
use super::scan::{self, ScanError};
use super::segment::{Listed, Segment};

const MARK: [u8; 8] = *b"1Olist01";
const HEADER_BYTES: usize = 32;
const ITEM_BYTES: usize = 25;
const CHECKSUM_BYTES: usize = 4;

/// The frames of a segment that may still matter, in their order.
pub(super) fn of(segment: &Segment) -> Result<Vec<Listed>, ScanError> {
    if let Some(listed) = &*lock(&segment.listed) {
        return Ok(listed.clone());
    }
    match read(&segment.list_path(), &segment.header, segment.end()) {
        Some(listed) => Ok(listed),
        None => scan::sealed(&segment.file, &segment.header, segment.end()),
    }
}

/// Writes the list of a segment. Nothing depends on its being durable.
pub(super) fn write(segment: &Segment, listed: &[Listed]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + listed.len() * ITEM_BYTES + CHECKSUM_BYTES);
    bytes.extend_from_slice(&MARK);
    bytes.extend_from_slice(&segment.id().to_le_bytes());
    bytes.extend_from_slice(&segment.header.salt.to_le_bytes());
    bytes.extend_from_slice(&segment.end().to_le_bytes());
    bytes.extend_from_slice(&(listed.len() as u64).to_le_bytes());
    for it in listed {
        bytes.extend_from_slice(&it.tag.0.to_le_bytes());
        bytes.extend_from_slice(&it.due.to_le_bytes());
        bytes.extend_from_slice(&it.offset.to_le_bytes());
        bytes.extend_from_slice(&it.bytes.to_le_bytes());
        bytes.push(it.kind as u8);
    }
    let sum = crc32fast::hash(&bytes).to_le_bytes();
    bytes.extend_from_slice(&sum);
    let path = segment.list_path();
    let unfinished = path.with_extension("idx.tmp");
    let made =
        private(OpenOptions::new().write(true).create(true).truncate(true)).open(&unfinished);
    let written = made.and_then(|mut file| file.write_all(&bytes));
    match written {
        Ok(()) => fs::rename(&unfinished, &path),
        Err(error) => {
            drop(fs::remove_file(&unfinished));
            Err(error)
        }
    }
}

/// Reads the list of a segment, if it is there, whole, and of that very segment.
pub(super) fn read(path: &Path, header: &Header, end: u64) -> Option<Vec<Listed>> {
    let bytes = fs::read(path).ok()?;
    let items = bytes.len().checked_sub(HEADER_BYTES + CHECKSUM_BYTES)?;
    let (content, sum) = bytes.split_at(HEADER_BYTES + items);
    let is_whole = content[..8] == MARK
        && u32_at(content, 8) == header.id
        && u32_at(content, 12) == header.salt
        && u64_at(content, 16) == end
        && u64_at(content, 24).checked_mul(ITEM_BYTES as u64) == Some(items as u64)
        && crc32fast::hash(content) == u32_at(sum, 0);
    if !is_whole {
        return None;
    }
    content[HEADER_BYTES..]
        .chunks_exact(ITEM_BYTES)
        .map(|item| {
            Some(Listed {
                tag: Tag(u64_at(item, 0)),
                due: u64_at(item, 8),
                offset: u32_at(item, 16),
                bytes: u32_at(item, 20),
                kind: Kind::of_byte(item[24])?,
            })
        })
        .collect()
}

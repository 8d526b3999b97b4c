//! Reads a segment from end to end. A write that a crash cut short is told from damage: nothing
//! that was durable can be behind it.

use std::fs::File;
use std::io;

use onlyonce_core::slot::SlotMap;
use thiserror::Error;

use super::disk;
use super::frame::{self, HEAD_BYTES, HEADER_BYTES, Head, Header, Kind};
use super::segment::Listed;

const WINDOW_BYTES: usize = 1 << 20;

/// What a segment held.
pub(super) struct Scanned {
    /// The last frame of every slot, in their order.
    pub(super) listed: Vec<Listed>,
    /// Where its last commit begins: whether that was durable is not known.
    pub(super) last_commit: u64,
    /// Where it ends.
    pub(super) end: u64,
    /// How many bytes behind that were part of a write that never ended.
    pub(super) torn_bytes: u64,
}

#[derive(Debug, Error)]
pub(super) enum ScanError {
    #[error("it could not be read")]
    Disk(#[from] io::Error),
    #[error("it is damaged at byte {at}")]
    Damaged {
        /// Where.
        at: u64,
    },
}

/// The frames of a segment that ends at `end`: all of it was durable before the next one began.
pub(super) fn sealed(file: &File, header: &Header, end: u64) -> Result<Vec<Listed>, ScanError> {
    let mut frames = Frames::new(file, header, end);
    let listed = frames.collect()?;
    if frames.at == end {
        Ok(listed)
    } else {
        Err(ScanError::Damaged { at: frames.at })
    }
}

/// The frames of the segment written last, as far as it was written in full.
pub(super) fn newest(file: &File, header: &Header) -> Result<Scanned, ScanError> {
    let length = file.metadata()?.len();
    let mut frames = Frames::new(file, header, length);
    let listed = frames.collect()?;
    let end = frames.at;
    let mut torn_bytes = 0;
    if end < length {
        let mut rest = vec![0; usize::try_from(length - end).unwrap_or(usize::MAX)];
        let filled = disk::read_at(file, &mut rest, end)?;
        // A commit begins only once the one before it is durable, to its last byte.
        if frame::find_beginning(&rest[..filled], header.salt).is_some() {
            return Err(ScanError::Damaged { at: end });
        }
        // Zeros are what a segment is filled with ahead of its frames.
        let last = rest[..filled].iter().rposition(|byte| *byte != 0);
        torn_bytes = last.map_or(0, |last| last as u64 + 1);
    }
    Ok(Scanned {
        listed,
        last_commit: frames.last_commit,
        end,
        torn_bytes,
    })
}

/// Frame after frame, through a window on the file.
struct Frames<'a> {
    file: &'a File,
    salt: u32,
    length: u64,
    /// Where the next frame begins.
    at: u64,
    /// Where the last commit began.
    last_commit: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl<'a> Frames<'a> {
    fn new(file: &'a File, header: &Header, length: u64) -> Self {
        Self {
            file,
            salt: header.salt,
            length,
            at: HEADER_BYTES as u64,
            last_commit: HEADER_BYTES as u64,
            window: Vec::new(),
            window_at: 0,
        }
    }

    /// All whole frames up to the first that is not.
    fn collect(&mut self) -> io::Result<Vec<Listed>> {
        let mut listed: Vec<Listed> = Vec::new();
        let mut last_of: SlotMap<usize> = SlotMap::default();
        while let Some((head, offset)) = self.next()? {
            if head.kind == Kind::Closed {
                continue;
            }
            if let Some(replaced) = last_of.insert(head.slot, listed.len()) {
                listed[replaced].kind = Kind::Closed;
            }
            listed.push(Listed::of(&head, offset));
        }
        listed.retain(|it| it.kind != Kind::Closed);
        Ok(listed)
    }

    fn next(&mut self) -> io::Result<Option<(Head, u32)>> {
        let Ok(offset) = u32::try_from(self.at) else {
            return Ok(None);
        };
        let Some(head) = self.look(HEAD_BYTES)?.and_then(Head::parse) else {
            return Ok(None);
        };
        let salt = self.salt;
        let is_whole = self
            .look(head.bytes())?
            .is_some_and(|frame| frame::is_whole(frame, salt));
        if !is_whole {
            return Ok(None);
        }
        if head.begins {
            self.last_commit = self.at;
        }
        self.at += head.bytes() as u64;
        Ok(Some((head, offset)))
    }

    /// The next `bytes` bytes, unless the segment is shorter.
    fn look(&mut self, bytes: usize) -> io::Result<Option<&[u8]>> {
        if self.at + bytes as u64 > self.length {
            return Ok(None);
        }
        let is_in_view = self.at >= self.window_at
            && self.at + bytes as u64 <= self.window_at + self.window.len() as u64;
        if !is_in_view {
            self.window.resize(bytes.max(WINDOW_BYTES), 0);
            let filled = disk::read_at(self.file, &mut self.window, self.at)?;
            self.window.truncate(filled);
            self.window_at = self.at;
        }
        let from = usize::try_from(self.at - self.window_at).unwrap_or(usize::MAX);
        Ok(self.window.get(from..from + bytes))
    }
}

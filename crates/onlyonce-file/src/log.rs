//! The end of the log: where frames are written and made durable, segment after segment. Room for
//! what finishes work is set aside before anything new is begun.

use std::fs::{self, OpenOptions};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use bytes::Bytes;
use onlyonce_core::{Entropy, OsEntropy, Slot};

use super::disk::{self, Disk};
use super::folder::{WriteError, private};
use super::frame::{HEADER_BYTES, Head, Header, Kind};
use super::lock;
use super::manifest::Written;
use super::segment::{self, Listed, Segment};
use super::shared::Shared;
use super::sweeper::Nudge;
use super::tally::millis;

/// Room set aside for what finishes work, while new keys are refused.
const RESERVE_BYTES: u64 = 8 << 20;
/// A segment is as large as this part of the log, so that there are never too many.
const SEGMENT_PART: u64 = 64;
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// No frame begins behind this: its offset has 32 bits.
const OFFSET_MAX: u64 = 3 << 30;
/// How far ahead of its frames a segment is filled with zeros. A commit within that changes neither
/// the length of the file nor where it lies: the disk has that much less to make durable.
const AHEAD_BYTES: u64 = 1 << 20;
/// What a claim takes, far more than most: it is written on its caller's thread where so much is filled.
const QUICK_BYTES: u64 = 4096;
/// How much is gathered before it is handed to the disk.
const WRITE_BYTES: usize = 1 << 20;

pub(super) struct Log {
    shared: Arc<Shared>,
    disk: Arc<dyn Disk>,
    sweeper: Sender<Nudge>,
    active: Arc<Segment>,
    /// Up to where room is set aside; for ever, where the disk cannot do that.
    reserved: u64,
    /// Up to where the active segment has been filled ahead.
    filled: u64,
    segment_bytes: u64,
    buffer: Vec<u8>,
}

/// When frames have to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durable {
    /// Before anything is said of them.
    Now,
    /// Along with the next frames that have to be now. A process that is killed loses nothing by
    /// that, a power cut may undo them.
    Later,
}

/// Why nothing was written. Nothing of it can be read back later.
pub(super) enum CommitError {
    /// There is no room.
    Full,
    /// The disk failed: what it has is unknown, and stays so until the store is opened again.
    Failed(io::Error),
}

/// Frames that are written: their segment, and their offsets in it.
pub(super) struct Committed {
    pub(super) segment: Arc<Segment>,
    pub(super) listed: Vec<Listed>,
}

impl Log {
    /// Goes on with the newest segment of `shared`.
    pub(super) fn new(
        shared: Arc<Shared>,
        disk: Arc<dyn Disk>,
        sweeper: Sender<Nudge>,
        active: Arc<Segment>,
        segment_bytes: u64,
    ) -> Self {
        Self {
            shared,
            disk,
            sweeper,
            reserved: active.end(),
            filled: active.end(),
            active,
            segment_bytes,
            buffer: Vec::new(),
        }
    }

    /// Whether there is room for something new, and enough left to finish what was begun.
    pub(super) fn has_room(&mut self) -> bool {
        let end = self.active.end();
        if self.reserved.saturating_sub(end) >= RESERVE_BYTES {
            return true;
        }
        match self.disk.reserve(&self.active.file, end, 2 * RESERVE_BYTES) {
            Ok(()) => self.reserved = end + 2 * RESERVE_BYTES,
            Err(error) if disk::is_full(&error) => return false,
            // The disk cannot set room aside.
            Err(_) => self.reserved = u64::MAX,
        }
        true
    }

    /// Whether a claim can be written without any other step of the disk: no new segment, no room to be
    /// set aside or filled.
    pub(super) fn is_quick(&self) -> bool {
        let end = self.active.end();
        let fills = self.reserved != u64::MAX && end + QUICK_BYTES > self.filled;
        let has_room = self.reserved.saturating_sub(end) >= RESERVE_BYTES;
        has_room && !fills && end < self.segment_target()
    }

    /// Writes frames in one go, and makes them and all before them durable if they have to be.
    pub(super) fn commit(
        &mut self,
        frames: impl Iterator<Item = (Head, Bytes)>,
        durable: Durable,
    ) -> Result<Committed, CommitError> {
        if self.active.end() >= self.segment_target() {
            self.roll();
        }
        // A disk says once that it has lost something: what is synced after that proves nothing.
        if let Some(why) = self.shared.failure() {
            return Err(CommitError::Failed(io::Error::other(why)));
        }
        let written = self.write(frames).and_then(|(listed, end)| {
            match durable {
                Durable::Now => self.sync(end)?,
                Durable::Later => {}
            }
            Ok((listed, end))
        });
        match written {
            Ok((listed, end)) => {
                self.check_place().map_err(CommitError::Failed)?;
                self.active.set_end(end);
                Ok(Committed {
                    segment: Arc::clone(&self.active),
                    listed,
                })
            }
            Err(error) if disk::is_full(&error) => self.take_back(),
            Err(error) => Err(CommitError::Failed(error)),
        }
    }

    /// Checks that what was just written is where it is looked for when the store is opened again:
    /// else nothing may be said to be stored, and nothing may begin.
    fn check_place(&self) -> io::Result<()> {
        self.shared.folder.check()?;
        self.active.check()
    }

    fn write(
        &mut self,
        frames: impl Iterator<Item = (Head, Bytes)>,
    ) -> io::Result<(Vec<Listed>, u64)> {
        let mut listed = Vec::new();
        let mut written = self.active.end();
        self.buffer.clear();
        for (mut head, payload) in frames {
            let offset = written + self.buffer.len() as u64;
            if offset > OFFSET_MAX {
                return Err(io::ErrorKind::StorageFull.into());
            }
            head.begins = listed.is_empty() && !self.is_behind();
            head.write(&payload, self.active.header.salt, &mut self.buffer);
            listed.push(Listed::of(&head, u32::try_from(offset).unwrap_or(u32::MAX)));
            if self.buffer.len() >= WRITE_BYTES {
                self.disk.write(&self.active.file, &self.buffer, written)?;
                written += self.buffer.len() as u64;
                self.buffer.clear();
            }
        }
        self.disk.write(&self.active.file, &self.buffer, written)?;
        written += self.buffer.len() as u64;
        if written > self.filled {
            self.fill_ahead(written)?;
        }
        self.buffer.clear();
        self.buffer.shrink_to(2 * WRITE_BYTES);
        Ok((listed, written))
    }

    /// Makes all that is written durable, up to `end`.
    fn sync(&self, end: u64) -> io::Result<()> {
        // A full disk that shows only here has lost something of what it had taken.
        self.disk
            .sync(&self.active.file)
            .map_err(|error| io::Error::other(error.to_string()))?;
        self.active.set_durable(end);
        Ok(())
    }

    /// Whether frames of the active segment are written, but not durable yet. The next ones join their
    /// commit: after a power cut it may be there in part, and it ends with what is durable.
    fn is_behind(&self) -> bool {
        self.active.durable() < self.active.end()
    }

    /// Writes zeros behind `end`, into room that is set aside; durable along with what is before
    /// them. Where there is none, it goes on without.
    fn fill_ahead(&mut self, end: u64) -> io::Result<()> {
        let room = match self.reserved {
            u64::MAX => end,
            reserved => reserved,
        };
        let target = self.segment_target().min(room);
        let until = (end + AHEAD_BYTES).min(target).max(end);
        let zeros = vec![0; usize::try_from(until - end).unwrap_or(0)];
        match self.disk.write(&self.active.file, &zeros, end) {
            Err(error) if !disk::is_full(&error) => Err(error),
            Ok(()) | Err(_) => {
                self.filled = until;
                Ok(())
            }
        }
    }

    /// Takes back what a full disk did not take whole.
    fn take_back(&mut self) -> Result<Committed, CommitError> {
        let end = self.active.end();
        self.reserved = self.reserved.min(end);
        self.filled = end;
        match self.active.file.set_len(end) {
            Ok(()) => Err(CommitError::Full),
            Err(error) => Err(CommitError::Failed(error)),
        }
    }

    fn segment_target(&self) -> u64 {
        let part = self.shared.segments.bytes() / SEGMENT_PART;
        self.segment_bytes.max(part.min(SEGMENT_BYTES_MAX))
    }

    /// Begins the next segment. Where there is no room for it, the old one goes on.
    pub(super) fn roll(&mut self) {
        if self.active.end() <= HEADER_BYTES as u64 {
            return;
        }
        // The next one says where this one ended: all of it must be there then.
        if self.is_behind()
            && let Err(error) = self.sync(self.active.end())
        {
            self.shared.fail(error.to_string());
            return;
        }
        let next = match self.begin_next() {
            Ok(next) => Arc::new(next),
            Err(error) => {
                tracing::warn!(target: "onlyonce", %error, "no new segment could be begun");
                return;
            }
        };
        // Gives back what was set aside behind its end.
        drop(self.active.file.set_len(self.active.end()));
        self.shared.segments.insert(Arc::clone(&next));
        let sealed = std::mem::replace(&mut self.active, next);
        self.reserved = self.active.end();
        self.filled = self.active.end();
        drop(self.sweeper.send(Nudge::Sealed(sealed)));
    }

    /// Makes the next segment, and has the manifest name it before anything is in it.
    fn begin_next(&self) -> io::Result<Segment> {
        let next = begin(&self.shared, &*self.disk, Some(&self.active))?;
        let named = self.shared.manifest.change(|it| {
            it.last = next.id();
            it.written = Some(Written::of(&next));
        });
        match named {
            Ok(()) => Ok(next),
            Err(WriteError::Unchanged(error)) => {
                fs::remove_file(&next.path)?;
                Err(error)
            }
            // The manifest may name it after a crash: it stays, and no other is made in its stead.
            Err(WriteError::Unknown(error)) => {
                self.shared.fail(error.to_string());
                Err(error)
            }
        }
    }

    /// Ends the log in order: what is damaged later is then known to have been whole.
    pub(super) fn close(&mut self) {
        if self.shared.check().is_err() {
            return;
        }
        let head = Head {
            kind: Kind::Closed,
            begins: true,
            due: 0,
            slot: Slot::from_bytes([0; Slot::BYTES]),
            replays: 0,
            payload_bytes: 0,
        };
        if self.active.end() > HEADER_BYTES as u64 {
            drop(self.commit(std::iter::once((head, Bytes::new())), Durable::Now));
        }
        drop(self.active.file.set_len(self.active.end()));
        let moment = self.shared.time.moment();
        if let Err(error) = self.shared.note(|it| it.moment = moment) {
            tracing::warn!(target: "onlyonce", %error, "when the store was closed could not be kept");
        }
    }
}

/// Makes the segment that follows `previous`, durable and empty.
pub(super) fn begin(
    shared: &Shared,
    disk: &dyn Disk,
    previous: Option<&Segment>,
) -> io::Result<Segment> {
    let mut salt = [0; 4];
    OsEntropy::new().fill(&mut salt);
    let header = Header {
        id: previous.map_or(1, |previous| previous.id() + 1),
        salt: u32::from_le_bytes(salt),
        began: millis(shared.now()),
        previous_end: previous.map_or(0, Segment::end),
    };
    let path = segment::path(&shared.folder.path, header.id);
    let file = private(OpenOptions::new().read(true).write(true).create_new(true)).open(&path)?;
    let made = disk
        .write(&file, &header.write(), 0)
        .and_then(|()| reserve_first(disk, &file))
        .and_then(|()| file.sync_all())
        .and_then(|()| disk::sync_folder(&shared.folder.path));
    if let Err(error) = made {
        // An empty segment is ignored, should it be there again after a crash.
        fs::remove_file(&path)?;
        return Err(error);
    }
    let segment = Segment::new(header, path, file, HEADER_BYTES as u64);
    *lock(&segment.listed) = Some(Vec::new());
    Ok(segment)
}

/// A segment is begun only where there is room to finish what was begun.
fn reserve_first(disk: &dyn Disk, file: &fs::File) -> io::Result<()> {
    match disk.reserve(file, HEADER_BYTES as u64, RESERVE_BYTES) {
        Err(error) if disk::is_full(&error) => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

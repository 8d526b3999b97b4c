//! Opens a folder: reads the lists of its segments, or a segment itself where there is no list,
//! and the end of the log in full. What is missing or damaged is refused, never guessed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use onlyonce_core::entry::StoreClock;
use onlyonce_core::{StoreError, StoreErrorKind};

use super::disk::{self, Disk};
use super::folder::{self, Folder, refused};
use super::frame::{HEADER_BYTES, Head, Header, HeaderError};
use super::index::{Indexed, Place};
use super::scan::{self, ScanError, Scanned};
use super::segment::{self, Listed, Segment};
use super::shared::Shared;
use super::sweeper::Nudge;
use super::tally::{self, Tally};
use super::{NAME, listing, lock, log};
use crate::open::OpenError;

/// A segment's file, before it is read.
struct Unread {
    header: Header,
    path: PathBuf,
    file: File,
}

/// Reads what the folder holds; gives the segment to go on with.
pub(super) fn recover(
    folder: Folder,
    clock: StoreClock,
    disk: &dyn Disk,
    sweeper: &Sender<Nudge>,
) -> Result<(Arc<Shared>, Arc<Segment>), OpenError> {
    let mut unread = segments(&folder.path)?;
    let shared = Arc::new(Shared::new(folder, clock));
    let newest = newest(&mut unread)?;
    let ends: Vec<u64> = unread
        .iter()
        .skip(1)
        .map(|next| next.header.previous_end)
        .chain(newest.iter().map(|(it, _)| it.header.previous_end))
        .collect();
    for (sealed, end) in unread.into_iter().zip(ends) {
        read_sealed(&shared, sealed, end, sweeper)?;
    }
    let active = match newest {
        Some((it, scanned)) => read_newest(&shared, it, scanned)?,
        None => {
            let begun = log::begin(&shared, disk, None);
            let begun = begun.map_err(|error| unusable(&shared.folder.path, error))?;
            Arc::new(begun)
        }
    };
    shared.segments.insert(Arc::clone(&active));
    Ok((shared, active))
}

/// The segments of a folder, oldest first.
fn segments(folder: &Path) -> Result<Vec<Unread>, OpenError> {
    let mut ids = ids(folder).map_err(|error| unusable(folder, error))?;
    ids.sort_unstable();
    if let Some(missing) = ids.windows(2).find(|pair| pair[1] != pair[0] + 1) {
        return Err(refused(format!(
            "file {} is missing: restore it from a copy, or name a new folder",
            segment::path(folder, missing[0] + 1).display()
        )));
    }
    let mut segments = Vec::new();
    for (at, id) in ids.iter().enumerate() {
        let is_last = at + 1 == ids.len();
        segments.extend(open(folder, *id, is_last)?);
    }
    Ok(segments)
}

fn ids(folder: &Path) -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let id = name
            .to_str()
            .and_then(|name| name.strip_suffix(".log"))
            .and_then(|id| id.parse().ok());
        // Whatever else is there is none of ours.
        ids.extend(id.filter(|id| segment::path(folder, *id).file_name() == Some(&name)));
    }
    Ok(ids)
}

/// Opens a segment; nothing if it is the last one and was not even begun.
fn open(folder: &Path, id: u32, is_last: bool) -> Result<Option<Unread>, OpenError> {
    let path = segment::path(folder, id);
    let mut bytes = [0; HEADER_BYTES];
    let opened = OpenOptions::new().read(true).write(true).open(&path);
    let read = opened.and_then(|file| {
        let filled = disk::read_at(&file, &mut bytes, 0)?;
        Ok((file, filled))
    });
    let (file, filled) = read.map_err(|error| unusable(&path, error))?;
    match Header::parse(&bytes) {
        Ok(header) if header.id == id => Ok(Some(Unread { header, path, file })),
        Err(HeaderError::Version(version)) => Err(folder::other_format(folder, version)),
        Err(HeaderError::Damaged) if is_last && is_unwritten(&file, &bytes[..filled]) => {
            fs::remove_file(&path).map_err(|error| unusable(&path, error))?;
            Ok(None)
        }
        Ok(_) | Err(HeaderError::Damaged) => Err(damaged(&path, 0)),
    }
}

/// Whether a crash came before the header: then nothing is behind it either.
fn is_unwritten(file: &File, header: &[u8]) -> bool {
    let is_short = file
        .metadata()
        .is_ok_and(|metadata| metadata.len() <= HEADER_BYTES as u64);
    is_short && (header.len() < HEADER_BYTES || header.iter().all(|byte| *byte == 0))
}

/// Takes the segment to go on with from the end of the list: the last that has anything in it. One
/// without may be left of an attempt to begin it, and then it does not know where the one before
/// ended.
fn newest(unread: &mut Vec<Unread>) -> Result<Option<(Unread, Scanned)>, OpenError> {
    while let Some(last) = unread.pop() {
        let scanned = scan::newest(&last.file, &last.header)
            .map_err(|error| unreadable(&last.path, error))?;
        if !unread.is_empty() && scanned.end == HEADER_BYTES as u64 {
            fs::remove_file(&last.path).map_err(|error| unusable(&last.path, error))?;
            continue;
        }
        return Ok(Some((last, scanned)));
    }
    Ok(None)
}

fn read_sealed(
    shared: &Shared,
    unread: Unread,
    end: u64,
    sweeper: &Sender<Nudge>,
) -> Result<(), OpenError> {
    let Unread { header, path, file } = unread;
    let length = file
        .metadata()
        .map_err(|error| unusable(&path, error))?
        .len();
    if length < end {
        return Err(damaged(&path, length));
    }
    let segment = Arc::new(Segment::new(header, path, file, end));
    shared.segments.insert(Arc::clone(&segment));
    match listing::read(&segment.list_path(), &segment.header, end) {
        Some(listed) => shared.load(&segment, &listed),
        None => {
            let listed = scan::sealed(&segment.file, &segment.header, end)
                .map_err(|error| unreadable(&segment.path, error))?;
            shared.load(&segment, &listed);
            *lock(&segment.listed) = Some(listed);
            drop(sweeper.send(Nudge::Sealed(segment)));
        }
    }
    Ok(())
}

fn read_newest(
    shared: &Shared,
    unread: Unread,
    scanned: Scanned,
) -> Result<Arc<Segment>, OpenError> {
    let Unread { header, path, file } = unread;
    if scanned.torn_bytes > 0 {
        tracing::warn!(
            target: "onlyonce", bytes = scanned.torn_bytes,
            "the last write before a crash was cut short; nobody was told that it was done"
        );
    }
    file.set_len(scanned.end)
        .map_err(|error| unusable(&path, error))?;
    settle(&file, &scanned).map_err(|error| unusable(&path, error))?;
    // A list is of a segment that ended; this one goes on.
    drop(fs::remove_file(path.with_extension("idx")));
    let segment = Arc::new(Segment::new(header, path, file, scanned.end));
    shared.segments.insert(Arc::clone(&segment));
    shared.load(&segment, &scanned.listed);
    *lock(&segment.listed) = Some(scanned.listed);
    Ok(segment)
}

/// Makes the last commit durable before anybody is told of it. It is written again: a disk that
/// failed to make it durable once may take it for done.
fn settle(file: &File, scanned: &Scanned) -> io::Result<()> {
    let length = usize::try_from(scanned.end - scanned.last_commit).unwrap_or(usize::MAX);
    let mut commit = vec![0; length];
    disk::read_at(file, &mut commit, scanned.last_commit)?;
    match disk::write_at(file, &commit, scanned.last_commit) {
        Err(error) if !disk::is_full(&error) => Err(error),
        Ok(()) | Err(_) => file.sync_all(),
    }
}

impl Shared {
    /// Takes the frames of a segment into the index, after those of all older ones.
    fn load(&self, segment: &Segment, listed: &[Listed]) {
        let now = tally::millis(self.now());
        for it in listed {
            let place = segment.place(it.offset);
            let older = self.older(it, place);
            if let Some((old, Some(head))) = &older
                && let Some(segment) = self.segments.get(old.segment)
            {
                let gone = Tally::one(head.kind, head.bytes());
                segment.tallies(|tallies| tallies.subtract(head.due, gone));
            }
            // What has expired still replaces what it replaced.
            let is_alive = it.kind.is_record() && it.due > now;
            let entry = Indexed::new(it.tag, place, it.kind);
            match older {
                Some((old, _)) if is_alive => {
                    self.index.replace(old, entry);
                }
                Some((old, _)) => {
                    self.index.remove(it.tag, old);
                }
                None if is_alive => self.index.insert(entry),
                None => {}
            }
            if is_alive {
                segment.tallies(|tallies| tallies.add(it.due, it.tally()));
            }
        }
    }

    /// The frame of the same slot that is in the index, and its head if it can be read.
    fn older(&self, it: &Listed, place: Place) -> Option<(Place, Option<Head>)> {
        let places = self.index.places(it.tag);
        let new = places.first().and_then(|_| self.head(place));
        places
            .into_iter()
            .map(|old| (old, self.head(old)))
            .find(|(_, old)| match (&new, old) {
                (Some(new), Some(old)) => new.slot == old.slot,
                // Eight bytes alike, and no others can be read: it is the same.
                (None, _) | (_, None) => true,
            })
    }

    fn head(&self, place: Place) -> Option<Head> {
        self.segments
            .get(place.segment)?
            .read_head(place.offset)
            .ok()
    }
}

fn unreadable(path: &Path, error: ScanError) -> OpenError {
    match error {
        ScanError::Disk(error) => unusable(path, error),
        ScanError::Damaged { at } => damaged(path, at),
    }
}

fn damaged(path: &Path, at: u64) -> OpenError {
    refused(format!(
        "file {} is damaged at byte {at}, and records that were stored are behind it: restore the folder from a copy, or name a new folder",
        path.display()
    ))
}

fn unusable(path: &Path, error: io::Error) -> OpenError {
    let kind = if disk::is_full(&error) {
        StoreErrorKind::Full
    } else {
        StoreErrorKind::Unavailable
    };
    let why = format!("{} cannot be used: {error}", path.display());
    OpenError::Store(StoreError::new(NAME, kind).caused_by(why))
}

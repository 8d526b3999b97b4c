//! Opens a folder: reads the lists of its segments, or a segment itself where there is no list,
//! and the end of the log in full. What is missing or damaged is refused, never guessed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use onlyonce_core::{StoreError, StoreErrorKind};

use super::disk::{self, Disk};
use super::folder::{self, State, refused};
use super::frame::{self, HEADER_BYTES, Head, Header, HeaderError};
use super::index::{Indexed, Place};
use super::manifest::Contents;
use super::scan::{self, ScanError, Scanned};
use super::segment::{self, Listed, Segment};
use super::shared::Shared;
use super::sweeper::Nudge;
use super::tally::{self, Tally};
use super::{NAME, listing, lock, log, missing};
use onlyonce_storekit::OpenError;

/// A segment's file, before it is read.
struct Unread {
    header: Header,
    path: PathBuf,
    file: File,
}

/// Reads what the folder holds; gives the segment to go on with.
pub(super) fn recover(
    shared: Shared,
    disk: &dyn Disk,
    sweeper: &Sender<Nudge>,
) -> Result<(Arc<Shared>, Arc<Segment>), OpenError> {
    let mut found = Found::of(&shared)?;
    let newest = found.newest(&shared.manifest.get())?;
    let ends: Vec<u64> = found
        .unread
        .iter()
        .skip(1)
        .map(|next| next.header.previous_end)
        .chain(newest.iter().map(|(it, _)| it.header.previous_end))
        .collect();
    for (sealed, end) in found.unread.into_iter().zip(ends) {
        missing::check_written(&sealed.path, &sealed.header, end, &shared.manifest.get())?;
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
    shared.missed.settle(|id| shared.segments.get(id));
    shared.inherit(active.place(u32::try_from(active.end()).unwrap_or(u32::MAX)));
    name_all(&shared, &active)?;
    remove(&shared.folder.path, &found.unneeded)?;
    Ok((Arc::new(shared), active))
}

/// Has the manifest name what was found, before anything that it named is removed.
fn name_all(shared: &Shared, active: &Segment) -> Result<(), OpenError> {
    let named = shared.manifest.get().last;
    let first = shared.segments.oldest().map_or(active.id(), |it| it.id());
    let moment = shared.time.moment();
    let written = shared.note(|contents| {
        contents.first = first;
        contents.last = active.id();
        contents.moment = moment;
    });
    match written.map_err(io::Error::from) {
        Ok(()) => shared.folder.finish(),
        // A full disk is no reason not to read what is there, if what the manifest names stays.
        Err(error)
            if disk::is_full(&error)
                && shared.folder.state != State::New
                && named <= active.id() =>
        {
            Ok(())
        }
        Err(error) => Err(unusable(&shared.folder.path, error)),
    }
}

/// Removes files that hold nothing.
fn remove(folder: &Path, files: &[PathBuf]) -> Result<(), OpenError> {
    if files.is_empty() {
        return Ok(());
    }
    for file in files {
        fs::remove_file(file).map_err(|error| unusable(file, error))?;
    }
    disk::sync_folder(folder).map_err(|error| unusable(folder, error))
}

/// The segments of a folder.
struct Found {
    /// Oldest first.
    unread: Vec<Unread>,
    /// Files of segments that hold nothing any more, or nothing yet.
    unneeded: Vec<PathBuf>,
}

impl Found {
    fn of(shared: &Shared) -> Result<Self, OpenError> {
        let folder = &shared.folder.path;
        let named = shared.manifest.get();
        let ids = missing::ids(folder).map_err(|error| unusable(folder, error))?;
        let mut found = Self {
            unread: Vec::new(),
            unneeded: Vec::new(),
        };
        for id in &ids {
            // It was on its way out: all that still counts is in newer ones.
            if *id < named.first {
                found.unneeded.push(segment::path(folder, *id));
                continue;
            }
            // What the manifest names was durable before.
            let may_be_unwritten = ids.last() == Some(id) && *id > named.last;
            match open(folder, *id, may_be_unwritten)? {
                Some(unread) => found.unread.push(unread),
                None => found.unneeded.push(segment::path(folder, *id)),
            }
        }
        Ok(found)
    }

    /// Takes the segment to go on with from the end of the list: the last that has anything in it.
    /// One without may be left of an attempt to begin it, and then it does not know where the one
    /// before ended.
    fn newest(&mut self, named: &Contents) -> Result<Option<(Unread, Scanned)>, OpenError> {
        let mut end_min = 0;
        while let Some(last) = self.unread.pop() {
            let scanned = scan::newest(&last.file, &last.header)
                .map_err(|error| unreadable(&last.path, error))?;
            missing::check_written(&last.path, &last.header, scanned.end, named)?;
            if scanned.end < end_min {
                return Err(damaged(&last.path, scanned.end));
            }
            if !self.unread.is_empty() && scanned.end == HEADER_BYTES as u64 {
                // The one before may have gone on, but it reached that far.
                end_min = last.header.previous_end;
                self.unneeded.push(last.path);
                continue;
            }
            return Ok(Some((last, scanned)));
        }
        Ok(None)
    }
}

/// Opens a segment; nothing if it was not even begun, where that may be.
fn open(folder: &Path, id: u32, may_be_unwritten: bool) -> Result<Option<Unread>, OpenError> {
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
        Err(HeaderError::Version(version)) => {
            Err(folder::other_format(&path, version, frame::VERSION))
        }
        Err(HeaderError::Damaged) if may_be_unwritten && is_unwritten(&file, &bytes[..filled]) => {
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
            self.missed.note(it, place, now);
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

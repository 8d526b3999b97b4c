//! What the writer, the sweeper and the readers have in common. Only the writer adds to it, and
//! only what is as durable as it has to be.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use onlyonce_core::codec;
use onlyonce_core::entry::{Entry, Kept, Phase, Waiters, timestamp};
use onlyonce_core::{Slot, StoreError, StoreErrorKind};

use super::NAME;
use super::folder::{Folder, WriteError};
use super::frame::{Frame, Head};
use super::index::{Index, Place, Tag};
use super::manifest::{Contents, Manifest, Written};
use super::missed::Missed;
use super::recent::Recent;
use super::segment::{ReadError, Segments};
use super::tally::{self, Tally};
use super::{agreed, disk, folder, manifest};
use onlyonce_storekit::moment::StoreTime;

/// How often a record may have moved while it was looked for: far more than it ever does.
const MOVES_MAX: usize = 1000;

pub(super) struct Shared {
    pub(super) folder: Folder,
    pub(super) manifest: Manifest,
    pub(super) time: StoreTime,
    pub(super) index: Index,
    pub(super) segments: Segments,
    pub(super) waiters: Mutex<Waiters>,
    pub(super) recent: Mutex<Recent>,
    pub(super) missed: Missed,
    /// The writer's thread has something to do: claims of other threads leave it the lock.
    pub(super) is_busy: AtomicBool,
    /// What earlier processes wrote.
    inherited: OnceLock<Inherited>,
    /// Why nothing is taken any more, once the disk has failed.
    failed: OnceLock<String>,
}

/// Where the log ended when this process opened it, and when that was. The folder has one owner at
/// a time: a claim before that is of a process that is gone.
struct Inherited {
    until: Place,
    at: Duration,
}

/// A record as it was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) place: Place,
    pub(super) head: Head,
    /// With all replays counted.
    pub(super) kept: Kept,
}

impl Shared {
    pub(super) fn new(folder: Folder, manifest: Manifest, time: StoreTime, missed: Missed) -> Self {
        Self {
            folder,
            manifest,
            recent: Mutex::new(Recent::since(timestamp(time.now()))),
            time,
            index: Index::new(),
            segments: Segments::default(),
            waiters: Mutex::default(),
            missed,
            is_busy: AtomicBool::new(false),
            inherited: OnceLock::new(),
            failed: OnceLock::new(),
        }
    }

    /// Takes note that all before this place was written by earlier processes.
    pub(super) fn inherit(&self, until: Place) {
        let at = self.now();
        drop(self.inherited.set(Inherited { until, at }));
    }

    pub(super) fn now(&self) -> Duration {
        self.time.now()
    }

    /// Changes the manifest, which also learns how far the log has been written.
    pub(super) fn note(&self, change: impl FnOnce(&mut Contents)) -> Result<(), WriteError> {
        self.manifest.change(|contents| {
            change(contents);
            let last = self.segments.get(contents.last);
            contents.written = last.map(|last| Written::of(&last));
        })
    }

    /// The slot's newest record that is shown, expired or not: a claim that may run again may not be
    /// durable yet, all else is.
    pub(super) fn find(&self, slot: &Slot) -> Result<Option<Found>, StoreError> {
        self.read(Tag::of(slot), |place, frame| {
            let frame = frame.map_err(unreadable)?;
            if frame.head.slot != *slot {
                return Ok(None);
            }
            self.found(place, frame).map(Some)
        })
    }

    /// Reads the frames of slots with this tag until `look` has found what it wants.
    pub(super) fn read<T>(
        &self,
        tag: Tag,
        mut look: impl FnMut(Place, Result<Frame, ReadError>) -> Result<Option<T>, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        'moved: for _ in 0..MOVES_MAX {
            for place in self.index.places(tag) {
                // What leaves a segment leaves the index first: then there is a newer place.
                let Some(segment) = self.segments.get(place.segment) else {
                    continue 'moved;
                };
                if let Some(wanted) = look(place, segment.read(place.offset))? {
                    return Ok(Some(wanted));
                }
            }
            return Ok(None);
        }
        Err(unreadable(ReadError::Damaged))
    }

    /// The slot as an entry, to look at.
    pub(super) fn entry(&self, slot: &Slot) -> Result<Entry, StoreError> {
        let found = self.find(slot)?;
        Ok(Entry {
            kept: found.map(|found| found.kept),
        })
    }

    /// What is alive, and what has expired but is still in the index.
    pub(super) fn tally(&self) -> (Tally, Tally) {
        let now = tally::millis(self.now());
        let (mut live, mut expired) = (Tally::default(), Tally::default());
        for segment in self.segments.all() {
            let (alive, over) = segment.tallies(|tallies| tallies.at(now));
            live.add(alive);
            expired.add(over);
        }
        (live, expired)
    }

    /// The record in a frame. A claim of an earlier process has lapsed: nobody renews it.
    pub(super) fn found(&self, place: Place, frame: Frame) -> Result<Found, StoreError> {
        let Frame { head, payload } = frame;
        let mut kept = codec::decode(&payload)
            .map_err(|error| StoreError::new(NAME, StoreErrorKind::Corrupt).caused_by(error))?;
        kept.replays = kept.replays.saturating_add(u64::from(head.replays));
        if let Phase::Pending { lease_until } = &mut kept.phase
            && let Some(inherited) = self.inherited.get()
            && place.is_before(inherited.until)
        {
            *lease_until = inherited.at.min(*lease_until);
        }
        Ok(Found { place, head, kept })
    }

    /// Whether all files are still where they are looked for when the store is opened again.
    pub(super) fn watch(&self) -> io::Result<()> {
        self.folder.check()?;
        for segment in self.segments.all() {
            let checked = segment.check();
            // It may have been dropped in between.
            if checked.is_err() && self.segments.get(segment.id()).is_some() {
                return checked;
            }
        }
        let agreed = Some(agreed::FILE).filter(|_| self.manifest.get().agreed > 0);
        for name in [folder::MARKER, manifest::FILE].into_iter().chain(agreed) {
            let path = self.folder.path.join(name);
            if !path.try_exists()? {
                return Err(disk::gone(&path));
            }
        }
        Ok(())
    }

    /// Takes nothing from now on, until the store is opened again.
    pub(super) fn fail(&self, why: String) {
        if self.failed.set(why).is_ok() {
            let why = self.failure().unwrap_or_default();
            tracing::error!(target: "onlyonce", why, "the file store takes nothing until it is restarted");
        }
    }

    /// Why nothing is taken any more, if that is so.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// Whether the disk has done all it was asked so far.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self.failure() {
            None => Ok(()),
            Some(why) => Err(failed(why)),
        }
    }
}

pub(super) fn unreadable(error: ReadError) -> StoreError {
    let kind = match error {
        ReadError::Disk(_) => StoreErrorKind::Unavailable,
        ReadError::Damaged => StoreErrorKind::Corrupt,
    };
    StoreError::new(NAME, kind).caused_by(error)
}

/// The disk failed: what it did with the last write is not known before the store is read again.
pub(super) fn failed(why: &str) -> StoreError {
    StoreError::new(NAME, StoreErrorKind::Unavailable).caused_by(format!(
        "the store cannot go on ({why}): restart this process"
    ))
}

/// There is no room.
pub(super) fn full(why: &str) -> StoreError {
    StoreError::new(NAME, StoreErrorKind::Full).caused_by(why.to_owned())
}

/// The writer has ended; it ends before its store only by a bug.
pub(super) fn ended() -> StoreError {
    failed("its writer has ended")
}

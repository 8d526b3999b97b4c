//! One file of the log. Segments are written one after the other and dropped in the same order,
//! oldest first: so a frame outlives everything older, and what it replaced cannot come back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use thiserror::Error;

use super::disk;
use super::frame::{self, Frame, HEAD_BYTES, Head, Header, Kind};
use super::index::{Place, Tag};
use super::lock;
use super::tally::{Tallies, Tally};

/// How much of a frame is read at first: most frames whole.
const READ_BYTES: usize = 2048;

pub(super) struct Segment {
    pub(super) header: Header,
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// Up to where it is written.
    end: AtomicU64,
    /// Up to where it is durable.
    durable: AtomicU64,
    /// Its frames, until they are in a file beside it.
    pub(super) listed: Mutex<Option<Vec<Listed>>>,
    tallies: Mutex<Tallies>,
    /// Not to be cleaned before this moment: something in it cannot be read.
    pub(super) stuck_until: AtomicU64,
}

/// A frame as it is listed beside its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) tag: Tag,
    pub(super) offset: u32,
    /// The length of the whole frame.
    pub(super) bytes: u32,
    pub(super) due: u64,
    pub(super) kind: Kind,
}

impl Listed {
    pub(super) fn of(head: &Head, offset: u32) -> Self {
        Self {
            tag: Tag::of(&head.slot),
            offset,
            bytes: u32::try_from(head.bytes()).unwrap_or(u32::MAX),
            due: head.due,
            kind: head.kind,
        }
    }

    pub(super) fn tally(&self) -> Tally {
        Tally::one(self.kind, self.bytes as usize)
    }
}

/// Why a frame could not be read.
#[derive(Debug, Error)]
pub(super) enum ReadError {
    #[error("the disk could not be read")]
    Disk(#[from] io::Error),
    #[error("the stored bytes were changed or cut off")]
    Damaged,
}

impl Segment {
    pub(super) fn new(header: Header, path: PathBuf, file: File, end: u64) -> Self {
        Self {
            header,
            path,
            file,
            end: AtomicU64::new(end),
            durable: AtomicU64::new(end),
            listed: Mutex::default(),
            tallies: Mutex::default(),
            stuck_until: AtomicU64::new(0),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.header.id
    }

    pub(super) fn place(&self, offset: u32) -> Place {
        Place {
            segment: self.id(),
            offset,
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// What was written up to here is durable.
    pub(super) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// How much of it a power cut cannot undo.
    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(super) fn set_durable(&self, end: u64) {
        self.durable.store(end, Ordering::Release);
    }

    pub(super) fn tallies<T>(&self, step: impl FnOnce(&mut Tallies) -> T) -> T {
        step(&mut lock(&self.tallies))
    }

    /// The frame at this offset.
    pub(super) fn read(&self, offset: u32) -> Result<Frame, ReadError> {
        let mut bytes = vec![0; READ_BYTES];
        let filled = disk::read_at(&self.file, &mut bytes, u64::from(offset))?;
        bytes.truncate(filled);
        let head = Head::parse(&bytes).ok_or(ReadError::Damaged)?;
        if head.bytes() as u64 + u64::from(offset) > self.end() {
            return Err(ReadError::Damaged);
        }
        if filled < head.bytes() {
            bytes.resize(head.bytes(), 0);
            let from = u64::from(offset) + filled as u64;
            disk::read_at(&self.file, &mut bytes[filled..], from)?;
        }
        bytes.truncate(head.bytes());
        if !frame::is_whole(&bytes, self.header.salt) {
            return Err(ReadError::Damaged);
        }
        let payload = Bytes::from(bytes).slice(HEAD_BYTES..);
        Ok(Frame { head, payload })
    }

    /// The head of the frame at this offset, unchecked but for its mark.
    pub(super) fn read_head(&self, offset: u32) -> Result<Head, ReadError> {
        let mut bytes = [0; HEAD_BYTES];
        disk::read_at(&self.file, &mut bytes, u64::from(offset))?;
        Head::parse(&bytes).ok_or(ReadError::Damaged)
    }

    /// Whether its file is still where it was made: else it is not found again.
    pub(super) fn check(&self) -> io::Result<()> {
        if disk::is_same(&self.path, &self.file)? {
            return Ok(());
        }
        Err(disk::gone(&self.path))
    }

    /// The name of the file that lists its frames.
    pub(super) fn list_path(&self) -> PathBuf {
        self.path.with_extension("idx")
    }
}

/// The name of segment `id` in `folder`.
pub(super) fn path(folder: &Path, id: u32) -> PathBuf {
    folder.join(format!("{id:010}.log"))
}

/// The number of the segment that a file of this name is.
pub(super) fn id(name: &str) -> Option<u32> {
    let id = name.strip_suffix(".log")?.parse().ok()?;
    // Whatever else is there is none of ours.
    (path(Path::new(""), id).to_str() == Some(name)).then_some(id)
}

/// The segments there are. The last one is being written.
#[derive(Default)]
pub(super) struct Segments {
    by_id: RwLock<BTreeMap<u32, Arc<Segment>>>,
}

impl Segments {
    pub(super) fn get(&self, id: u32) -> Option<Arc<Segment>> {
        self.read(|segments| segments.get(&id).cloned())
    }

    /// All of them, oldest first.
    pub(super) fn all(&self) -> Vec<Arc<Segment>> {
        self.read(|segments| segments.values().cloned().collect())
    }

    /// The oldest one, if it is not being written.
    pub(super) fn oldest_sealed(&self) -> Option<Arc<Segment>> {
        self.read(|segments| {
            let (_, oldest) = segments.first_key_value()?;
            (segments.len() > 1).then(|| Arc::clone(oldest))
        })
    }

    pub(super) fn oldest(&self) -> Option<Arc<Segment>> {
        self.read(|segments| Some(Arc::clone(segments.first_key_value()?.1)))
    }

    pub(super) fn newest(&self) -> Option<Arc<Segment>> {
        self.read(|segments| Some(Arc::clone(segments.last_key_value()?.1)))
    }

    /// How many bytes the log has.
    pub(super) fn bytes(&self) -> u64 {
        self.read(|segments| segments.values().map(|segment| segment.end()).sum())
    }

    pub(super) fn insert(&self, segment: Arc<Segment>) {
        let segments = self.by_id.write();
        let mut segments = segments.unwrap_or_else(PoisonError::into_inner);
        segments.insert(segment.id(), segment);
    }

    pub(super) fn remove(&self, id: u32) {
        let segments = self.by_id.write();
        segments.unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    fn read<T>(&self, look: impl FnOnce(&BTreeMap<u32, Arc<Segment>>) -> T) -> T {
        look(&self.by_id.read().unwrap_or_else(PoisonError::into_inner))
    }
}

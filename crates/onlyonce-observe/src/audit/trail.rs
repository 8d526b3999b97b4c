//! The files of an audit trail: one that grows, and older ones beside it. Whoever touches them
//! holds a lock, so that a purge by another process is all there or not there at all: it writes
//! every file anew into a folder beside them, says there that it is complete, and only then moves
//! the files over. Whoever takes the lock next finishes what was complete and drops what was not.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{
    self, BufRead as _, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _,
};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use onlyonce_core::{About, Clock as _, Event, Operated, SystemClock, Timestamp};
use onlyonce_stores::private;
use serde_json::Value;
use thiserror::Error;

use super::entry::{Entry, OPERATOR};
use crate::observers::at_large;

const DAY_MILLIS: u64 = 24 * 3600 * 1000;
/// What says that a purge is complete.
const COMMIT: &str = "complete";

/// Why a trail could not be read or changed.
#[derive(Debug, Error)]
#[error("the audit trail {path} cannot be used: {source}")]
pub struct TrailError {
    path: String,
    source: io::Error,
}

/// What a purge did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Entries removed.
    pub removed: u64,
    /// Entries that stay.
    pub kept: u64,
}

/// An audit trail by the path of its newest file.
pub struct Trail {
    path: PathBuf,
}

impl Trail {
    /// The trail whose newest file is at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The newest `count` entries that `admit` lets through, oldest first, and how many lines
    /// could not be read.
    pub fn last(
        &self,
        count: usize,
        admit: impl Fn(&Value) -> bool,
    ) -> Result<(Vec<Value>, u64), TrailError> {
        let failed = |source| self.failed(source);
        let _lock = self.lock().map_err(failed)?;
        let (mut found, mut unread) = (Vec::new(), 0);
        for file in self.files().map_err(failed)?.iter().rev() {
            let mut entries = Vec::new();
            for line in lines(file).map_err(failed)? {
                match serde_json::from_slice::<Value>(&line.map_err(failed)?) {
                    Ok(entry) if admit(&entry) => entries.push(entry),
                    Ok(_) => {}
                    Err(_) => unread += 1,
                }
            }
            entries.extend(found);
            found = entries;
            if found.len() >= count {
                break;
            }
        }
        let surplus = found.len().saturating_sub(count);
        Ok((found.split_off(surplus), unread))
    }

    /// Whether any file of it is there.
    pub fn exists(&self) -> bool {
        self.files().is_ok_and(|files| !files.is_empty())
    }

    /// Writes one entry, for an event that no engine tells of; nothing for one that is not audited.
    pub fn note(&self, about: &About<'_>, event: &Event) -> Result<(), TrailError> {
        let clock = SystemClock::new();
        let Some(entry) = Entry::of(about, event, || clock.wall()) else {
            return Ok(());
        };
        let mut line = String::new();
        entry.write(super::random_run(), 1, &mut line);
        let write = || {
            let _lock = self.lock()?;
            append_to(&self.path)?.write_all(line.as_bytes())
        };
        write().map_err(|source| self.failed(source))
    }

    /// Writes what an operator did to no record in particular.
    pub fn note_at_large(&self, operated: Operated) -> Result<(), TrailError> {
        at_large(operated, |about, event| self.note(about, event))
    }

    /// Removes every entry of `actor`, all of them or, if it fails, none.
    pub fn purge(&self, actor: &str) -> Result<Purged, TrailError> {
        let failed = |source| self.failed(source);
        let _lock = self.lock().map_err(failed)?;
        self.purge_locked(actor).map_err(failed)
    }

    fn purge_locked(&self, actor: &str) -> io::Result<Purged> {
        let staged = self.beside(".purge");
        DirBuilder::new().mode(0o700).create(&staged)?;
        let mut purged = Purged::default();
        for file in self.files()? {
            let anew = staged.join(name(&file));
            private::file(&anew)?;
            let mut anew = BufWriter::new(File::create(anew)?);
            for line in lines(&file)? {
                match without(actor, line?) {
                    None => purged.removed += 1,
                    Some(line) => {
                        purged.kept += 1;
                        anew.write_all(&line)?;
                        anew.write_all(b"\n")?;
                    }
                }
            }
            anew.into_inner()
                .map_err(io::IntoInnerError::into_error)?
                .sync_all()?;
        }
        File::create(staged.join(COMMIT))?.sync_all()?;
        File::open(&staged)?.sync_all()?;
        self.finish_purge(&staged)?;
        Ok(purged)
    }

    /// Moves the files of a complete purge to their places.
    fn finish_purge(&self, staged: &Path) -> io::Result<()> {
        for file in fs::read_dir(staged)? {
            let file = file?;
            if file.file_name() != COMMIT {
                fs::rename(file.path(), self.folder().join(file.file_name()))?;
            }
        }
        File::open(self.folder())?.sync_all()?;
        fs::remove_file(staged.join(COMMIT))?;
        fs::remove_dir(staged)
    }

    /// Waits for the lock, and clears up what a purge left behind that was killed.
    fn lock(&self) -> io::Result<File> {
        let lock = self.lock_file()?;
        lock.lock()?;
        self.recover()?;
        Ok(lock)
    }

    /// The lock file. For its owner only: another user who can open it could hold the lock.
    fn lock_file(&self) -> io::Result<File> {
        let path = self.beside(".lock");
        private::file(&path)?;
        OpenOptions::new().write(true).open(path)
    }

    fn recover(&self) -> io::Result<()> {
        let staged = self.beside(".purge");
        if staged.join(COMMIT).exists() {
            self.finish_purge(&staged)
        } else if staged.exists() {
            fs::remove_dir_all(&staged)
        } else {
            Ok(())
        }
    }

    /// The files there are, oldest first.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files: Vec<PathBuf> = self.rotated()?.into_iter().map(|(_, file)| file).collect();
        if self.path.exists() {
            files.push(self.path.clone());
        }
        Ok(files)
    }

    /// The older files and when each was closed, oldest first.
    fn rotated(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        let prefix = format!("{}.", name(&self.path).to_string_lossy());
        for file in fs::read_dir(self.folder())? {
            let file = file?;
            let name = file.file_name();
            let closed = name
                .to_str()
                .and_then(|name| name.strip_prefix(&prefix)?.parse().ok());
            if let Some(closed) = closed {
                found.push((closed, file.path()));
            }
        }
        found.sort();
        Ok(found)
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            Some(_) | None => Path::new("."),
        }
    }

    /// The newest file's path with `more` at its end.
    fn beside(&self, more: &str) -> PathBuf {
        let mut path = OsString::from(&self.path);
        path.push(more);
        path.into()
    }

    fn failed(&self, source: io::Error) -> TrailError {
        TrailError {
            path: self.path.display().to_string(),
            source,
        }
    }

    /// Opens the trail to append to it.
    pub(super) fn open(self, keep: Duration, bytes_max: u64) -> Result<Open, TrailError> {
        let opened = || {
            let lock = self.lock()?;
            for file in self.files()? {
                private::file(&file)?;
            }
            let file = append_to(&self.path)?;
            lock.unlock()?;
            Ok((lock, file))
        };
        let (lock, file) = opened().map_err(|source| self.failed(source))?;
        let mut open = Open {
            trail: self,
            lock,
            file,
            keep,
            bytes_max,
            clock: SystemClock::new(),
        };
        open.append(b"")
            .map_err(|source| open.trail.failed(source))?;
        Ok(open)
    }
}

/// A trail that is written.
pub(super) struct Open {
    trail: Trail,
    lock: File,
    file: File,
    keep: Duration,
    bytes_max: u64,
    clock: SystemClock,
}

impl Open {
    /// Appends whole lines. A full or old file is put aside first, and what is past its time goes.
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.lock.lock()?;
        let written = self.append_locked(lines);
        self.lock.unlock()?;
        written
    }

    fn append_locked(&mut self, lines: &[u8]) -> io::Result<()> {
        self.trail.recover()?;
        let now = self.clock.wall();
        // A purge has put another file in this one's place.
        let is_current = fs::metadata(&self.trail.path).is_ok_and(|at_path| {
            Some(at_path.ino()) == self.file.metadata().map(|it| it.ino()).ok()
        });
        if !is_current {
            self.file = append_to(&self.trail.path)?;
        }
        let is_to_rotate = self.is_to_rotate(now)?;
        if is_to_rotate {
            self.rotate(now)?;
        }
        if is_to_rotate || lines.is_empty() {
            self.drop_old(now)?;
        }
        self.file.write_all(lines)
    }

    fn is_to_rotate(&self, now: Timestamp) -> io::Result<bool> {
        let metadata = self.file.metadata()?;
        let written = metadata
            .modified()?
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let written = u64::try_from(written.as_millis()).unwrap_or(u64::MAX);
        let is_of_another_day = written / DAY_MILLIS != now.as_millis() / DAY_MILLIS;
        Ok(metadata.len() > 0 && (metadata.len() >= self.bytes_max || is_of_another_day))
    }

    /// Puts the file aside under the time of its last entry, or a little later if that is taken.
    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        let mut closed = now.as_millis();
        let mut aside = self.trail.beside(&format!(".{closed}"));
        while aside.exists() {
            closed += 1;
            aside = self.trail.beside(&format!(".{closed}"));
        }
        self.file.sync_all()?;
        fs::rename(&self.trail.path, aside)?;
        self.file = append_to(&self.trail.path)?;
        Ok(())
    }

    fn drop_old(&self, now: Timestamp) -> io::Result<()> {
        for (closed, file) in self.trail.rotated()? {
            if now.since(Timestamp::from_millis(closed)) > self.keep {
                fs::remove_file(file)?;
            }
        }
        Ok(())
    }
}

/// Opens a file to append to, for its owner only; a line that was torn at its end is closed, so that
/// the next is whole.
fn append_to(path: &Path) -> io::Result<File> {
    private::file(path)?;
    let mut file = OpenOptions::new().append(true).read(true).open(path)?;
    if file.metadata()?.len() > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

fn lines(file: &Path) -> io::Result<impl Iterator<Item = io::Result<Vec<u8>>>> {
    Ok(BufReader::new(File::open(file)?).split(b'\n'))
}

/// The line with nothing of `actor` in it; none if all of it is theirs. A line that cannot be read
/// stays as it is.
fn without(actor: &str, line: Vec<u8>) -> Option<Vec<u8>> {
    let Ok(mut entry) = serde_json::from_slice::<Value>(&line) else {
        return Some(line);
    };
    if is_of(actor, &entry["actor"]) {
        return None;
    }
    if is_of(actor, &entry["metadata"]["originalActor"]) {
        entry["metadata"]["originalActor"] = Value::Null;
        return Some(entry.to_string().into_bytes());
    }
    Some(line)
}

/// Whether these are the type and id of the actor whose id, or type and id, is `actor`. An operator is
/// meant only by both: what an operator did stays when a caller of the same name is purged.
fn is_of(actor: &str, written: &Value) -> bool {
    let part = |name: &str| written[name].as_str().unwrap_or_default();
    let named = actor.split_once(':') == Some((part("type"), part("id")));
    let by_id = written["id"] == actor && written["type"] != OPERATOR;
    by_id || (named && written["id"].is_string())
}

fn name(path: &Path) -> OsString {
    path.file_name().unwrap_or_default().to_owned()
}

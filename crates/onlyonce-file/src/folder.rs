//! The folder of a store: whose it is, which format it has, and that one process at a time uses
//! it, also if somebody deletes what is in it. A folder that is not ours is left untouched.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use onlyonce_core::{StoreError, StoreErrorKind, Timestamp};
use thiserror::Error;

use super::disk::Identity;
use super::owner::{self, Locks};
use super::{NAME, agreed, disk, manifest, segment};
use onlyonce_storekit::OpenError;
pub(super) use onlyonce_storekit::private::for_owner_only as private;

#[cfg(test)]
mod tests;

pub(super) const MARKER: &str = "onlyonce";
const MARKER_TEXT: &str = "onlyonce file store, format ";
/// What follows the format until the first segment and the manifest are durable.
const BEING_MADE: &str = ", being made";
/// The format of a folder that has no manifest; its segments are the same.
const FORMAT_WITHOUT_MANIFEST: u32 = 1;
const FORMAT: u32 = 2;
/// What this store's own files are called, apart from its segments.
const OURS: [&str; 3] = [MARKER, manifest::FILE, agreed::FILE];

/// The folder, for as long as it is ours.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) state: State,
    identity: Identity,
    /// Locked. The system unlocks them when this process ends, however it ends.
    _locks: Locks,
}

/// What a folder was when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing was ever stored in it.
    New,
    /// A store that was written before there were manifests.
    WithoutManifest,
    /// A store that must have a manifest, and what that names.
    WithManifest,
}

impl Folder {
    /// Takes the folder, which is made if there is none.
    pub(super) fn take(path: &Path, since: Timestamp) -> Result<Self, OpenError> {
        make(path, disk::sync_folder).map_err(|error| unusable(path, "cannot be made", error))?;
        inspect(path)?;
        let locks = Locks::take(path, since)?;
        // Another process may have begun or ended with it meanwhile.
        let state = inspect(path)?;
        let folder = Self {
            identity: disk::identity(path)
                .map_err(|error| unusable(path, "cannot be read", error))?,
            path: path.to_owned(),
            state,
            _locks: locks,
        };
        if state == State::New {
            folder.mark(BEING_MADE)?;
        }
        Ok(folder)
    }

    /// Marks the folder as a store with all that it must have.
    pub(super) fn finish(&self) -> Result<(), OpenError> {
        match self.state {
            State::New | State::WithoutManifest => self.mark(""),
            State::WithManifest => Ok(()),
        }
    }

    fn mark(&self, how_far: &str) -> Result<(), OpenError> {
        let text = format!("{MARKER_TEXT}{FORMAT}{how_far}\n");
        write_whole(&self.path.join(MARKER), text.as_bytes())
            .map_err(|error| unusable(&self.path, "cannot be written", error.into()))
    }

    /// Whether this is still the folder of that name: else nothing written here is found again.
    pub(super) fn check(&self) -> io::Result<()> {
        match disk::identity(&self.path) {
            Ok(identity) if identity == self.identity => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(_) | Err(_) => Err(io::Error::other(format!(
                "folder {} was deleted, moved or replaced while it was in use",
                self.path.display()
            ))),
        }
    }
}

/// Why a file was not written whole.
#[derive(Debug, Error)]
pub(super) enum WriteError {
    /// It is as it was.
    #[error(transparent)]
    Unchanged(io::Error),
    /// It was written, but whether that is durable is not known.
    #[error(transparent)]
    Unknown(io::Error),
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Unchanged(error) | WriteError::Unknown(error) => error,
        }
    }
}

/// Writes a file under its name all at once: it is there as a whole or not at all.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let unfinished = path.with_extension("tmp");
    let renamed = private(OpenOptions::new().write(true).create(true).truncate(true))
        .open(&unfinished)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&unfinished, path));
    if let Err(error) = renamed {
        drop(fs::remove_file(&unfinished));
        return Err(WriteError::Unchanged(error));
    }
    disk::sync_folder(path.parent().unwrap_or(Path::new("."))).map_err(WriteError::Unknown)
}

/// What is wrong with a folder, and what to do.
pub(super) fn refused(why: String) -> OpenError {
    OpenError::Refused { store: NAME, why }
}

pub(super) fn unusable(path: &Path, what: &str, error: io::Error) -> OpenError {
    let why = format!("folder {} {what}: {error}", path.display());
    OpenError::Store(StoreError::new(NAME, StoreErrorKind::Unavailable).caused_by(why))
}

/// What the folder is; refuses one that is neither empty nor ours.
fn inspect(path: &Path) -> Result<State, OpenError> {
    match fs::read_to_string(path.join(MARKER)) {
        Ok(text) => state(path, &text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_foreign =
                |name: &String| ![owner::FILE, "onlyonce.tmp"].contains(&name.as_str());
            let mut names = names(path).map_err(|error| unusable(path, "cannot be read", error))?;
            names.retain(is_foreign);
            if names.iter().any(|name| is_ours(name)) {
                return Err(unmarked(path, &names));
            }
            match names.first() {
                None => Ok(State::New),
                Some(name) => Err(refused(format!(
                    "folder {} is not empty and not a store: it has {name:?}; name an empty folder, or one that does not exist yet",
                    path.display()
                ))),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(not_a_store(path)),
        Err(error) => Err(unusable(path, "cannot be read", error)),
    }
}

fn is_ours(name: &str) -> bool {
    OURS.contains(&name) || segment::id(name).is_some()
}

/// A store without its mark: which format it had, its other files tell.
fn unmarked(path: &Path, names: &[String]) -> OpenError {
    let has_manifest = names.iter().any(|name| name == manifest::FILE);
    let format = if has_manifest {
        FORMAT
    } else {
        FORMAT_WITHOUT_MANIFEST
    };
    refused(format!(
        "folder {} is a store whose file {MARKER:?} is missing: put it back, or write the line `{MARKER_TEXT}{format}` into it",
        path.display()
    ))
}

fn state(path: &Path, text: &str) -> Result<State, OpenError> {
    let Some(format) = text.trim_end().strip_prefix(MARKER_TEXT) else {
        return Err(not_a_store(path));
    };
    let (format, is_made) = match format.strip_suffix(BEING_MADE) {
        Some(format) => (format, false),
        None => (format, true),
    };
    match format.parse::<u32>() {
        Ok(FORMAT) if is_made => Ok(State::WithManifest),
        Ok(FORMAT) => Ok(State::New),
        Ok(FORMAT_WITHOUT_MANIFEST) => Ok(State::WithoutManifest),
        Ok(other) => Err(other_format(path, other, FORMAT)),
        Err(_) => Err(not_a_store(path)),
    }
}

/// What is in the mark of a store that needs no manifest.
pub(super) fn text_without_manifest() -> String {
    format!("{MARKER_TEXT}{FORMAT_WITHOUT_MANIFEST}")
}

/// A folder of another version.
pub(super) fn other_format(path: &Path, format: u32, ours: u32) -> OpenError {
    refused(format!(
        "{} has format {format}, this build reads format {ours}: use the version that wrote it, or name a new folder",
        path.display()
    ))
}

fn not_a_store(path: &Path) -> OpenError {
    refused(format!(
        "folder {} is not a store: its file {MARKER:?} is somebody else's or damaged; name a new folder",
        path.display()
    ))
}

fn names(path: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(path)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// Makes the folder, and makes sure that it is there after a crash. Answers may hold secrets:
/// nobody else reads what is kept here.
fn make(path: &Path, sync: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let is_missing = |folder: &Path| matches!(folder.try_exists(), Ok(false));
    let above = |folder: &Path| match folder.parent() {
        Some(parent) if parent == Path::new("") => Path::new(".").to_owned(),
        Some(parent) => parent.to_owned(),
        None => folder.to_owned(),
    };
    // The folders that will get a new name in them.
    let mut changed = Vec::new();
    let mut at = path.to_owned();
    while is_missing(&at) {
        at = above(&at);
        changed.push(at.clone());
    }
    builder().recursive(true).create(path)?;
    changed.iter().try_for_each(|folder| sync(folder))
}

#[cfg(unix)]
fn builder() -> fs::DirBuilder {
    use std::os::unix::fs::DirBuilderExt as _;
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    builder
}

#[cfg(not(unix))]
fn builder() -> fs::DirBuilder {
    fs::DirBuilder::new()
}

//! The folder of a store: whose it is, which format it has, and that one process at a time uses
//! it. A folder that is not ours is left untouched.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use onlyonce_core::{StoreError, StoreErrorKind, Timestamp};

use super::{NAME, disk, frame};
use crate::open::OpenError;

/// How often a lock that somebody holds is tried again, and when.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
const MARKER: &str = "onlyonce";
const MARKER_TEXT: &str = "onlyonce file store, format ";
const OWNER: &str = "owner";

/// The folder, for as long as it is ours.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// Locked. The system unlocks it when this process ends, however it ends.
    _owner: File,
}

impl Folder {
    /// Takes the folder, which is made if there is none.
    pub(super) fn take(path: &Path, since: Timestamp) -> Result<Self, OpenError> {
        make(path).map_err(|error| unusable(path, "cannot be made", error))?;
        let is_new = is_new(path)?;
        let owner = own(path, since)?;
        if is_new {
            write_whole(
                &path.join(MARKER),
                format!("{MARKER_TEXT}{}\n", frame::VERSION).as_bytes(),
            )
            .map_err(|error| unusable(path, "cannot be written", error))?;
        }
        Ok(Self {
            path: path.to_owned(),
            _owner: owner,
        })
    }
}

/// Writes a file under its name all at once: it is there as a whole or not at all.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("tmp");
    let written = private(OpenOptions::new().write(true).create(true).truncate(true))
        .open(&unfinished)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
    if let Err(error) = written {
        drop(fs::remove_file(&unfinished));
        return Err(error);
    }
    fs::rename(&unfinished, path)?;
    disk::sync_folder(path.parent().unwrap_or(Path::new(".")))
}

/// What is wrong with a folder, and what to do.
pub(super) fn refused(why: String) -> OpenError {
    OpenError::Refused { store: NAME, why }
}

fn unusable(path: &Path, what: &str, error: io::Error) -> OpenError {
    let why = format!("folder {} {what}: {error}", path.display());
    OpenError::Store(StoreError::new(NAME, StoreErrorKind::Unavailable).caused_by(why))
}

/// Whether the folder is empty; refuses one that is neither empty nor ours.
fn is_new(path: &Path) -> Result<bool, OpenError> {
    match fs::read_to_string(path.join(MARKER)) {
        Ok(text) => check_format(path, &text).map(|()| false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_foreign = |name: &str| ![OWNER, "onlyonce.tmp"].contains(&name);
            let foreign = names(path)
                .map_err(|error| unusable(path, "cannot be read", error))?
                .into_iter()
                .find(|name| is_foreign(name));
            match foreign {
                None => Ok(true),
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

fn check_format(path: &Path, text: &str) -> Result<(), OpenError> {
    let format = text
        .trim_end()
        .strip_prefix(MARKER_TEXT)
        .and_then(|format| format.parse::<u32>().ok());
    match format {
        Some(frame::VERSION) => Ok(()),
        Some(other) => Err(other_format(path, other)),
        None => Err(not_a_store(path)),
    }
}

/// A folder of another version.
pub(super) fn other_format(path: &Path, format: u32) -> OpenError {
    refused(format!(
        "folder {} has format {format}, this build reads format {}: use the version that wrote it, or name a new folder",
        path.display(),
        frame::VERSION
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

/// Locks the file. A child that this process is just starting holds its locks for a moment more,
/// until it becomes another program.
fn lock_soon(owner: &File) -> Result<(), TryLockError> {
    for _ in 0..LOCK_TRIES {
        match owner.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            done @ (Ok(()) | Err(TryLockError::Error(_))) => return done,
        }
    }
    owner.try_lock()
}

/// Locks the folder for this process, and says so in it.
fn own(path: &Path, since: Timestamp) -> Result<File, OpenError> {
    let mut owner = private(OpenOptions::new().read(true).write(true).create(true))
        .open(path.join(OWNER))
        .map_err(|error| unusable(path, "cannot be written", error))?;
    match lock_soon(&owner) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut whose = String::new();
            drop(owner.read_to_string(&mut whose));
            let whose = match whose.trim_end() {
                "" => "another process",
                whose => whose,
            };
            return Err(refused(format!(
                "folder {} is in use by {whose}; one process at a time can use it: stop that one, name another folder, or use a store for several processes",
                path.display()
            )));
        }
        Err(TryLockError::Error(error)) => {
            return Err(unusable(path, "cannot be locked", error));
        }
    }
    let told = format!(
        "process {} on {} since {since}\n",
        std::process::id(),
        host()
    );
    let said = owner
        .set_len(0)
        .and_then(|()| owner.write_all(told.as_bytes()));
    match said {
        // A full disk is no reason not to read what is there.
        Err(error) if !disk::is_full(&error) => Err(unusable(path, "cannot be written", error)),
        Ok(()) | Err(_) => Ok(owner),
    }
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    "this host".to_owned()
}

/// Answers may hold secrets: nobody else reads what is kept here.
#[cfg(unix)]
fn make(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

#[cfg(not(unix))]
fn make(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// The same for a file.
#[cfg(unix)]
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600)
}

#[cfg(not(unix))]
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

//! That one process at a time uses a folder, also if somebody deletes what is in it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use onlyonce_core::Timestamp;

use super::disk;
use super::folder::{private, refused, unusable};
use onlyonce_storekit::OpenError;

pub(super) const FILE: &str = "owner";
/// How often a lock that somebody holds is tried again, and when.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The folder itself, which stays locked whatever is deleted in it, and the file that says whose it
/// is, which is what earlier versions lock.
pub(super) struct Locks {
    /// Nothing where a folder cannot be locked.
    _folder: Option<File>,
    _owner: File,
}

impl Locks {
    /// Locks the folder for this process, and says so in it.
    pub(super) fn take(path: &Path, since: Timestamp) -> Result<Self, OpenError> {
        // A folder that cannot be locked, as on some network file systems, has its file for that.
        let folder = match File::open(path).map(|folder| (lock_soon(&folder), folder)) {
            Ok((Ok(()), folder)) => Some(folder),
            Ok((Err(TryLockError::WouldBlock), _)) => return Err(in_use(path)),
            Ok((Err(TryLockError::Error(_)), _)) | Err(_) => None,
        };
        let mut owner = private(OpenOptions::new().read(true).write(true).create(true))
            .open(path.join(FILE))
            .map_err(|error| unusable(path, "cannot be written", error))?;
        match lock_soon(&owner) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(path)),
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
            Ok(()) | Err(_) => Ok(Self {
                _folder: folder,
                _owner: owner,
            }),
        }
    }
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

fn in_use(path: &Path) -> OpenError {
    let whose = fs::read_to_string(path.join(FILE)).unwrap_or_default();
    let whose = match whose.trim_end() {
        "" => "another process",
        whose => whose,
    };
    refused(format!(
        "folder {} is in use by {whose}; one process at a time can use it: stop that one, name another folder, or use a store for several processes",
        path.display()
    ))
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

//! Where the database is. A file that was deleted or replaced is still written by who has it open,
//! and found by nobody else: what is stored there is not acknowledged.

use std::io;
use std::path::{Path, PathBuf};

use onlyonce_storekit::private;

/// The file of a database, as it was when it was opened.
pub(super) struct Place {
    path: PathBuf,
    /// The write-ahead log, which is there as long as anybody has the database open.
    log: PathBuf,
    identity: Identity,
}

impl Place {
    pub(super) fn of(path: PathBuf) -> io::Result<Self> {
        Ok(Self {
            identity: identity(&path)?,
            log: private::beside(&path, "-wal"),
            path,
        })
    }

    /// Checks that the file of that name is still this one.
    pub(super) fn check_file(&self) -> Result<(), sqlx::Error> {
        match identity(&self.path) {
            Ok(identity) if identity == self.identity => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            Ok(_) | Err(_) => Err(gone(&self.path)),
        }
    }

    /// The same, and that its log exists: call it while a connection is open that has read or
    /// written.
    pub(super) fn check(&self) -> Result<(), sqlx::Error> {
        self.check_file()?;
        if self.log.try_exists()? {
            Ok(())
        } else {
            Err(gone(&self.log))
        }
    }
}

fn gone(path: &Path) -> sqlx::Error {
    sqlx::Error::Io(io::Error::other(format!(
        "file {} was deleted, moved or replaced while it was in use: put it back, or restart this process",
        path.display()
    )))
}

/// Which file it is, whatever it is called.
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(path: &Path) -> io::Result<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Elsewhere what is open cannot be deleted or replaced.
#[cfg(not(unix))]
fn identity(path: &Path) -> io::Result<Identity> {
    std::fs::metadata(path).map(|_| (0, 0))
}

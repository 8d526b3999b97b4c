//! Files that nobody but their owner may read or write, from their first byte on: answers and
//! secrets are in them. Files that were made with more permissions are tightened, and that is said.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// What SQLite keeps beside a database, with the database's own permissions once it makes them.
const BESIDE_A_DATABASE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Makes sure that the file exists and that nobody but its owner may read or write it: a new one is
/// created empty with mode 0600, an existing one loses the permissions of everybody else, with a
/// warning. Call it before the file is opened. What is not a regular file is left alone.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("audit.jsonl");
/// onlyonce_storekit::private::file(&path).unwrap();
/// let audit = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
/// # drop(audit);
/// ```
pub fn file(path: &Path) -> io::Result<()> {
    make(path)?;
    tighten(path)
}

/// The same for a SQLite database and what SQLite keeps beside it (`-wal`, `-shm`, `-journal`): call
/// it before the database is opened. SQLite gives the files that it adds later the permissions of
/// the database.
pub fn database(path: &Path) -> io::Result<()> {
    make(path)?;
    tighten_database(path)
}

/// Creates the file for its owner only, unless it exists.
pub fn make(path: &Path) -> io::Result<()> {
    match create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Tightens a database and what is beside it, as far as they exist.
pub fn tighten_database(path: &Path) -> io::Result<()> {
    tighten(path)?;
    for suffix in BESIDE_A_DATABASE {
        tighten(&beside(path, suffix))?;
    }
    Ok(())
}

/// The path of what SQLite keeps beside a database.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(suffix);
    PathBuf::from(beside)
}

/// Creates an empty file without ever opening it: closing any handle of a database would drop the
/// locks that this process has on it elsewhere.
#[cfg(target_os = "linux")]
fn create(path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    match mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::EXIST) => Err(io::ErrorKind::AlreadyExists.into()),
        // Some file systems make files only by opening them.
        Err(_) => create_by_opening(path),
    }
}

#[cfg(not(target_os = "linux"))]
fn create(path: &Path) -> io::Result<()> {
    create_by_opening(path)
}

fn create_by_opening(path: &Path) -> io::Result<()> {
    for_owner_only(OpenOptions::new().write(true).create_new(true))
        .open(path)
        .map(drop)
}

/// Files that are created with these options are for their owner only.
#[cfg(unix)]
pub fn for_owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600)
}

#[cfg(not(unix))]
pub fn for_owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Takes the permissions of everybody but the owner, by its name: see [`create`].
#[cfg(unix)]
fn tighten(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    let mode = metadata.permissions().mode() & 0o7777;
    if !metadata.is_file() || mode & 0o077 == 0 {
        return Ok(());
    }
    let tightened = fs::set_permissions(path, fs::Permissions::from_mode(mode & !0o077));
    let (file, mode) = (path.display(), format!("{mode:04o}"));
    match tightened {
        Ok(()) => tracing::warn!(
            target: "onlyonce", %file, mode,
            "other users could read or write this file; now only its owner can"
        ),
        Err(error) => tracing::warn!(
            target: "onlyonce", %file, mode, %error,
            "other users can read or write this file, and that could not be changed: chmod it to 0600"
        ),
    }
    Ok(())
}

/// Elsewhere permissions are not in a mode; that the file is private is for its folder to see to.
#[cfg(not(unix))]
fn tighten(_: &Path) -> io::Result<()> {
    Ok(())
}

//! Files that are their owner's alone, and which file is which.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Which file it is, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    #[cfg(unix)]
    device: u64,
    #[cfg(unix)]
    inode: u64,
}

#[cfg(unix)]
impl FileId {
    pub(super) fn of(file: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;

        let found = fs::metadata(file)?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

#[cfg(not(unix))]
impl FileId {
    /// Here an open file can be neither deleted nor replaced.
    pub(super) fn of(file: &Path) -> io::Result<Self> {
        fs::metadata(file).map(|_| Self {})
    }
}

/// Operations and their keys are readable by their owner only.
#[cfg(unix)]
pub(super) fn make_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;

    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

#[cfg(not(unix))]
pub(super) fn make_private(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Opens a file for writing; a new one is readable by its owner only, from its first byte.
pub(super) fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    owner_only(&mut options);
    options.open(path)
}

/// Makes a file that its owner alone can read. One that is there is not opened: closing it would take from
/// this process what SQLite has locked in it.
pub(super) fn new_private_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    owner_only(&mut options);
    match options.open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(unix)]
fn owner_only(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt as _;

    options.mode(0o600);
}

#[cfg(not(unix))]
fn owner_only(_options: &mut OpenOptions) {}

/// Takes from others what they may do with a file that an earlier version made.
#[cfg(unix)]
pub(super) fn tighten(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if found.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    tracing::warn!(
        file = %path.display(),
        "a file of the offline queue could be used by others: now only by its owner"
    );
    Ok(())
}

#[cfg(not(unix))]
pub(super) fn tighten(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
pub(super) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()?;
    let above = path.canonicalize()?;
    above
        .parent()
        .map_or(Ok(()), |above| File::open(above)?.sync_all())
}

#[cfg(not(unix))]
pub(super) fn sync(_path: &Path) -> io::Result<()> {
    Ok(())
}

//! What is asked of the disk, in one place: tests put a flawed one in its stead.

use std::fs::File;
use std::io;
use std::path::Path;

/// The calls that make something durable, and may fail.
pub(super) trait Disk: Send + Sync {
    /// Writes all of `bytes` at this offset.
    fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Returns once what was written is durable.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Sets room aside behind the end of a file, without making it longer.
    fn reserve(&self, file: &File, at: u64, bytes: u64) -> io::Result<()>;
}

/// The machine's own.
pub(super) struct Machine;

impl Disk for Machine {
    fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        write_at(file, bytes, at)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn reserve(&self, file: &File, at: u64, bytes: u64) -> io::Result<()> {
        reserve_at(file, at, bytes)
    }
}

/// Whether a disk said that it has no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// What is said of a file that is not where it was.
pub(super) fn gone(path: &Path) -> io::Error {
    io::Error::other(format!(
        "file {} was deleted, moved or replaced while it was in use",
        path.display()
    ))
}

/// Which file or folder it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

/// What is under this name.
#[cfg(unix)]
pub(super) fn identity(path: &Path) -> io::Result<Identity> {
    std::fs::metadata(path).map(|metadata| identity_of(&metadata))
}

/// Whether what is under this name is the file that is open.
#[cfg(unix)]
pub(super) fn is_same(path: &Path, file: &File) -> io::Result<bool> {
    let open = identity_of(&file.metadata()?);
    match identity(path) {
        Ok(found) => Ok(found == open),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn identity_of(metadata: &std::fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    Identity(metadata.dev(), metadata.ino())
}

/// Elsewhere what is open cannot be deleted or replaced.
#[cfg(not(unix))]
pub(super) fn identity(path: &Path) -> io::Result<Identity> {
    std::fs::metadata(path).map(|_| Identity(0, 0))
}

#[cfg(not(unix))]
pub(super) fn is_same(path: &Path, _: &File) -> io::Result<bool> {
    path.try_exists()
}

/// Fills `bytes` from this offset, as far as the file goes; says how far that was.
pub(super) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match read_some(file, &mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(unix)]
fn read_some(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, at)
}

#[cfg(unix)]
pub(super) fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(unix)]
fn reserve_at(file: &File, at: u64, bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(
        file,
        rustix::fs::FallocateFlags::KEEP_SIZE,
        at,
        bytes,
    )?)
}

#[cfg(windows)]
fn read_some(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, at)
}

#[cfg(windows)]
pub(super) fn write_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, at)?;
        bytes = &bytes[written..];
        at += written as u64;
    }
    Ok(())
}

#[cfg(windows)]
fn reserve_at(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

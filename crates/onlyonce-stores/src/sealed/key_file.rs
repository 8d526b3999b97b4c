//! The file that holds a key ring: made whole or not at all, and read by its owner alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use onlyonce_core::Entropy;
use zeroize::Zeroizing;

use super::ring::KeyRingError;

const FILE_BYTES_MAX: usize = 64 * 1024;

pub(super) fn read(path: &Path) -> Result<Zeroizing<String>, KeyRingError> {
    let failed = |source| KeyRingError::File {
        path: path.to_owned(),
        action: "read",
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let mode = mode(&file).map_err(failed)?;
    if mode & 0o077 != 0 {
        let path = path.to_owned();
        return Err(KeyRingError::Exposed { path, mode });
    }
    // All the room at once: a string that grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(FILE_BYTES_MAX));
    let read = file
        .take(FILE_BYTES_MAX as u64)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if read == FILE_BYTES_MAX {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(text)
}

/// Makes the file, unless someone else was first. It appears with all its text, and stays even if
/// the machine stops right after.
pub(super) fn create(path: &Path, text: &str, entropy: &dyn Entropy) -> Result<(), KeyRingError> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let draft = draft_beside(path, entropy);
    let made = write_draft(&draft, text).and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    // Whatever came of it, the draft holds a key and must not stay behind.
    let removed = match fs::remove_file(&draft) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    made.and(removed)
        .and_then(|()| sync_folder(folder))
        .map_err(|source| KeyRingError::File {
            path: path.to_owned(),
            action: "created",
            source,
        })
}

fn draft_beside(path: &Path, entropy: &dyn Entropy) -> PathBuf {
    let mut random = [0; 8];
    entropy.fill(&mut random);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}", u64::from_le_bytes(random)));
    path.with_file_name(name)
}

fn write_draft(draft: &Path, text: &str) -> io::Result<()> {
    let mut file = for_owner_only().write(true).create_new(true).open(draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(unix)]
fn for_owner_only() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

#[cfg(not(unix))]
fn for_owner_only() -> OpenOptions {
    OpenOptions::new()
}

/// The permissions of an open file: looked at after it was opened, so that it is this file's.
#[cfg(unix)]
fn mode(file: &File) -> io::Result<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(file.metadata()?.permissions().mode() & 0o7777)
}

/// Elsewhere permissions are not in a mode; that the file is private is for its folder to see to.
#[cfg(not(unix))]
fn mode(_: &File) -> io::Result<u32> {
    Ok(0o600)
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

//! A Unix socket that only its owner can use, from the moment that it has its name.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use onlyonce_core::{Entropy as _, OsEntropy};
use tokio::net::{UnixListener, UnixStream};

/// A socket file, removed when this is dropped.
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // One that stays behind is replaced by the next daemon.
        drop(fs::remove_file(&self.0));
    }
}

/// Listens at `path`, in place of a socket that nobody listens on any more. It is made in a folder that
/// nobody else can enter, and gets its name when its permissions are set.
pub(super) async fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    is_free(path).await?;
    let above = path.parent().filter(|it| !it.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    let folder = above.join(format!(".onlyonce-{:08x}", random()));
    DirBuilder::new().mode(0o700).create(&folder)?;
    let listener = bind(&folder.join("s"), path);
    // It is empty again, or of no use.
    drop(fs::remove_file(folder.join("s")));
    drop(fs::remove_dir(&folder));
    Ok((listener?, SocketFile(path.to_owned())))
}

fn bind(first: &Path, path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(first)?;
    fs::set_permissions(first, Permissions::from_mode(0o600))?;
    fs::rename(first, path)?;
    Ok(listener)
}

/// Fails if something else is at `path`, or a program listens there.
async fn is_free(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        let why = "something that is no socket is there";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    match UnixStream::connect(path).await {
        Ok(_) => {
            let why = "another program listens there";
            Err(io::Error::new(io::ErrorKind::AddrInUse, why))
        }
        Err(_) => Ok(()),
    }
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    OsEntropy::new().fill(&mut bytes);
    u32::from_le_bytes(bytes)
}

//! From a `file:` URL to a store: which folder, and the key that seals what is in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onlyonce_core::{OsEntropy, Store};
use onlyonce_file::FileStore;
use onlyonce_storekit::{OpenError, Options};

use crate::sealed::{KeyRing, Sealed};

const NAME: &str = "file";

/// Opens the store of a `file:` URL: what follows is the path of its folder, as it is.
///
/// Options: `bytes_max`, a number of bytes from which on new keys are refused; `key_file`, the ring
/// of keys that seal what is stored, made with a new key if the store is new (default: the folder's
/// path and `.key`), or the same as `sealed=KEYFILE`; `sealed=false` to keep answers readable on the disk; `mode=rw` to open only a
/// store that exists.
pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    let mut options = Options::of(url)?;
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let path = path.strip_prefix("file:").unwrap_or(path);
    // file:///var/lib/shop is the same as file:/var/lib/shop.
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() {
        return Err(OpenError::Url {
            why: "it names no folder".to_owned(),
        });
    }
    let mut store = FileStore::builder(path);
    if let Some(bytes_max) = options.parse("bytes_max", "a number of bytes")? {
        store = store.bytes_max(bytes_max);
    }
    let sealed = options.take("sealed");
    let is_sealed = sealed.as_deref() != Some("false");
    let key_file = sealed.filter(|it| it != "true" && it != "false");
    let key_file = options.take("key_file").or(key_file).map(PathBuf::from);
    let mode = options.take("mode");
    options.finish()?;
    check_mode(mode.as_deref(), Path::new(path))?;
    if !is_sealed {
        return Ok(Arc::new(store.open().await?));
    }
    let key_file = key_file.unwrap_or_else(|| beside(path));
    warn_of_a_loss(Path::new(path), &key_file);
    // A store that has been used has its key somewhere: a new one would not open its answers. The
    // key comes first, so that a crash in between leaves no store without one.
    let ring = if is_unused(Path::new(path)) {
        KeyRing::from_file_or_new(&key_file, &OsEntropy::new())
    } else {
        KeyRing::from_file(&key_file)
    };
    let ring = ring.map_err(|error| OpenError::refused(NAME, error.to_string()))?;
    let store = Arc::new(store.open().await?);
    Ok(Arc::new(Sealed::open(store, ring).await?))
}

fn check_mode(mode: Option<&str>, folder: &Path) -> Result<(), OpenError> {
    match mode {
        None => Ok(()),
        Some("rw") if !is_unused(folder) => Ok(()),
        Some("rw") => Err(OpenError::refused(
            NAME,
            format!(
                "there is no store in folder {}: is the path right, and the disk mounted?",
                folder.display()
            ),
        )),
        Some(other) => Err(OpenError::option(
            "mode",
            &format!("`{other}` is not rw, the only one that can be named"),
        )),
    }
}

/// A key is made for a store: where the store is empty, it may have been lost.
fn warn_of_a_loss(folder: &Path, key_file: &Path) {
    if is_unused(folder) && key_file.exists() {
        tracing::warn!(
            target: "onlyonce", folder = %folder.display(), key_file = %key_file.display(),
            "the store's key exists, but its folder is empty: if it has been used, its records are gone, and keys that were used run again"
        );
    }
}

fn is_unused(folder: &Path) -> bool {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Where the key of a folder is unless told otherwise: beside it, not in it, so that a copy of the
/// folder alone shows nothing.
fn beside(path: &str) -> PathBuf {
    PathBuf::from(format!("{}.key", path.trim_end_matches('/')))
}

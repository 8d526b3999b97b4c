//! Which SQLite databases a process has opened, so that a child of its fork does not open one again that its parent
//! still had open: SQLite notes its locks in memory, once per file, and the child finds its parent's there. It would
//! read and write under locks that nobody gave it, or wait for ever for one that nobody in it holds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use thiserror::Error;

#[cfg(test)]
mod tests;

/// The files of all descriptors of this process, also of those that it has from its parent.
const DESCRIPTORS: &str = "/proc/self/fd";
/// The database in the folder of a queue.
const QUEUE: &str = "queue.db";

/// Which process has opened each file.
static OPENED: Mutex<BTreeMap<PathBuf, u32>> = Mutex::new(BTreeMap::new());

/// A database was open in a parent when that forked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{} was open in process {opened_in} when that forked, and SQLite cannot open it again in the child: open it after the fork only",
    path.display()
)]
pub struct OpenInParent {
    path: PathBuf,
    opened_in: u32,
}

/// Notes that this process opens the database of a queue in a folder.
pub(crate) fn opens_queue(folder: &Path) -> Result<(), OpenInParent> {
    opens(&folder.join(QUEUE))
}

/// The same for the store at a URL, if that is SQLite's.
pub(crate) fn opens_store(url: &str) -> Result<(), OpenInParent> {
    let Some(address) = url.strip_prefix("sqlite:") else {
        return Ok(());
    };
    let path = address.split('?').next().unwrap_or_default();
    opens(Path::new(path.trim_start_matches("//")))
}

fn opens(path: &Path) -> Result<(), OpenInParent> {
    let path = canonical(path);
    let mut opened = lock();
    match opened.get(&path) {
        Some(opened_in) if *opened_in != process::id() && is_open(&path) => {
            let opened_in = *opened_in;
            Err(OpenInParent { path, opened_in })
        }
        Some(_) | None => {
            opened.insert(path, process::id());
            Ok(())
        }
    }
}

/// Whether this process has the file open, by whomever. Where that cannot be seen, it may be.
fn is_open(path: &Path) -> bool {
    let Ok(mut descriptors) = fs::read_dir(DESCRIPTORS) else {
        return true;
    };
    descriptors.any(|descriptor| {
        let file = descriptor.and_then(|it| fs::read_link(it.path()));
        file.is_ok_and(|file| file == path)
    })
}

fn lock() -> MutexGuard<'static, BTreeMap<PathBuf, u32>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One name for one file, also for one that is yet to be made.
fn canonical(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    let Ok(path) = std::path::absolute(path) else {
        return path.to_owned();
    };
    match (path.parent().map(canonical), path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        (Some(_), None) | (None, _) => path,
    }
}

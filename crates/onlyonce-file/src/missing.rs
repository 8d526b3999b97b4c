//! What a folder must have and has not: refused by name, with what can be done. A store that went
//! on without would run keys again that were used.

use std::fs;
use std::io;
use std::path::Path;

use super::agreed::{self, Agreed};
use super::folder::{self, Folder, State, refused, unusable};
use super::frame::Header;
use super::manifest::{self, Contents, Manifest};
use super::segment;
use onlyonce_storekit::OpenError;

/// How many files are named.
const NAMED_MAX: usize = 8;

/// What the folder's manifest says, if it has one; refuses a folder without what it must have.
pub(super) fn check(folder: &Folder) -> Result<Option<Contents>, OpenError> {
    let path = &folder.path;
    let ids = ids(path).map_err(|error| unusable(path, "cannot be read", error))?;
    match folder.state {
        State::New => {
            clear(path, &ids).map_err(|error| unusable(path, "cannot be written", error))?;
            Ok(None)
        }
        State::WithoutManifest => {
            if ids.is_empty() && path.join(agreed::FILE).exists() {
                return Err(missing(path, &["*.log (its records)".to_owned()]));
            }
            refuse_without(path, &segments(&ids, ids.first().copied(), None))?;
            Ok(None)
        }
        State::WithManifest => {
            let contents = read_manifest(path)?;
            let mut without = segments(&ids, Some(contents.first), Some(contents.last));
            if contents.agreed > 0 && !path.join(agreed::FILE).exists() {
                without.push(format!("{} (what its keys are found by)", agreed::FILE));
            }
            refuse_without(path, &without)?;
            Ok(Some(contents))
        }
    }
}

/// Refuses an agreement that is older than the manifest.
pub(super) fn check_agreed(folder: &Path, agreed: &Agreed, least: usize) -> Result<(), OpenError> {
    if agreed.len() >= least {
        return Ok(());
    }
    Err(refused(format!(
        "file {} is an older copy: it has {} of the {least} values that were agreed on. Put the newest one back, or restore the whole folder from one copy",
        folder.join(agreed::FILE).display(),
        agreed.len(),
    )))
}

/// Refuses a segment that is not the one that the manifest knows, or does not reach as far: records that
/// were stored would be missing.
pub(super) fn check_written(
    path: &Path,
    header: &Header,
    end: u64,
    named: &Contents,
) -> Result<(), OpenError> {
    let Some(written) = named.written.filter(|_| header.id == named.last) else {
        return Ok(());
    };
    let what = if header.salt != written.salt {
        "is of another store".to_owned()
    } else if end < written.end {
        format!(
            "was cut off or is an older copy: it ends at byte {end}, and was written up to byte {}",
            written.end
        )
    } else {
        return Ok(());
    };
    Err(refused(format!(
        "file {} {what}. Put the newest one back, or restore the whole folder from one copy. If that cannot be done, write the line `{}` into {}: it is opened without what is missing, and a retry of a key that was in there runs again",
        path.display(),
        folder::text_without_manifest(),
        path.with_file_name(folder::MARKER).display(),
    )))
}

/// The numbers of the folder's segments, in their order.
pub(super) fn ids(folder: &Path) -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(folder)? {
        ids.extend(entry?.file_name().to_str().and_then(segment::id));
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Removes what is left of a store that was never made to its end: nothing was stored in it.
fn clear(folder: &Path, ids: &[u32]) -> io::Result<()> {
    for id in ids {
        fs::remove_file(segment::path(folder, *id))?;
    }
    match fs::remove_file(folder.join(manifest::FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn read_manifest(folder: &Path) -> Result<Contents, OpenError> {
    let what = match Manifest::read(folder) {
        Ok(Some(contents)) => return Ok(contents),
        Ok(None) => "is missing",
        Err(error) if error.kind() == io::ErrorKind::InvalidData => "is damaged",
        Err(error) => return Err(unusable(folder, "cannot be read", error)),
    };
    Err(refused(format!(
        "file {} {what}, which names the files that the store must have: put it back, or restore the whole folder from one copy. If no other file can be missing, write the line `{}` into {}, and it is made anew",
        folder.join(manifest::FILE).display(),
        folder::text_without_manifest(),
        folder.join(folder::MARKER).display(),
    )))
}

/// Which segments are missing from `first` to `last`, and up to the newest there is.
fn segments(ids: &[u32], first: Option<u32>, last: Option<u32>) -> Vec<String> {
    let Some((first, last)) = first.zip(last.max(ids.last().copied())) else {
        return Vec::new();
    };
    (first..=last)
        .filter(|id| ids.binary_search(id).is_err())
        .map(|id| segment::path(Path::new(""), id).display().to_string())
        .collect()
}

fn refuse_without(folder: &Path, without: &[String]) -> Result<(), OpenError> {
    if without.is_empty() {
        return Ok(());
    }
    Err(missing(folder, without))
}

fn missing(folder: &Path, without: &[String]) -> OpenError {
    let mut named = without[..without.len().min(NAMED_MAX)].join(", ");
    if without.len() > NAMED_MAX {
        named = format!("{named} and {} more", without.len() - NAMED_MAX);
    }
    let verb = if without.len() == 1 { "is" } else { "are" };
    refused(format!(
        "in folder {} {named} {verb} missing: put back what was taken out, or restore the whole folder from one copy. If that cannot be done, name a new folder: it is empty, and a retry of a key that was used runs again",
        folder.display()
    ))
}

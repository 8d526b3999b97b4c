//! Which files a folder must have, so that one that is missing is noticed; how far the newest was
//! written, so that an older copy of it is; and the moment at which the store was last used. Written whole, and in an order that a crash at any point leaves a
//! folder that opens: what is added exists before the manifest names it, and what goes is no longer
//! named before it is deleted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::folder::{WriteError, write_whole};
use super::lock;
use super::segment::Segment;
use super::tally::millis;
use onlyonce_storekit::moment::{Boot, Moment};

#[cfg(test)]
mod tests;

pub(super) const FILE: &str = "manifest";
const TITLE: &str = "onlyonce manifest 1";
const WRITTEN: &str = "written ";

/// What a manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    /// The oldest segment that counts: older ones were on their way out.
    pub(super) first: u32,
    /// The newest segment that must exist. A newer one may: it was just being begun.
    pub(super) last: u32,
    /// How far that one was durable when the manifest was written. Nothing in manifests that were
    /// written before this was kept.
    pub(super) written: Option<Written>,
    /// How many values were agreed on, at least.
    pub(super) agreed: usize,
    /// When the store was last used.
    pub(super) moment: Moment,
}

/// How far a segment was durable, at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// Tells it from a segment of the same number in another store.
    pub(super) salt: u32,
    pub(super) end: u64,
}

impl Written {
    pub(super) fn of(segment: &Segment) -> Self {
        Self {
            salt: segment.header.salt,
            end: segment.durable(),
        }
    }
}

/// The manifest of an open store.
pub(super) struct Manifest {
    path: PathBuf,
    contents: Mutex<Contents>,
}

impl Manifest {
    /// What was last written into the folder's manifest; nothing if there is none, an error of
    /// kind [`io::ErrorKind::InvalidData`] if it is damaged.
    pub(super) fn read(folder: &Path) -> io::Result<Option<Contents>> {
        match fs::read_to_string(folder.join(FILE)) {
            Ok(text) => match parse(&text) {
                Some(contents) => Ok(Some(contents)),
                None => Err(io::ErrorKind::InvalidData.into()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The folder's manifest, not written yet.
    pub(super) fn new(folder: &Path, contents: Contents) -> Self {
        Self {
            path: folder.join(FILE),
            contents: Mutex::new(contents),
        }
    }

    pub(super) fn get(&self) -> Contents {
        lock(&self.contents).clone()
    }

    /// Changes it, durably. After an error it says here what it said before; whether it does on
    /// disk too, the error tells.
    pub(super) fn change(&self, change: impl FnOnce(&mut Contents)) -> Result<(), WriteError> {
        let mut contents = lock(&self.contents);
        let mut changed = contents.clone();
        change(&mut changed);
        write_whole(&self.path, text(&changed).as_bytes())?;
        *contents = changed;
        Ok(())
    }
}

fn text(contents: &Contents) -> String {
    let Contents {
        first,
        last,
        written,
        agreed,
        moment,
    } = contents;
    let written = written.map_or(String::new(), |Written { salt, end }| {
        format!("{WRITTEN}{salt} {end}\n")
    });
    let boot = match &moment.boot {
        Some(boot) => format!("{} {}", boot.id, millis(boot.since)),
        None => "- 0".to_owned(),
    };
    let (wall, store) = (millis(moment.wall), millis(moment.store));
    let text = format!(
        "{TITLE}\nsegments {first} {last}\n{written}agreed {agreed}\nboot {boot}\nwall {wall}\nstore {store}\n"
    );
    let sum = crc32fast::hash(text.as_bytes());
    format!("{text}{sum:08x}\n")
}

fn parse(text: &str) -> Option<Contents> {
    let (lines, sum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
    let summed = &text[..=lines.len()];
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(summed.as_bytes()) {
        return None;
    }
    let mut lines = lines.lines();
    if lines.next()? != TITLE {
        return None;
    }
    let (first, last) = lines.next()?.strip_prefix("segments ")?.split_once(' ')?;
    let mut lines = lines.peekable();
    let written = lines.next_if(|line| line.starts_with(WRITTEN));
    let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let agreed = field("agreed")?;
    let (id, since) = field("boot")?.split_once(' ')?;
    let (wall, store) = (field("wall")?, field("store")?);
    let moment = |millis: &str| Some(Duration::from_millis(millis.parse().ok()?));
    let boot = Boot {
        id: id.to_owned(),
        since: moment(since)?,
    };
    Some(Contents {
        first: first.parse().ok()?,
        last: last.parse().ok()?,
        written: match written {
            Some(line) => Some(parse_written(line)?),
            None => None,
        },
        agreed: agreed.parse().ok()?,
        moment: Moment {
            boot: Some(boot).filter(|boot| boot.id != "-"),
            wall: moment(wall)?,
            store: moment(store)?,
        },
    })
}

fn parse_written(line: &str) -> Option<Written> {
    let (salt, end) = line.strip_prefix(WRITTEN)?.split_once(' ')?;
    Some(Written {
        salt: salt.parse().ok()?,
        end: end.parse().ok()?,
    })
}

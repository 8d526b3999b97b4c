//! A small disk of its own for a store, in memory, which can be filled to the last byte.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process;

use tempfile::TempDir;

use crate::failure::Failure;
use crate::system::{run, runs};

const PREFIX: &str = "onlyonce-chaos-disk-";
const PURPOSE: &str = "mount a small disk in memory, for the fault `disk-full`";
static CHUNK: [u8; 64 * 1024] = [0; 64 * 1024];

/// A disk. It ends with this value.
pub(crate) struct Disk {
    folder: TempDir,
    is_mounted: bool,
}

impl Disk {
    pub(crate) fn mount(bytes: u64) -> Result<Self, Failure> {
        let mut disk = Self::folder()?;
        let path = disk.path().display().to_string();
        let size = format!("size={bytes},mode=700");
        let words = ["mount", "-t", "tmpfs", "-o", &size, "onlyonce-chaos", &path];
        run(&words, PURPOSE)?;
        disk.is_mounted = true;
        Ok(disk)
    }

    /// A folder of the machine's own disk, which cannot be filled.
    pub(crate) fn folder() -> Result<Self, Failure> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", process::id()))
            .tempdir()
            .map_err(Failure::doing("make a temporary folder"))?;
        Ok(Self {
            folder,
            is_mounted: false,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn fill(&self) -> Result<(), Failure> {
        let path = self.filler();
        let cannot = || Failure::doing(format!("fill {}", path.display()));
        let mut file = File::create(&path).map_err(cannot())?;
        let mut chunk: &[u8] = &CHUNK;
        loop {
            match file.write(chunk) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    // To the last byte: half as much may still fit.
                    if chunk.len() == 1 {
                        return Ok(());
                    }
                    chunk = &chunk[..chunk.len() / 2];
                }
                Err(error) => return Err(cannot()(error)),
            }
        }
    }

    pub(crate) fn free(&self) -> Result<(), Failure> {
        fs::remove_file(self.filler()).map_err(Failure::doing("free the disk again"))
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted {
            // Nobody is there to be told if it fails.
            let _ = unmount(&self.path().display().to_string());
        }
    }
}

/// Removes the disks of runs that were killed.
pub(crate) fn sweep() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    for path in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
        let owner = path
            .split_once(PREFIX)
            .and_then(|(_, it)| it.split('-').next());
        if owner.is_some_and(|owner| !runs(owner)) {
            let _ = unmount(path);
            let _ = fs::remove_dir(path);
        }
    }
}

fn unmount(path: &str) -> Result<(), Failure> {
    run(&["umount", "--lazy", path], "unmount a disk").map(drop)
}

//! A third-party server from the npm registry, in the version that package-lock.json pins: installed
//! once, and for good.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const PACKAGE: &str = include_str!("package.json");
const LOCK: &str = include_str!("package-lock.json");

/// The folder with `node_modules`.
pub(crate) fn installed() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = all.join("mcp-servers");
        let is_this =
            fs::read_to_string(folder.join("package-lock.json")).is_ok_and(|it| it == LOCK);
        if !is_this {
            install(all, &folder);
        }
        folder
    })
}

/// Installs beside it, then puts it in place: half an install is never taken for one.
fn install(beside: &Path, folder: &Path) {
    let fresh = tempfile::tempdir_in(beside).unwrap();
    fs::write(fresh.path().join("package.json"), PACKAGE).unwrap();
    fs::write(fresh.path().join("package-lock.json"), LOCK).unwrap();
    let output = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(fresh.path())
        .output()
        .expect("npm is installed: apt-get install nodejs npm");
    assert!(
        output.status.success(),
        "npm ci failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let old = tempfile::tempdir_in(beside).unwrap();
    drop(fs::rename(folder, old.path().join("old")));
    fs::rename(fresh.path(), folder).unwrap();
}

pub(crate) fn filesystem() -> PathBuf {
    installed().join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js")
}

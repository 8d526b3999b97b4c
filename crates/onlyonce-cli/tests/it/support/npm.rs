//! Packages from the npm registry, in the versions that a package-lock.json pins: installed once, and
//! for good.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder called `name` with `node_modules`.
pub(crate) fn installed(name: &str, package: &str, lock: &str) -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = all.join(name);
    let is_this = fs::read_to_string(folder.join("package-lock.json")).is_ok_and(|it| it == lock);
    if !is_this {
        install(all, &folder, package, lock);
    }
    folder
}

/// Installs beside it, then puts it in place: half an install is never taken for one.
fn install(beside: &Path, folder: &Path, package: &str, lock: &str) {
    let fresh = tempfile::tempdir_in(beside).unwrap();
    fs::write(fresh.path().join("package.json"), package).unwrap();
    fs::write(fresh.path().join("package-lock.json"), lock).unwrap();
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

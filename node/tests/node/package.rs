//! The tarball of what cargo just built, in a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const PACKAGE: &str = include_str!("package.json");
const LOCK: &str = include_str!("package-lock.json");

/// The folder of the package.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command to its end; what it said is shown if it fails.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.env("NO_PROXY", "*").output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// A service behind the middleware, in this framework.
pub(crate) fn shop(framework: &str) -> Command {
    let mut node = Command::new("node");
    node.args(["shop.js", "--framework", framework])
        .current_dir(installed());
    node
}

/// A folder in which the package is installed, with the tests and what they import.
pub(crate) fn installed() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = dependencies();
        let staging = tempfile::tempdir().unwrap();
        let tarball = tarball(staging.path());
        let mut npm = Command::new("npm");
        // By the lock file: without it npm asks the registry about packages that are installed already.
        npm.args(["install", "--offline", "--no-save"])
            .args(["--ignore-scripts", "--no-audit", "--no-fund"])
            .arg(tarball);
        run(npm.current_dir(&folder));
        for file in fs::read_dir(here().join("tests")).unwrap().flatten() {
            if file.file_type().unwrap().is_file() {
                fs::copy(file.path(), folder.join(file.file_name())).unwrap();
            }
        }
        folder
    })
}

/// The pinned packages: installed once, and for good.
fn dependencies() -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = all.join("node-package");
    let noted = folder.join("installed.json");
    if fs::read_to_string(&noted).is_ok_and(|it| it == LOCK) {
        return folder;
    }
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("package.json"), PACKAGE).unwrap();
    fs::write(folder.join("package-lock.json"), LOCK).unwrap();
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    run(npm.current_dir(&folder));
    // Last, so that half an installation is never taken for one.
    fs::write(noted, LOCK).unwrap();
    folder
}

/// Packs what cargo built for these tests, as `cargo xtask package node` packs an optimised build.
fn tarball(staging: &Path) -> PathBuf {
    let tree = staging.join("tree");
    fs::create_dir_all(tree.join("lib")).unwrap();
    for name in ["package.json", "README.md"] {
        fs::copy(here().join(name), tree.join(name)).unwrap();
    }
    for file in fs::read_dir(here().join("lib")).unwrap().flatten() {
        fs::copy(file.path(), tree.join("lib").join(file.file_name())).unwrap();
    }
    let built = std::env::current_exe().unwrap();
    let built = built.with_file_name("libonlyonce_addon.so");
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg("-o");
    run(strip.arg(tree.join("lib/onlyonce.node")).arg(built));
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--pack-destination"])
        .arg(staging);
    let name = run(npm.current_dir(&tree));
    staging.join(name.trim())
}

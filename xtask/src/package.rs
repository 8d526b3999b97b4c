//! `cargo xtask package`: what is published to other registries than crates.io.
//!
//! The packages carry the native part, so that nobody who installs one needs a Rust toolchain.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::ValueEnum;

use crate::Failure;
use crate::cargo::{cargo, root, status};

/// What builds wheels, at the version that is known to work.
const MATURIN: &str = "maturin==1.16.0";
const FOLDER: &str = "target/packages";

/// Whose package.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Language {
    /// A wheel for CPython 3.9 or later
    Python,
    /// A tarball for npm
    Node,
}

/// Builds a package into target/packages: optimised, or as quickly as possible.
pub(crate) fn run(package: Language, dev: bool) -> Result<ExitCode, Failure> {
    let folder = root().join(FOLDER);
    fs::create_dir_all(&folder).map_err(|error| Failure::new(format!("{FOLDER}: {error}")))?;
    match package {
        Language::Python => wheel(&folder, dev)?,
        Language::Node => tarball(&folder, dev)?,
    }
    println!("written to {FOLDER}");
    Ok(ExitCode::SUCCESS)
}

fn wheel(folder: &Path, dev: bool) -> Result<(), Failure> {
    let profile = if dev { "dev" } else { "dist" };
    let mut maturin = Command::new(maturin()?);
    maturin
        .args(["build", "--locked", "--profile", profile, "--strip"])
        .args(["--manifest-path", "python/Cargo.toml", "--out"])
        .arg(folder)
        .current_dir(root());
    succeed(&mut maturin)
}

/// What npm installs: the JavaScript of `node/`, and the addon beside it.
fn tarball(folder: &Path, dev: bool) -> Result<(), Failure> {
    let profile = if dev { "dev" } else { "dist" };
    let mut build = cargo(&[
        "build",
        "--locked",
        "--profile",
        profile,
        "-p",
        "onlyonce-node",
    ]);
    succeed(&mut build)?;
    let tree = folder.join("node");
    drop(fs::remove_dir_all(&tree));
    let copied = || {
        fs::create_dir_all(tree.join("lib"))?;
        let node = root().join("node");
        for name in ["package.json", "README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            fs::copy(node.join(name), tree.join(name))?;
        }
        for file in fs::read_dir(node.join("lib"))? {
            let file = file?;
            fs::copy(file.path(), tree.join("lib").join(file.file_name()))?;
        }
        Ok(())
    };
    copied().map_err(|error: io::Error| Failure::new(format!("cannot copy node/: {error}")))?;
    let built = if dev { "debug" } else { profile };
    let addon = root()
        .join("target")
        .join(built)
        .join("libonlyonce_addon.so");
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg("-o");
    succeed(strip.arg(tree.join("lib/onlyonce.node")).arg(addon))?;
    let mut npm = Command::new("npm");
    npm.args(["pack", "--pack-destination"]).arg(folder);
    succeed(npm.current_dir(&tree))
}

/// The program, in a virtual environment of its own, which is made first if it is missing.
fn maturin() -> Result<PathBuf, Failure> {
    let folder = root().join("target/tools").join(MATURIN.replace("==", "-"));
    let program = folder.join("bin/maturin");
    if !program.exists() {
        let mut venv = Command::new("python3");
        succeed(venv.args(["-m", "venv"]).arg(&folder))?;
        let mut pip = Command::new(folder.join("bin/python"));
        succeed(pip.args(["-m", "pip", "install", "--quiet", MATURIN]))?;
    }
    Ok(program)
}

fn succeed(command: &mut Command) -> Result<(), Failure> {
    if status(command)?.success() {
        return Ok(());
    }
    let program = command.get_program().to_string_lossy().into_owned();
    Err(Failure::new(format!("{program} failed; see above")))
}

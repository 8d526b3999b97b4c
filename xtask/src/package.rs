//! `cargo xtask package`: what is published to other registries than crates.io.
//!
//! The packages carry the native part, so that nobody who installs one needs a Rust toolchain.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::ValueEnum;

use crate::Failure;
use crate::cargo::{built_in, cargo, root, status};
use crate::servers::selects;

/// What builds wheels, at the version that is known to work.
const MATURIN: &str = "maturin==1.16.0";
const FOLDER: &str = "target/packages";

/// Whose package.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// A wheel for CPython 3.9 or later
    Python,
    /// A tarball for npm
    Node,
}

/// How the native part is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speed {
    /// Optimised, as it is shipped.
    Shipped,
    /// As quickly as possible.
    Quick,
}

/// The packages that tests try out as their users get them, by what selects those tests.
const TRIED: [(&str, Language, &str); 2] = [
    ("onlyonce-python", Language::Python, "ONLYONCE_TEST_WHEEL"),
    ("onlyonce-node", Language::Node, "ONLYONCE_TEST_TARBALL"),
];

/// Builds the packages that the tests selected by these arguments of `cargo test` install, and gives the variables
/// that tell them where. The native part is quick to build; everything else is as it is shipped.
pub(crate) fn for_tests(extra: &[String]) -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let tried = TRIED.into_iter();
    let selected = tried.filter(|(tests, ..)| selects(extra, &[tests]));
    selected
        .map(|(_, language, variable)| Ok((variable, build(language, Speed::Quick)?)))
        .collect()
}

/// Builds a package into target/packages, and says where it is.
pub(crate) fn run(package: Language, speed: Speed) -> Result<ExitCode, Failure> {
    let built = build(package, speed)?;
    println!("written to {}", built.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds a package, and gives its file.
pub(crate) fn build(package: Language, speed: Speed) -> Result<PathBuf, Failure> {
    let folder = root().join(FOLDER);
    fs::create_dir_all(&folder).map_err(|error| Failure::new(format!("{FOLDER}: {error}")))?;
    let kind = match package {
        Language::Python => {
            wheel(&folder, speed)?;
            "whl"
        }
        Language::Node => {
            tarball(&folder, speed)?;
            "tgz"
        }
    };
    newest(&folder, kind).ok_or_else(|| Failure::new(format!("there is no .{kind} in {FOLDER}")))
}

/// The file of this kind that was written last.
fn newest(folder: &Path, kind: &str) -> Option<PathBuf> {
    let files = fs::read_dir(folder).ok()?.flatten();
    let packages = files.filter(|file| file.path().extension().is_some_and(|it| it == kind));
    let written = |file: &fs::DirEntry| file.metadata().and_then(|it| it.modified()).ok();
    packages.max_by_key(written).map(|file| file.path())
}

impl Speed {
    fn profile(self) -> &'static str {
        match self {
            Self::Shipped => "dist",
            Self::Quick => "dev",
        }
    }
}

fn wheel(folder: &Path, speed: Speed) -> Result<(), Failure> {
    let profile = speed.profile();
    let mut maturin = Command::new(maturin()?);
    maturin
        .args(["build", "--locked", "--profile", profile, "--strip"])
        .args(["--manifest-path", "python/Cargo.toml", "--out"])
        .arg(folder)
        .current_dir(root());
    succeed(&mut maturin)
}

/// What npm installs: the JavaScript of `node/`, and the addon beside it.
fn tarball(folder: &Path, speed: Speed) -> Result<(), Failure> {
    let profile = speed.profile();
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
    let built = match speed {
        Speed::Shipped => profile,
        Speed::Quick => "debug",
    };
    let addon = built_in().join(built).join("libonlyonce_addon.so");
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

pub(crate) fn succeed(command: &mut Command) -> Result<(), Failure> {
    if status(command)?.success() {
        return Ok(());
    }
    let program = command.get_program().to_string_lossy().into_owned();
    Err(Failure::new(format!("{program} failed; see above")))
}

//! `cargo xtask bench python` and `node`: what a key costs with the packages for these languages, beside
//! nothing and beside packages of others, in one run. The package is built as it is shipped, and installed with
//! the others into a folder of target/tools.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::Failure;
use crate::cargo::{exit_code, root};
use crate::package::{self, Language};

const SOURCES: &str = "bench/overhead";

pub(super) fn run(language: Language, args: &[String]) -> Result<ExitCode, Failure> {
    let built = package::build(language, package::Speed::Shipped)?;
    let mut command = match language {
        Language::Python => python(&built)?,
        Language::Node => node(&built)?,
    };
    exit_code({
        command.args(args);
        command
    })
}

fn python(wheel: &Path) -> Result<Command, Failure> {
    let folder = folder("overhead-python")?;
    let python = folder.join("bin/python");
    if !python.exists() {
        let mut venv = Command::new("python3");
        package::succeed(venv.args(["-m", "venv"]).arg(&folder))?;
    }
    let install = || {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet"]);
        pip
    };
    let others = root().join(SOURCES).join("requirements.txt");
    package::succeed(install().arg("-r").arg(others))?;
    let mut ours = install();
    package::succeed(ours.args(["--no-deps", "--force-reinstall"]).arg(wheel))?;
    let mut command = Command::new(python);
    command.arg(root().join(SOURCES).join("overhead.py"));
    Ok(command)
}

fn node(tarball: &Path) -> Result<Command, Failure> {
    let folder = folder("overhead-node")?;
    // Beside what it imports.
    for name in ["package.json", "overhead.cjs"] {
        let copied = fs::copy(root().join(SOURCES).join(name), folder.join(name));
        copied.map_err(|error| Failure::new(format!("{name}: {error}")))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-save", "--no-audit", "--no-fund"]);
    package::succeed(npm.arg(tarball).current_dir(&folder))?;
    let mut command = Command::new("node");
    command.arg("overhead.cjs").current_dir(folder);
    command.env("NODE_ENV", "production");
    Ok(command)
}

fn folder(name: &str) -> Result<PathBuf, Failure> {
    let folder = root().join("target/tools").join(name);
    let made = fs::create_dir_all(&folder);
    made.map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
    Ok(folder)
}

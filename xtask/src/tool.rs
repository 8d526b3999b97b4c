//! Programs written in Rust that only some commands need: `cargo xtask deny`, `cargo xtask book`,
//! `cargo xtask dist` and `cargo xtask mutants`.
//!
//! Each is built once, into target/tools, at the version named here. That takes minutes, so `ci`
//! needs none of them.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::Failure;
use crate::cargo::{cargo, exit_code, root, status};

const FOLDER: &str = "target/tools";

/// A crate with a program of the same name.
struct Tool {
    name: &'static str,
    version: &'static str,
}

const DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
};
const MUTANTS: Tool = Tool {
    name: "cargo-mutants",
    version: "27.1.0",
};
const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
};

const SBOM: Tool = Tool {
    name: "cargo-sbom",
    version: "0.10.0",
};

/// What lists all that `package` is built from, as CycloneDX, on its standard output.
pub(crate) fn sbom(package: &str) -> Result<Command, Failure> {
    let mut command = SBOM.command()?;
    command.args(["--cargo-package", package]);
    command.args(["--output-format", "cyclone_dx_json_1_6"]);
    Ok(command)
}

/// Checks licences, banned crates and sources by deny.toml. Advisories need a database from the
/// network and are left to the release checklist.
pub(crate) fn deny() -> Result<ExitCode, Failure> {
    let mut command = DENY.command()?;
    command.args(["check", "licenses", "bans", "sources"]);
    exit_code(command)
}

/// What changes code and runs its tests, ended after `minutes`.
pub(crate) fn mutants(minutes: u32) -> Result<Command, Failure> {
    let program = MUTANTS.program()?;
    let mut command = Command::new("timeout");
    // An interrupt lets it put away its copy of the sources.
    command.args(["--signal=INT", "--kill-after=60", &format!("{minutes}m")]);
    command.arg(program).arg("mutants");
    command.current_dir(root());
    Ok(command)
}

/// Builds docs/book into target/book.
pub(crate) fn book() -> Result<ExitCode, Failure> {
    let mut command = MDBOOK.command()?;
    command.args(["build", "docs/book"]);
    exit_code(command)
}

impl Tool {
    fn command(&self) -> Result<Command, Failure> {
        let mut command = Command::new(self.program()?);
        command.current_dir(root());
        Ok(command)
    }

    /// The program, which is built first if it is missing.
    fn program(&self) -> Result<PathBuf, Failure> {
        let folder = root().join(FOLDER).join(self.version_folder());
        let program = folder.join("bin").join(self.name);
        if !program.exists() {
            self.install(&folder)?;
        }
        Ok(program)
    }

    /// Another version is built beside the old one.
    fn version_folder(&self) -> PathBuf {
        PathBuf::from(format!("{}-{}", self.name, self.version))
    }

    fn install(&self, folder: &Path) -> Result<(), Failure> {
        let Self { name, version } = self;
        println!("building {name} {version}; this takes some minutes, once");
        let mut command = cargo(&["install", "--locked", "--debug", "--no-default-features"]);
        command.args(["--quiet", "--version", version, name, "--root"]);
        command.arg(folder);
        if status(&mut command)?.success() {
            Ok(())
        } else {
            Err(Failure::new(format!("{name} {version} does not install")))
        }
    }
}

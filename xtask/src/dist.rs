//! `cargo xtask dist`: what is handed to users, in target/artifacts: a Debian package, a tarball, an OCI
//! image, a list of all they are built from, and the checksums of all. `--check` tries the package out.
//!
//! The package is made by dpkg's own programs, the image by buildah without a registry.

mod image;
mod sbom;
mod tree;

#[cfg(test)]
mod tests;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::Failure;
use crate::cargo::{self, root, status};
use crate::package::{self, Language, Speed};
use crate::servers::install_missing;

pub(crate) use self::tree::Tree;

/// Emptied first, so not one of those that cargo builds in: they are named after its profiles.
const FOLDER: &str = "target/artifacts";
/// What makes the packages, by the program that shows whether it is there.
const MAKERS: [(&str, &str); 2] = [("dpkg-shlibdeps", "dpkg-dev"), ("strip", "binutils")];
/// What tries them out.
const CHECKERS: [(&str, &str); 3] = [
    ("debootstrap", "debootstrap"),
    ("curl", "curl"),
    ("ip", "iproute2"),
];

/// What to make, and how.
#[derive(clap::Args)]
pub(crate) struct Asked {
    /// Make the package for this language, and nothing else
    #[arg(value_enum, conflicts_with_all = ["only", "check"])]
    language: Option<Language>,
    /// How to build the program: as it is shipped, or as the tests have it
    #[arg(long, value_enum, default_value_t = Build::Dist)]
    profile: Build,
    /// Make only these
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Item>,
    /// Try the package out: install, start, replay, reload, upgrade, remove and purge it under
    /// systemd in a fresh Debian root file system (as root; downloads that root)
    #[arg(long)]
    check: bool,
}

/// How the program is built.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Build {
    /// Optimised
    Dist,
    /// As the tests have it, quick to build
    Dev,
}

/// What can be made.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Item {
    /// The Debian package
    Deb,
    /// The program with its pages, for any other system with glibc
    Tar,
    /// The OCI image
    Image,
    /// What they are built from (SBOM), as CycloneDX JSON
    Sbom,
}

/// Makes what was asked for.
pub(crate) fn run(asked: &Asked) -> Result<ExitCode, Failure> {
    if let Some(language) = asked.language {
        return package::run(
            language,
            match asked.profile {
                Build::Dist => Speed::Shipped,
                Build::Dev => Speed::Quick,
            },
        );
    }
    let wanted = |item| asked.only.is_empty() || asked.only.contains(&item);
    let of_program = [Item::Deb, Item::Tar, Item::Image];
    let folder = root().join(FOLDER);
    let mut tree = None;
    if asked.check || of_program.into_iter().any(wanted) {
        let Some(program) = built(asked.profile)? else {
            return Ok(ExitCode::FAILURE);
        };
        empty(&folder)?;
        tree = Some(Tree::make(&program, &folder.join("tree"))?);
    } else {
        empty(&folder)?;
    }
    if let Some(tree) = &tree {
        if wanted(Item::Deb) {
            tree.deb(&folder, tree.version())?;
        }
        if wanted(Item::Tar) {
            tree.tarball(&folder)?;
        }
        if wanted(Item::Image) {
            install(&[("buildah", "buildah")])?;
            image::make(tree, &folder)?;
        }
    }
    if wanted(Item::Sbom) {
        sbom::make(&folder)?;
    }
    checksums(&folder)?;
    match tree.filter(|_| asked.check) {
        Some(tree) => check(&tree, &folder),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The program, or `None` when it does not build.
fn built(profile: Build) -> Result<Option<PathBuf>, Failure> {
    install(&MAKERS)?;
    match profile {
        Build::Dist => cargo::optimised(&["onlyonce-cli"], "onlyonce"),
        Build::Dev => cargo::as_tested(&["onlyonce"], "onlyonce"),
    }
}

/// Makes a folder that has nothing in it from before.
fn empty(folder: &Path) -> Result<(), Failure> {
    let emptied = match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => fs::create_dir_all(folder),
    };
    emptied.map_err(|error| cannot(folder, &error))
}

/// Installs the Debian packages whose programs are missing.
fn install(programs: &[(&str, &str)]) -> Result<(), Failure> {
    let script =
        "while [ $# -gt 0 ]; do command -v \"$1\" >/dev/null || echo \"$2\"; shift 2; done";
    let mut asked = Command::new("sh");
    asked.args(["-c", script, "sh"]);
    asked.args(
        programs
            .iter()
            .flat_map(|(program, package)| [program, package]),
    );
    install_missing(&mut asked)
}

fn checksums(folder: &Path) -> Result<(), Failure> {
    let script = "find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%f\\n' | LC_ALL=C sort | xargs -r sha256sum > SHA256SUMS && cat SHA256SUMS";
    done(Command::new("sh").args(["-c", script]).current_dir(folder))
}

/// Hands the package, and one of an older version, to packaging/check.
fn check(tree: &Tree, folder: &Path) -> Result<ExitCode, Failure> {
    install(&CHECKERS)?;
    let scratch = folder.join("check");
    fs::create_dir_all(&scratch).map_err(|error| cannot(&scratch, &error))?;
    let older = tree.deb(&scratch, "0.0.1")?;
    let current = tree.deb(&scratch, tree.version())?;
    let mut command = Command::new(root().join("packaging/check"));
    command.args([&older, &current]).arg(root());
    cargo::exit_code(command)
}

/// Runs a command that must succeed.
fn done(command: &mut Command) -> Result<(), Failure> {
    if status(command)?.success() {
        return Ok(());
    }
    let program = command.get_program().to_string_lossy().into_owned();
    Err(Failure::new(format!("{program} failed")))
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

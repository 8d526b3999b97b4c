//! Whether every crate that is meant for crates.io could be published as it is.
//!
//! The packages are made but not built: building each of them again is the release's business
//! (docs/release.md). Nothing here needs the network.

#[cfg(test)]
mod tests;

use crate::Failure;
use crate::cargo::{Package, cargo, packages, status, stdout};

/// What each package has to contain.
const FILES: [&str; 4] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Prints what a published crate lacks, then packages all of them; true if nothing is missing.
pub(crate) fn packages_are_complete() -> Result<bool, Failure> {
    let packages = packages()?;
    let (published, private): (Vec<_>, Vec<_>) =
        packages.iter().partition(|package| package.is_published);
    let mut is_complete = true;
    for package in &published {
        for problem in problems(package, &private, &listed(&package.name)?) {
            println!("{}: {problem}", package.name);
            is_complete = false;
        }
    }
    Ok(is_complete && packaged(&private)?)
}

fn problems(package: &Package, private: &[&Package], files: &str) -> Vec<String> {
    let unstated = package.unstated.iter();
    let mut problems: Vec<_> = unstated
        .map(|field| format!("Cargo.toml does not state {field}"))
        .collect();
    let is_private = |name: &&String| private.iter().any(|package| package.name == **name);
    for name in package.needs.iter().filter(is_private) {
        problems.push(format!("needs {name}, which is not published"));
    }
    for file in FILES {
        if !files.lines().any(|line| line == file) {
            problems.push(format!("its package has no {file}"));
        }
    }
    problems
}

/// The files of a crate's package, one on each line.
fn listed(name: &str) -> Result<String, Failure> {
    let args = [
        "package",
        "--list",
        "--allow-dirty",
        "--offline",
        "-p",
        name,
    ];
    stdout(&mut cargo(&args))?.ok_or_else(|| Failure::new("cargo package --list failed"))
}

fn packaged(private: &[&Package]) -> Result<bool, Failure> {
    let mut command = cargo(&["package", "--workspace", "--offline", "--quiet"]);
    command.args(["--no-verify", "--allow-dirty"]);
    for package in private {
        command.args(["--exclude", &package.name]);
    }
    Ok(status(&mut command)?.success())
}

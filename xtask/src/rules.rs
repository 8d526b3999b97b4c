//! The rules about the source text that no compiler knows.
//!
//! A profile is data: its contract is a file, only the module that reads these files may tell
//! profiles apart or build a contract, and everything after it reads the policy. And ARCHITECTURE.md stays short enough to be read.

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::process::Command;

use crate::Failure;
use crate::cargo::{root, stdout};

/// The file and the directory of the module that reads the profiles' files.
const PRESETS: [&str; 2] = [
    "crates/onlyonce-core/src/profile.rs",
    "crates/onlyonce-core/src/profile/",
];
/// Where profiles are picked and shown rather than branched on.
const EXEMPT_DIRECTORIES: [&str; 4] = ["tests", "docs", "examples", "benches"];
/// Split, so that this file passes its own check. `Profile::from_toml` names no profile.
const BRANCH: &str = concat!("Profile", "::");
const READERS: [&str; 1] = ["from_toml"];
/// What a contract is made of in Rust: built here only from its file.
const CONTRACTS: [&str; 2] = [concat!("HttpRules", " {"), concat!("RefusalRow", " {")];
/// What stands before one where it is only named: its definition, its methods, or a function that returns it.
const NAMED: [&str; 4] = ["pub struct ", "impl ", "-> ", "-> &"];

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const ARCHITECTURE_LINES_MAX: usize = 199;

/// Prints every place outside the preset table that names a profile; true if there is none.
pub(crate) fn profiles_are_data() -> Result<bool, Failure> {
    let mut is_clean = true;
    for path in tracked("*.rs")? {
        if may_name_profiles(&path) {
            continue;
        }
        let Some(text) = read(&path)? else { continue };
        for line in profile_lines(&text) {
            println!("{path}:{line}: names a profile or builds a contract; ask the policy");
            is_clean = false;
        }
    }
    Ok(is_clean)
}

/// Says whether ARCHITECTURE.md is there and short.
pub(crate) fn architecture_is_short() -> Result<bool, Failure> {
    let text = match fs::read_to_string(root().join(ARCHITECTURE)) {
        Ok(text) => text,
        Err(error) => {
            println!("{ARCHITECTURE}: cannot be read: {error}");
            return Ok(false);
        }
    };
    let count = text.lines().count();
    println!("{ARCHITECTURE}: {count} lines, at most {ARCHITECTURE_LINES_MAX} allowed");
    Ok(count <= ARCHITECTURE_LINES_MAX)
}

/// The text of a file, or `None` if it is deleted but git still has it.
pub(crate) fn read(path: &str) -> Result<Option<String>, Failure> {
    match fs::read_to_string(root().join(path)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(format!("cannot read {path}: {error}"))),
    }
}

/// All files of this pattern that git has or would take.
pub(crate) fn tracked(pattern: &str) -> Result<Vec<String>, Failure> {
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--cached", "--others"])
        .args(["--exclude-standard", "--", pattern])
        .current_dir(root());
    let text = stdout(&mut list)?.ok_or_else(|| Failure::new("git ls-files failed"))?;
    let mut paths: Vec<_> = text.split_terminator('\0').map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn may_name_profiles(path: &str) -> bool {
    let [file, directory] = PRESETS;
    path == file
        || path.starts_with(directory)
        || path.ends_with("tests.rs")
        || path
            .split('/')
            .any(|part| EXEMPT_DIRECTORIES.contains(&part))
}

/// The lines that name a profile in code. A comment cannot branch.
fn profile_lines(text: &str) -> Vec<usize> {
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim_start().starts_with("//") && names_profile(line))
        .map(|(number, _)| number)
        .collect()
}

/// True for the whole word only: a `UserProfile` is something else.
fn names_profile(line: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let names = line.match_indices(BRANCH).any(|(at, branch)| {
        let after = &line[at + branch.len()..];
        !line[..at].ends_with(is_word) && !READERS.iter().any(|it| after.starts_with(it))
    });
    let builds = CONTRACTS.iter().any(|contract| {
        let mut places = line.match_indices(contract);
        places.any(|(at, _)| !NAMED.iter().any(|it| line[..at].ends_with(it)))
    });
    names || builds
}

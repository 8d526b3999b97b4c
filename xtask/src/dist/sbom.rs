//! The software bill of materials: every crate that the program is built from, with its version and
//! licence, as CycloneDX JSON. Scanners compare it with lists of known vulnerabilities.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::cannot;
use crate::Failure;
use crate::cargo::{cargo, stdout};
use crate::tool;

#[cfg(test)]
mod tests;

const PACKAGE: &str = "onlyonce-cli";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What the program certainly is built from: a list without it is not of this program.
const EXPECTED: [&str; 3] = ["onlyonce-core", "tokio", "hyper"];

/// Writes the list into `folder`.
pub(super) fn make(folder: &Path) -> Result<(), Failure> {
    let text = stdout(&mut tool::sbom(PACKAGE)?)?;
    let text = text.ok_or_else(|| Failure::new("cargo-sbom failed"))?;
    let list = read(&text, &built_from()?)?;
    let path = folder.join(format!("onlyonce-{VERSION}-sbom.cdx.json"));
    fs::write(&path, format!("{list:#}\n")).map_err(|error| cannot(&path, &error))
}

/// The crates that this system's program is built from, as `name version`.
fn built_from() -> Result<BTreeSet<String>, Failure> {
    let tree = [
        "tree",
        "--package",
        PACKAGE,
        "--edges",
        "normal",
        "--prefix",
        "none",
    ];
    let text = stdout(&mut cargo(&tree))?;
    let text = text.ok_or_else(|| Failure::new("cargo tree failed"))?;
    let crates = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        Some(format!("{name} {}", rest.split(' ').next()?))
    });
    Ok(crates.collect())
}

/// A list in CycloneDX of what this program is built from; anything else is a failure.
fn read(text: &str, built_from: &BTreeSet<String>) -> Result<Value, Failure> {
    let wrong = |why: &str| Failure::new(format!("the SBOM of {PACKAGE}: {why}"));
    let mut list: Value = serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
    if list["bomFormat"] != "CycloneDX" {
        return Err(wrong("this is not CycloneDX"));
    }
    keep(&mut list, built_from);
    // The user who is logged in has not written the program.
    if let Some(metadata) = list["metadata"].as_object_mut() {
        metadata.remove("authors");
    }
    let components = list["components"].as_array().map_or(&[][..], Vec::as_slice);
    let has = |name: &str| components.iter().any(|it| it["name"] == name);
    match EXPECTED.into_iter().find(|name| !has(name)) {
        Some(missing) => Err(wrong(&format!("{missing} is missing"))),
        None => Ok(list),
    }
}

/// Drops what only other systems and features need, which the program does not contain, and puts the
/// rest in order.
fn keep(list: &mut Value, built_from: &BTreeSet<String>) {
    let is_there = |it: &Value| {
        let (name, version) = (it["name"].as_str(), it["version"].as_str());
        name.zip(version)
            .is_some_and(|(name, version)| built_from.contains(&format!("{name} {version}")))
    };
    let id = |it: &Value| it["bom-ref"].as_str().unwrap_or_default().to_owned();
    let own = &list["metadata"]["component"]["components"];
    let own = own.as_array().into_iter().flatten().map(id);
    let mut known: BTreeSet<String> = own.collect();
    if let Some(components) = list["components"].as_array_mut() {
        components.retain(is_there);
        components.sort_by_key(id);
        known.extend(components.iter().map(id));
    }
    let is_known = |it: &Value| it.as_str().is_some_and(|it| known.contains(it));
    if let Some(dependencies) = list["dependencies"].as_array_mut() {
        dependencies.retain(|it| is_known(&it["ref"]));
        dependencies.sort_by_key(|it| it["ref"].as_str().map(str::to_owned));
        for it in dependencies {
            if let Some(on) = it["dependsOn"].as_array_mut() {
                on.retain(is_known);
                on.sort_by_key(|it| it.as_str().map(str::to_owned));
            }
        }
    }
}

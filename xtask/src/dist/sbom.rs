//! The software bill of materials: every crate that the program is built from, with its version and
//! licence, as CycloneDX JSON. Scanners compare it with lists of known vulnerabilities.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::cannot;
use crate::Failure;
use crate::cargo::stdout;
use crate::tool;

#[cfg(test)]
mod tests;

const PACKAGE: &str = "onlyonce-cli";
/// What the program certainly is built from: a list without it is not of this program.
const EXPECTED: [&str; 3] = ["onlyonce-core", "tokio", "hyper"];

/// Writes the list into `folder`.
pub(super) fn make(version: &str, folder: &Path) -> Result<(), Failure> {
    let text = stdout(&mut tool::sbom(PACKAGE)?)?;
    let text = text.ok_or_else(|| Failure::new("cargo-sbom failed"))?;
    let mut list = read(&text)?;
    // Whoever is logged in has not written the program.
    if let Some(metadata) = list["metadata"].as_object_mut() {
        metadata.remove("authors");
    }
    let path = folder.join(format!("onlyonce-{version}-sbom.cdx.json"));
    fs::write(&path, format!("{list:#}\n")).map_err(|error| cannot(&path, &error))
}

/// A list in CycloneDX of what this program is built from; anything else is a failure.
fn read(text: &str) -> Result<Value, Failure> {
    let wrong = |why: &str| Failure::new(format!("the SBOM of {PACKAGE}: {why}"));
    let list: Value = serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
    if list["bomFormat"] != "CycloneDX" {
        return Err(wrong("this is not CycloneDX"));
    }
    let components = list["components"].as_array().map_or(&[][..], Vec::as_slice);
    let has = |name: &str| components.iter().any(|it| it["name"] == name);
    match EXPECTED.into_iter().find(|name| !has(name)) {
        Some(missing) => Err(wrong(&format!("{missing} is missing"))),
        None => Ok(list),
    }
}

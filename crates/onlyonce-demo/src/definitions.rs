//! Intakes and forms are defined in JSON files: read once, and checked there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;

/// Something that a file defines a list of.
pub(crate) trait Defined: DeserializeOwned {
    /// What one is called, and what several are.
    const NAMES: (&'static str, &'static str);
    /// Those that are there without a file.
    const BUILT_IN: &'static str;

    /// Its name in paths.
    fn id(&self) -> &str;

    /// Why it cannot be served, besides its id.
    fn wrong(&self) -> Option<&'static str>;
}

/// Why definitions cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// The file is not there, or not ours to read.
    #[error("{}: cannot be read", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is no list of them.
    #[error("{name}: is no list of {what}")]
    Format {
        /// Which file.
        name: String,
        /// What it should list.
        what: &'static str,
        /// Where and why not.
        source: serde_json::Error,
    },
    /// One that cannot be served.
    #[error("{name}: {what} `{id}`: {why}")]
    One {
        /// Which file.
        name: String,
        /// What it is.
        what: &'static str,
        /// Which of them.
        id: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// The definitions of a file, or those built in.
pub(crate) fn read<T: Defined>(path: Option<&Path>) -> Result<Vec<T>, DefinitionError> {
    let Some(path) = path else {
        return parse(&format!("built-in {}", T::NAMES.1), T::BUILT_IN);
    };
    let text = std::fs::read_to_string(path).map_err(|source| DefinitionError::File {
        path: path.to_owned(),
        source,
    })?;
    parse(&path.display().to_string(), &text)
}

fn parse<T: Defined>(name: &str, text: &str) -> Result<Vec<T>, DefinitionError> {
    let all: Vec<T> = serde_json::from_str(text).map_err(|source| DefinitionError::Format {
        name: name.to_owned(),
        what: T::NAMES.1,
        source,
    })?;
    let mut known = BTreeSet::new();
    for one in &all {
        let why = if !is_id(one.id()) {
            Some("an id is lower-case letters, digits, hyphens and underscores")
        } else if !known.insert(one.id()) {
            Some("its id is there twice")
        } else {
            one.wrong()
        };
        if let Some(why) = why {
            return Err(DefinitionError::One {
                name: name.to_owned(),
                what: T::NAMES.0,
                id: one.id().to_owned(),
                why,
            });
        }
    }
    Ok(all)
}

/// As it is in a path and in a tool's name.
fn is_id(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    !text.is_empty() && text.chars().all(is_plain)
}

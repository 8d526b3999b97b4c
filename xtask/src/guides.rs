//! Whether the Rust code that a guide shows is the code that is tested.
//!
//! A doc test needs lines around the code that a reader has no use for, and forges show them. So the
//! tested code is beside the tests of its crate, in a file of the guide's name in `tests/guides`; without
//! the lines that begin with `#` it must be what the guide shows.

#[cfg(test)]
mod tests;

use crate::Failure;
use crate::rules::{read, tracked};

const GUIDES: &str = "docs/guides/";
const TESTED: &str = "/tests/guides/";

/// Prints every guide that differs from its tested code; true if there is none.
pub(crate) fn show_what_is_tested() -> Result<bool, Failure> {
    let pages = tracked("*.md")?;
    let mut is_same = true;
    for guide in pages.iter().filter(|path| path.starts_with(GUIDES)) {
        let name = &guide[GUIDES.len()..];
        let twin = pages.iter().find(|path| {
            let (_, rest) = path.split_once(TESTED).unwrap_or_default();
            rest == name
        });
        let tested = twin.map(|path| read(path)).transpose()?.flatten();
        let shown = read(guide)?.unwrap_or_default();
        if let Some(problem) = difference(&shown, &tested.unwrap_or_default()) {
            println!("{guide}: {problem}");
            is_same = false;
        }
    }
    Ok(is_same)
}

fn difference(shown: &str, tested: &str) -> Option<String> {
    let (shown, tested) = (blocks(shown, false), blocks(tested, true));
    if shown.len() != tested.len() {
        let (shown, tested) = (shown.len(), tested.len());
        return Some(format!("{shown} blocks of Rust are shown, {tested} tested"));
    }
    let mut pairs = (1..).zip(shown.iter().zip(&tested));
    let (number, (shown, tested)) = pairs.find(|(_, (shown, tested))| shown != tested)?;
    let at = (0..)
        .find(|at| shown.get(*at) != tested.get(*at))
        .expect("the blocks differ");
    let line = |block: &[&str]| {
        block
            .get(at)
            .map_or("nothing".to_owned(), |it| format!("`{it}`"))
    };
    let (shown, tested) = (line(shown), line(tested));
    Some(format!(
        "block {number} of Rust shows {shown} where {tested} is tested"
    ))
}

/// The blocks of Rust, each as its lines, without those that a doc test hides if they are dropped.
fn blocks(text: &str, drops_hidden: bool) -> Vec<Vec<&str>> {
    let mut blocks: Vec<Vec<_>> = Vec::new();
    let mut is_rust = false;
    for line in text.lines() {
        if let Some(language) = line.strip_prefix("```") {
            is_rust = language.starts_with("rust");
            if is_rust {
                blocks.push(Vec::new());
            }
        } else if is_rust && !(drops_hidden && is_hidden(line)) {
            let block = blocks.last_mut().expect("a block has begun");
            // Blank lines at the start separate nothing.
            if !(line.is_empty() && block.is_empty()) {
                block.push(line);
            }
        }
    }
    blocks
}

fn is_hidden(line: &str) -> bool {
    line == "#" || line.starts_with("# ")
}

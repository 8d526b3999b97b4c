//! The links between the repository's own pages: each must lead somewhere, and each page of docs/ and
//! of the runbooks must be in the book's table of contents.
//!
//! Rust files cite pages too (`docs/protocol.md#rule-3`); those citations are checked like links.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use crate::Failure;
use crate::cargo::root;
use crate::rules::{read, tracked};

const BOOK: &str = "docs/book/";
const SUMMARY: &str = "docs/book/src/SUMMARY.md";
/// Pages that a reader of the book has to find.
const IN_THE_BOOK: [&str; 2] = ["docs/", "ops/runbooks/"];
/// What a citation in a Rust file starts with.
const CITED: &str = "docs/";

/// A link that leads nowhere, or a page that nothing leads to.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Prints every broken link; true if there is none.
pub(crate) fn lead_somewhere() -> Result<bool, Failure> {
    let mut pages = BTreeMap::new();
    for path in tracked("*.md")? {
        // The book's pages are links to pages of the repository, but for its table of contents.
        if (path == SUMMARY || !path.starts_with(BOOK))
            && let Some(text) = read(&path)?
        {
            pages.insert(path, text);
        }
    }
    let mut problems = unlisted(&pages);
    for (path, text) in &pages {
        problems.extend(broken(path, links(text), &pages, exists));
    }
    for path in tracked("*.rs")? {
        if let Some(text) = read(&path)? {
            // A citation counts from the root of the repository.
            let found = broken("", citations(&text), &pages, exists);
            problems.extend(found.into_iter().map(|problem| Problem {
                path: path.clone(),
                ..problem
            }));
        }
    }
    for problem in &problems {
        println!("{problem}");
    }
    Ok(problems.is_empty())
}

fn exists(path: &str) -> bool {
    root().join(path).exists()
}

/// The pages that the book's table of contents leaves out.
fn unlisted(pages: &BTreeMap<String, String>) -> Vec<Problem> {
    let contents = pages.get(SUMMARY).map_or("", String::as_str);
    let listed: Vec<_> = links(contents).into_iter().map(|(_, to)| to).collect();
    let belongs = |path: &&String| IN_THE_BOOK.iter().any(|start| path.starts_with(start));
    pages
        .keys()
        .filter(|path| *path != SUMMARY)
        .filter(belongs)
        .filter(|path| !listed.contains(path))
        .map(|path| Problem {
            path: path.clone(),
            line: 1,
            what: format!("is not in {SUMMARY}"),
        })
        .collect()
}

/// Which of these links on the page `path` lead nowhere.
fn broken(
    path: &str,
    links: Vec<(usize, String)>,
    pages: &BTreeMap<String, String>,
    exists: impl Fn(&str) -> bool,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, link) in links {
        let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let to = if file.is_empty() {
            path.to_owned()
        } else {
            joined(path, file)
        };
        let what = match pages.get(&to) {
            Some(text) if anchor.is_empty() || anchors(text).iter().any(|one| one == anchor) => {
                continue;
            }
            Some(_) => format!("{to} has no #{anchor}"),
            None if exists(&to) => continue,
            None => format!("there is no {to}"),
        };
        problems.push(Problem {
            path: path.to_owned(),
            line,
            what,
        });
    }
    problems
}

/// `link` as seen from the page `path`, from the root of the repository.
fn joined(path: &str, link: &str) -> String {
    let folder = Path::new(path).parent().unwrap_or(Path::new(""));
    let mut whole = PathBuf::new();
    for part in folder.join(link).components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::Normal(name) => whole.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    whole.to_string_lossy().into_owned()
}

/// The links of a page to other files or to its own anchors, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        for (at, start) in line.match_indices("](") {
            let rest = &line[at + start.len()..];
            let Some(end) = rest.find(')') else { continue };
            let link = &rest[..end];
            if !link.contains("://") && !link.starts_with("mailto:") {
                links.push((number, link.to_owned()));
            }
        }
    }
    links
}

/// The pages that a Rust file cites, with their anchors and lines.
fn citations(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some((_, comment)) = line.split_once("//") else {
            continue;
        };
        for word in comment.split(|c: char| !(c.is_alphanumeric() || "/._-#".contains(c))) {
            let word = word.trim_end_matches('.');
            if word.starts_with(CITED) && word.contains(".md") {
                found.push((number, word.to_owned()));
            }
        }
    }
    found
}

/// What can follow `#`: headings as forges name them, and `<a id="…">`.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors = Vec::new();
    for (_, line) in prose(text) {
        if let Some(heading) = line.strip_prefix('#') {
            anchors.push(slug(heading.trim_start_matches('#').trim()));
        }
        for (at, start) in line.match_indices("<a id=\"") {
            let rest = &line[at + start.len()..];
            anchors.extend(rest.split_once('"').map(|(id, _)| id.to_owned()));
        }
    }
    anchors
}

fn slug(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let lower = heading.to_lowercase();
    lower
        .chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

/// The numbered lines outside fenced blocks.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_fenced = false;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            lines.push((number, line));
        }
    }
    lines
}

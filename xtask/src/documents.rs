//! Checks docs/audit/documents.md: each fenced block of the documents is listed once, with tests that ran
//! and passed or with the reason why it is not run.
//!
//! Rows are `| D0 5 | what | tests |`, of several blocks `| D0 16–17 | …`, and of a scenario in the
//! prose `| D0 §2.4 | …`.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::follow::Outcomes;
use crate::requirements::{Problem, cells, test_names, untrue};

/// How many fenced blocks each document has.
const BLOCKS: [(&str, u32); 5] = [("D0", 103), ("D1", 1), ("D2", 9), ("D3", 38), ("D4", 5)];
const HEAD: &str = "| block | what | tests |";
const NOT_RUN: &str = "not run: ";

/// Returns everything in the file that is malformed, missing, or not true of this run.
pub(crate) fn check(text: &str, outcomes: &Outcomes) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    let mut last = 1;
    for (line, content) in (1..).zip(text.lines()) {
        last = line;
        if !content.starts_with('|') || content == HEAD || content.starts_with("|--") {
            continue;
        }
        let checked = row(content, outcomes, &mut listed);
        problems.extend(checked.into_iter().map(|what| Problem { line, what }));
    }
    for (document, count) in BLOCKS {
        let missing: Vec<_> = (1..=count)
            .filter(|block| !listed.contains(&(document, *block)))
            .map(|block| block.to_string())
            .collect();
        if !missing.is_empty() {
            let what = format!("no row for {document} {}", missing.join(", "));
            problems.push(Problem { line: last, what });
        }
    }
    problems
}

/// What is wrong with one row; its blocks are listed from now on.
fn row(
    content: &str,
    outcomes: &Outcomes,
    listed: &mut BTreeSet<(&'static str, u32)>,
) -> Vec<String> {
    let [id, _, shown] = match cells(content) {
        Ok(cells) => cells,
        Err(what) => return vec![what],
    };
    let mut wrongs = Vec::new();
    match blocks(&id) {
        Err(what) => wrongs.push(what),
        Ok(blocks) => {
            for block in blocks {
                if !listed.insert(block) {
                    wrongs.push(format!("{} {} is listed twice", block.0, block.1));
                }
            }
        }
    }
    if let Some(reason) = shown.strip_prefix(NOT_RUN) {
        if reason.trim().is_empty() {
            wrongs.push(format!("{id} is not run, but why?"));
        }
        return wrongs;
    }
    match test_names(&shown) {
        Err(what) => wrongs.push(format!("{id}: {what}")),
        Ok(tests) if tests.is_empty() => {
            wrongs.push(format!("{id} names no test; say `{NOT_RUN}` and why"));
        }
        Ok(tests) => {
            wrongs.extend(tests.iter().filter_map(|test| {
                Some(format!("{id} names `{test}`, {}", untrue(test, outcomes)?))
            }))
        }
    }
    wrongs
}

/// The blocks that a row is about; none for a scenario.
fn blocks(id: &str) -> Result<Vec<(&'static str, u32)>, String> {
    let wrong = || format!("`{id}` is no block; ids are D0 5, D0 16–17, D0 §2.4 and the like");
    let (document, rest) = id.split_once(' ').ok_or_else(wrong)?;
    let known = BLOCKS.iter().find(|(name, _)| *name == document);
    let (document, count) = known.ok_or_else(wrong)?;
    if rest.starts_with('§') {
        return Ok(Vec::new());
    }
    let (first, last) = rest.split_once('–').unwrap_or((rest, rest));
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    let (first, last) = (number(first)?, number(last)?);
    if first == 0 || last < first || last > *count {
        return Err(format!("{document} has blocks 1 to {count}, not {rest}"));
    }
    Ok((first..=last).map(|block| (*document, block)).collect())
}

//! Checks docs/audit/documents.md: each fenced block, table, metric, log event, audit event, alert and
//! scenario of the documents is listed, with tests that ran and passed or with the reason why it is
//! not run.
//!
//! Rows are `| D0 5 | what | tests |`, of several blocks `| D0 16–17 | …`, of a scenario in the
//! prose `| D0 §2.4 | …`, and of anything else `| D0 metric idempotency.request.total | …`.

mod parts;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use self::parts::{Parts, SCENARIO};
use crate::follow::Outcomes;
use crate::requirements::{Problem, cells, test_names, untrue};

/// How many fenced blocks each document has.
const BLOCKS: [(&str, u32); 5] = [("D0", 103), ("D1", 1), ("D2", 9), ("D3", 38), ("D4", 5)];
const HEAD: &str = "| block | what | tests |";
const NOT_RUN: &str = "not run: ";

/// Returns everything in the file that is malformed, missing, or not true of this run.
pub(crate) fn check(text: &str, outcomes: &Outcomes) -> Vec<Problem> {
    check_for(&parts::ALL, text, outcomes)
}

fn check_for(parts: &[Parts], text: &str, outcomes: &Outcomes) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    let mut last = 1;
    for (line, content) in (1..).zip(text.lines()) {
        last = line;
        if !content.starts_with('|') || content == HEAD || content.starts_with("|--") {
            continue;
        }
        let checked = row(content, parts, outcomes, &mut listed);
        problems.extend(checked.into_iter().map(|what| Problem { line, what }));
    }
    for (document, count) in BLOCKS {
        let missing: Vec<_> = (1..=count)
            .map(|block| block.to_string())
            .filter(|block| !listed.contains(&format!("{document} {block}")))
            .collect();
        if !missing.is_empty() {
            let what = format!("no row for {document} {}", missing.join(", "));
            problems.push(Problem { line: last, what });
        }
    }
    let absent = parts.iter().flat_map(Parts::ids);
    for id in absent.filter(|id| !listed.contains(id)) {
        let what = format!("no row for {id}");
        problems.push(Problem { line: last, what });
    }
    problems
}

impl Parts {
    /// The ids of all of them.
    fn ids(&self) -> impl Iterator<Item = String> {
        let names = self.names.iter();
        names.map(|name| match self.kind {
            SCENARIO => format!("{} {SCENARIO}{name}", self.document),
            kind => format!("{} {kind} {name}", self.document),
        })
    }
}

/// What is wrong with one row; what it is about is listed from now on.
fn row(
    content: &str,
    parts: &[Parts],
    outcomes: &Outcomes,
    listed: &mut BTreeSet<String>,
) -> Vec<String> {
    let [id, _, shown] = match cells(content) {
        Ok(cells) => cells,
        Err(what) => return vec![what],
    };
    let mut wrongs = Vec::new();
    match listing(&id, parts) {
        Err(what) => wrongs.push(what),
        Ok(ids) => {
            for id in ids {
                // A scenario may have several rows.
                if !listed.insert(id.clone()) && !id.contains(SCENARIO) {
                    wrongs.push(format!("{id} is listed twice"));
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

/// What a row is about: several blocks, or one of anything else.
fn listing(id: &str, parts: &[Parts]) -> Result<Vec<String>, String> {
    let wrong = || {
        format!(
            "`{id}` is nothing of the documents; ids are D0 5, D0 16–17, D0 §2.4, D0 table 1, \
             D0 metric NAME, D0 log NAME and the like"
        )
    };
    let (document, rest) = id.split_once(' ').ok_or_else(wrong)?;
    let known = BLOCKS.iter().find(|(name, _)| *name == document);
    let (document, count) = known.ok_or_else(wrong)?;
    if rest.starts_with(SCENARIO) || parts.iter().flat_map(Parts::ids).any(|it| it == id) {
        return Ok(vec![id.to_owned()]);
    }
    let (first, last) = rest.split_once('–').unwrap_or((rest, rest));
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    let (first, last) = (number(first)?, number(last)?);
    if first == 0 || last < first || last > *count {
        return Err(format!("{document} has blocks 1 to {count}, not {rest}"));
    }
    Ok((first..=last)
        .map(|block| format!("{document} {block}"))
        .collect())
}

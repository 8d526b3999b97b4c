//! Checks docs/guarantees.md and docs/security.md: each row of their tables says what is promised and
//! names tests that ran and passed.

#[cfg(test)]
mod tests;

use crate::follow::Outcomes;
use crate::requirements::{Problem, cells, test_names, untrue};

/// What opens a table that is checked.
const HEADS: [&str; 2] = [
    "| fault | what a caller sees | tests |",
    "| attack | what holds | tests |",
];
/// What opens a table with a promise, and its tests, for each kind of upstream.
const KINDS: &str = "| fault | transactional | keyed | readable | opaque |";
/// What the line under a table's head begins with.
const RULE: &str = "|---|---|---|";

/// Returns everything in the tables that is malformed or not true of this run.
pub(crate) fn check(text: &str, outcomes: &Outcomes) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut rows = 0;
    let mut table: Option<&str> = None;
    for (line, content) in (1..).zip(text.lines()) {
        let is_head = HEADS.contains(&content) || content == KINDS;
        let goes_on = table.filter(|_| content.starts_with('|'));
        table = if is_head { Some(content) } else { goes_on };
        let Some(head) = table.filter(|_| !is_head && !content.starts_with(RULE)) else {
            continue;
        };
        rows += 1;
        let wrongs = match head {
            KINDS => row_of_kinds(content, outcomes),
            _ => row(content, outcomes),
        };
        let wrongs = wrongs.unwrap_or_else(|what| vec![what]);
        problems.extend(wrongs.into_iter().map(|what| Problem { line, what }));
    }
    if rows == 0 {
        let heads = HEADS.join("` or `");
        let what = format!("no table `{heads}` with rows in the whole file");
        problems.push(Problem { line: 1, what });
    }
    problems
}

fn row(content: &str, outcomes: &Outcomes) -> Result<Vec<String>, String> {
    let [fault, promise, tests] = cells(content)?;
    promised(&fault, &promise, &tests, outcomes)
}

/// Each cell says what holds, and after its first `<br>` names its tests.
fn row_of_kinds(content: &str, outcomes: &Outcomes) -> Result<Vec<String>, String> {
    let [fault, kinds @ ..] = cells::<5>(content)?;
    let mut wrongs = Vec::new();
    for kind in kinds {
        let (promise, tests) = kind.split_once("<br>").unwrap_or((&kind, ""));
        wrongs.extend(promised(&fault, promise.trim(), tests, outcomes)?);
    }
    Ok(wrongs)
}

fn promised(
    fault: &str,
    promise: &str,
    tests: &str,
    outcomes: &Outcomes,
) -> Result<Vec<String>, String> {
    let tests = test_names(tests).map_err(|what| format!("{fault}: {what}"))?;
    if fault.is_empty() || promise.is_empty() || tests.is_empty() {
        return Err("a row names a fault or an attack, what holds, and tests".to_owned());
    }
    let untrue = |test: &String| {
        let what = untrue(test, outcomes)?;
        Some(format!("{fault}: names `{test}`, {what}"))
    };
    Ok(tests.iter().filter_map(untrue).collect())
}

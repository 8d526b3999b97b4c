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
/// The line under a table's head.
const RULE: &str = "|---|---|---|";

/// Returns everything in the tables that is malformed or not true of this run.
pub(crate) fn check(text: &str, outcomes: &Outcomes) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut rows = 0;
    let mut is_in_table = false;
    for (line, content) in (1..).zip(text.lines()) {
        is_in_table = HEADS.contains(&content) || (is_in_table && content.starts_with('|'));
        if !is_in_table || content == RULE || HEADS.contains(&content) {
            continue;
        }
        rows += 1;
        let wrongs = row(content, outcomes).unwrap_or_else(|what| vec![what]);
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
    let tests = test_names(&tests).map_err(|what| format!("{fault}: {what}"))?;
    if fault.is_empty() || promise.is_empty() || tests.is_empty() {
        return Err("a row names a fault or an attack, what holds, and tests".to_owned());
    }
    let untrue = |test: &String| {
        let what = untrue(test, outcomes)?;
        Some(format!("{fault}: names `{test}`, {what}"))
    };
    Ok(tests.iter().filter_map(untrue).collect())
}

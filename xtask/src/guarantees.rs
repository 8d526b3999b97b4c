//! Checks docs/guarantees.md: each fault's row says what is promised and names tests that ran and
//! passed.

#[cfg(test)]
mod tests;

use crate::follow::Outcomes;
use crate::requirements::{Problem, cells, test_names, untrue};

const HEAD: &str = "| fault | what a caller sees | tests |";

/// Returns everything in the table that is malformed or not true of this run.
pub(crate) fn check(text: &str, outcomes: &Outcomes) -> Vec<Problem> {
    let rows = (1..)
        .zip(text.lines())
        .skip_while(|(_, line)| *line != HEAD)
        .skip(2)
        .take_while(|(_, line)| line.starts_with('|'));
    let mut problems = Vec::new();
    let mut count = 0;
    for (line, content) in rows {
        count += 1;
        let wrongs = row(content, outcomes).unwrap_or_else(|what| vec![what]);
        problems.extend(wrongs.into_iter().map(|what| Problem { line, what }));
    }
    if count == 0 {
        let what = format!("no table `{HEAD}` with rows in the whole file");
        problems.push(Problem { line: 1, what });
    }
    problems
}

fn row(content: &str, outcomes: &Outcomes) -> Result<Vec<String>, String> {
    let [fault, promise, tests] = cells(content)?;
    let tests = test_names(&tests).map_err(|what| format!("{fault}: {what}"))?;
    if fault.is_empty() || promise.is_empty() || tests.is_empty() {
        return Err("a row names a fault, what a caller sees, and tests".to_owned());
    }
    let untrue = |test: &String| {
        let what = untrue(test, outcomes)?;
        Some(format!("{fault}: names `{test}`, {what}"))
    };
    Ok(tests.iter().filter_map(untrue).collect())
}

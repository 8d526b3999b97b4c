//! Checks docs/audit/requirements.md: each requirement it claims must name tests that ran and passed.
//!
//! The file is Markdown with tables `| id | clause | tests |`. What is not built yet has no row,
//! so that every row is a promise this check can hold us to.

#[cfg(test)]
mod tests;

use std::fmt;
use std::mem;

use crate::follow::{Outcome, Outcomes};

/// What is wrong, and on which line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

/// Returns everything in the file that is malformed or not true of this run.
pub(crate) fn check(text: &str, outcomes: &Outcomes) -> Vec<Problem> {
    let (rows, mut problems) = parse(text);
    if rows.is_empty() && problems.is_empty() {
        let what = "no row `| id | clause | tests |` in the whole file".to_owned();
        problems.push(Problem { line: 1, what });
    }
    for row in &rows {
        for test in &row.tests {
            if let Some(what) = untrue(test, outcomes) {
                let what = format!("{} names `{test}`, {what}", row.id.0);
                problems.push(Problem {
                    line: row.line,
                    what,
                });
            }
        }
    }
    problems.sort_by_key(|problem| problem.line);
    problems
}

#[derive(Debug, PartialEq, Eq)]
struct Row {
    line: usize,
    id: Id,
    /// Never empty.
    tests: Vec<String>,
}

/// The id of a requirement that exists.
#[derive(Debug, PartialEq, Eq)]
struct Id(String);

/// What ids start with, and the last number of each.
const SERIES: [(&str, u32); 10] = [
    ("K", 9),
    ("S", 11),
    ("R", 8),
    ("T", 4),
    ("B", 7),
    ("G", 14),
    ("O", 8),
    ("X", 4),
    ("PROTOCOL ", 42),
    ("KNOWN ", 42),
];
/// Ids without a number: the default numbers and the profiles.
const SINGLE: [&str; 2] = ["N", "P"];

impl Id {
    fn parse(text: &str) -> Option<Self> {
        let is_numbered = |(start, last): &(&str, u32)| {
            let number = text.strip_prefix(start).and_then(|rest| rest.parse().ok());
            // Written out again, so that `K01` and `K+1` are not `K1`.
            number.is_some_and(|n: u32| (1..=*last).contains(&n) && text == format!("{start}{n}"))
        };
        let is_known = SINGLE.contains(&text) || SERIES.iter().any(is_numbered);
        is_known.then(|| Self(text.to_owned()))
    }
}

/// Where in the file the parser is.
#[derive(Clone, Copy)]
enum Place {
    Prose,
    Fence,
    BelowHeader,
    Rows,
    /// In a table with a wrong head, already reported.
    Unreadable,
}

fn parse(text: &str) -> (Vec<Row>, Vec<Problem>) {
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    let mut place = Place::Prose;
    let mut fence_line = 0;
    for (line, content) in (1..).zip(text.lines()) {
        let step = match (place, Shape::of(content)) {
            (Place::Prose, Shape::Fence) => {
                fence_line = line;
                Ok(Place::Fence)
            }
            (Place::Fence, Shape::Fence) => Ok(Place::Prose),
            (Place::Fence, Shape::Blank | Shape::Row | Shape::Other) => Ok(Place::Fence),
            (Place::Prose, Shape::Blank | Shape::Other) => Ok(Place::Prose),
            (Place::Prose, Shape::Row) => header(content).map(|()| Place::BelowHeader),
            (Place::BelowHeader, _) => delimiter(content).map(|()| Place::Rows),
            (Place::Rows, Shape::Row) => row(line, content).map(|row| {
                rows.push(row);
                Place::Rows
            }),
            (Place::Rows | Place::Unreadable, Shape::Blank) => Ok(Place::Prose),
            (Place::Rows, Shape::Fence | Shape::Other) => {
                Err("not a row; a blank line ends a table".to_owned())
            }
            (Place::Unreadable, Shape::Fence | Shape::Row | Shape::Other) => Ok(Place::Unreadable),
        };
        match step {
            Ok(next) => place = next,
            Err(what) => {
                problems.push(Problem { line, what });
                place = after_problem(place);
            }
        }
    }
    if matches!(place, Place::Fence) {
        let what = "this code block is never closed".to_owned();
        problems.push(Problem {
            line: fence_line,
            what,
        });
    }
    (rows, problems)
}

/// A bad row spoils only itself, a bad head the whole table.
fn after_problem(place: Place) -> Place {
    match place {
        Place::Rows => Place::Rows,
        Place::Prose | Place::Fence | Place::BelowHeader | Place::Unreadable => Place::Unreadable,
    }
}

enum Shape {
    Blank,
    Fence,
    Row,
    Other,
}

impl Shape {
    fn of(line: &str) -> Self {
        let line = line.trim_start();
        if line.is_empty() {
            Self::Blank
        } else if line.starts_with("```") || line.starts_with("~~~") {
            Self::Fence
        } else if line.starts_with('|') {
            Self::Row
        } else {
            Self::Other
        }
    }
}

fn header(line: &str) -> Result<(), String> {
    let names = cells(line)?;
    if names == ["id", "clause", "tests"] {
        Ok(())
    } else {
        Err("a table here starts with `| id | clause | tests |`".to_owned())
    }
}

fn delimiter(line: &str) -> Result<(), String> {
    let is_rule = |cell: &String| cell.contains('-') && cell.trim_matches([':', '-']).is_empty();
    match cells::<3>(line) {
        Ok(cells) if cells.iter().all(is_rule) => Ok(()),
        Ok(_) | Err(_) => Err("the line below a table's head is `|---|---|---|`".to_owned()),
    }
}

fn row(line: usize, content: &str) -> Result<Row, String> {
    let [id, clause, tests] = cells(content)?;
    let id = Id::parse(&id).ok_or_else(|| {
        format!("`{id}` is no requirement; ids are K1, PROTOCOL 3, KNOWN 8, N, P and the like")
    })?;
    if clause.is_empty() {
        return Err(format!("{} has no clause: say what the tests show", id.0));
    }
    let tests = test_names(&tests).map_err(|what| format!("{}: {what}", id.0))?;
    if tests.is_empty() {
        return Err(format!("{} names no test; what has none has no row", id.0));
    }
    Ok(Row { line, id, tests })
}

/// The cells of a row. A `\|` belongs to its cell.
pub(crate) fn cells<const N: usize>(line: &str) -> Result<[String; N], String> {
    let mut cells = vec![];
    let mut cell = String::new();
    let mut escaped = false;
    for c in line.trim().chars() {
        match c {
            '|' if !escaped => cells.push(mem::take(&mut cell).trim().to_owned()),
            _ => cell.push(c),
        }
        escaped = c == '\\' && !escaped;
    }

    let count = cells.len().saturating_sub(1);
    let malformed = || match N {
        3 => format!("malformed: a row is `| id | clause | tests |`, this has {count} cells"),
        _ => format!("malformed: a row of this table has {N} cells, this has {count}"),
    };
    if !cell.is_empty() {
        return Err("malformed: a row ends with `|`".to_owned());
    }
    // The first is what stands before the leading `|`.
    cells.drain(..1.min(cells.len()));
    cells.try_into().map_err(|_| malformed())
}

/// Names in backticks, with spaces or `<br>` between.
pub(crate) fn test_names(cell: &str) -> Result<Vec<String>, String> {
    let spaced = cell.replace("<br>", " ").replace("<br/>", " ");
    let mut names = Vec::new();
    let mut rest = spaced.trim_start();
    while !rest.is_empty() {
        let (name, after) = rest
            .strip_prefix('`')
            .and_then(|rest| rest.split_once('`'))
            .filter(|(name, _)| !name.is_empty() && !name.contains(' '))
            .ok_or_else(|| {
                format!("`{rest}` is not test names in backticks with spaces or <br> between")
            })?;
        names.push(name.to_owned());
        rest = after.trim_start();
    }
    Ok(names)
}

/// Why a test does not bear out its row, if so.
pub(crate) fn untrue(test: &str, outcomes: &Outcomes) -> Option<String> {
    match outcomes.get(test) {
        Some(Outcome::Passed) => None,
        Some(Outcome::Ignored) => Some("which is ignored".to_owned()),
        Some(Outcome::Failed) => Some("which failed".to_owned()),
        None => Some(match nearest(test, outcomes) {
            Some(name) => format!("which did not run; the nearest name is `{name}`"),
            None => "which did not run".to_owned(),
        }),
    }
}

fn nearest<'a>(test: &str, outcomes: &'a Outcomes) -> Option<&'a str> {
    let names = outcomes.keys().map(String::as_str);
    names.min_by_key(|name| distance(test, name))
}

/// How many letters to add, drop or change to make `a` of `b` (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.bytes().enumerate() {
            let change = above[j] + usize::from(x != y);
            row.push(change.min(above[j + 1] + 1).min(row[j] + 1));
        }
        above = row;
    }
    above[b.len()]
}

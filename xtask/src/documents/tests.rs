use super::*;
use crate::follow::Outcome;

fn outcomes() -> Outcomes {
    Outcomes::from([
        ("demo::it::passes".to_owned(), Outcome::Passed),
        ("demo::it::fails".to_owned(), Outcome::Failed),
    ])
}

/// Rows for everything but the blocks of D4.
const REST: &str = "| block | what | tests |
|---|---|---|
| D0 1–103 | all | `demo::it::passes` |
| D1 1 | all | `demo::it::passes` |
| D2 1–9 | all | not run: it is prose |
| D3 1–38 | all | `demo::it::passes` |
";

fn problems(rows: &str) -> Vec<String> {
    problems_of(&[], rows)
}

fn problems_of(parts: &[Parts], rows: &str) -> Vec<String> {
    check_for(parts, &format!("{REST}{rows}"), &outcomes())
        .iter()
        .map(Problem::to_string)
        .collect()
}

#[test]
fn every_block_once_and_any_number_of_scenarios_is_fine() {
    let rows = "| D4 1–3 | some | `demo::it::passes` |
| D4 4–5 | others | `demo::it::passes`<br>`demo::it::passes` |
| D4 §14.1 | a scenario | `demo::it::passes` |
| D4 §14.1 | the same one | `demo::it::passes` |
";

    assert_eq!(problems(rows), [""; 0]);
}

#[test]
fn a_block_that_is_missing_or_listed_twice_is_told() {
    let rows = "| D4 1–3 | some | `demo::it::passes` |\n| D4 3 | again | `demo::it::passes` |\n";

    assert_eq!(
        problems(rows),
        ["8: D4 3 is listed twice", "8: no row for D4 4, 5"]
    );
}

#[test]
fn a_test_that_did_not_run_or_failed_is_told() {
    let rows = "| D4 1–4 | some | `demo::it::fails` |\n| D4 5 | one | `demo::it::passed` |\n";

    assert_eq!(
        problems(rows),
        [
            "7: D4 1–4 names `demo::it::fails`, which failed",
            "8: D4 5 names `demo::it::passed`, which did not run; the nearest name is `demo::it::passes`"
        ]
    );
}

#[test]
fn a_row_needs_a_block_that_is_there_and_tests_or_a_reason() {
    let rows = "| D4 1–5 | some | not run:  |
| D4 6 | none | `demo::it::passes` |
| D9 1 | none | `demo::it::passes` |
| D4 §1 | prose |  |
";

    assert_eq!(
        problems(rows),
        [
            "7: D4 1–5: `not run:` is not test names in backticks with spaces or <br> between",
            "8: D4 has blocks 1 to 5, not 6",
            "9: `D9 1` is nothing of the documents; ids are D0 5, D0 16–17, D0 §2.4, D0 table 1, D0 metric NAME, D0 log NAME and the like",
            "10: D4 §1 names no test; say `not run: ` and why"
        ]
    );
}

#[test]
fn every_table_metric_and_named_scenario_needs_a_row() {
    let parts = [
        Parts {
            document: "D4",
            kind: "metric",
            names: &["idem.requests_total", "idem.keys_active"],
        },
        Parts {
            document: "D4",
            kind: SCENARIO,
            names: &["14.1", "14.2"],
        },
    ];
    let rows = "| D4 1–5 | some | `demo::it::passes` |
| D4 metric idem.keys_active | one | `demo::it::passes` |
| D4 metric idem.keys_active | again | `demo::it::passes` |
| D4 metric idem.keys | none | `demo::it::passes` |
| D4 §14.1 | a scenario | `demo::it::passes` |
";

    assert_eq!(
        problems_of(&parts, rows),
        [
            "9: D4 metric idem.keys_active is listed twice",
            "10: `D4 metric idem.keys` is nothing of the documents; ids are D0 5, D0 16–17, D0 §2.4, D0 table 1, D0 metric NAME, D0 log NAME and the like",
            "11: no row for D4 metric idem.requests_total",
            "11: no row for D4 §14.2"
        ]
    );
}

/// The text of a document, where there is one.
fn document(name: &str) -> Option<String> {
    let number = name.strip_prefix('D')?;
    let folder = crate::cargo::root().join("../shared/seeds");
    let mut files = std::fs::read_dir(folder).ok()?.flatten();
    let prefix = format!("00{number}_");
    let file = files.find(|file| file.file_name().to_string_lossy().starts_with(&prefix))?;
    std::fs::read_to_string(file.path()).ok()
}

#[test]
fn the_documents_have_what_is_asked_for() {
    for (name, blocks) in BLOCKS {
        let Some(text) = document(name) else {
            continue;
        };
        let fences = |line: &&str| line.trim_start().starts_with("```");
        let count = text.lines().filter(fences).count();
        assert_eq!(count, 2 * blocks as usize, "fences of {name}");
        let rule = |line: &&str| line.starts_with('|') && line.chars().all(|c| "|-: ".contains(c));
        let tables = text.lines().filter(rule).count();
        for parts in parts::ALL.iter().filter(|it| it.document == name) {
            match parts.kind {
                "table" => assert_eq!(parts.names.len(), tables, "tables of {name}"),
                // A number in a list is not written out with its chapter's.
                SCENARIO => {}
                _ => {
                    for part in parts.names {
                        assert!(text.contains(part), "{name} {} {part}", parts.kind);
                    }
                }
            }
        }
    }
}

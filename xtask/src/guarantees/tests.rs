//! A promise without a test that passed is a problem.

use crate::follow::Outcome;

use super::*;

fn outcomes() -> Outcomes {
    [
        ("a::it::holds", Outcome::Passed),
        ("a::it::breaks", Outcome::Failed),
    ]
    .map(|(name, outcome)| (name.to_owned(), outcome))
    .into()
}

fn told(rows: &str) -> Vec<String> {
    let head = HEADS[0];
    let text = format!("# Words\n\n{head}\n{RULE}\n{rows}\n\nMore words with a `a|b`.\n");
    let problems = check(&text, &outcomes());
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_row_whose_tests_passed_is_fine() {
    assert_eq!(told("| a crash | the answer | `a::it::holds` |"), [""; 0]);
}

#[test]
fn a_test_that_failed_or_did_not_run_is_told_with_its_line() {
    let told = told(
        "| a crash | the answer | `a::it::holds`<br>`a::it::breaks` |\n\
         | a cut | the answer | `a::it::hold` |",
    );

    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].starts_with("5: a crash: names `a::it::breaks`"),
        "{told:?}"
    );
    assert!(
        told[1].starts_with("6: a cut: names `a::it::hold`"),
        "{told:?}"
    );
    assert!(told[1].contains("`a::it::holds`"), "{told:?}");
}

#[test]
fn a_row_without_a_test_or_a_promise_is_a_problem() {
    for row in [
        "| a crash | the answer | |",
        "| a crash | | `a::it::holds` |",
        "| a crash |",
    ] {
        assert_eq!(told(row).len(), 1, "{row}");
    }
}

#[test]
fn a_file_without_the_table_is_a_problem() {
    assert_eq!(check("# Words\n", &outcomes()).len(), 1);
    assert_eq!(told("").len(), 1);
}

#[test]
fn every_table_of_a_file_is_checked() {
    let [faults, attacks] = HEADS;
    let text = format!(
        "{faults}\n{RULE}\n| a crash | the answer | `a::it::holds` |\n\nWords.\n\n\
         {attacks}\n{RULE}\n| a lie | the truth | `a::it::breaks` |\n"
    );

    let problems = check(&text, &outcomes());

    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().starts_with("9: a lie: names"));
}

fn told_of_kinds(row: &str) -> Vec<String> {
    let text = format!("{KINDS}\n|---|---|---|---|---|\n{row}\n");
    let problems = check(&text, &outcomes());
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn each_kind_of_upstream_has_a_promise_and_a_test_that_passed() {
    let good = "once<br>`a::it::holds`";

    assert_eq!(
        told_of_kinds(&format!("| a kill | {good} | {good} | {good} | {good} |")),
        [""; 0]
    );
    for bad in ["once", "`a::it::holds`", "once<br>`a::it::breaks`", ""] {
        let told = told_of_kinds(&format!("| a kill | {good} | {bad} | {good} | {good} |"));
        assert_eq!(told.len(), 1, "{bad}: {told:?}");
    }
    let quoting = "`after` passes<br>`a::it::holds`<br>`a::it::holds`";
    assert_eq!(
        told_of_kinds(&format!(
            "| a kill | {good} | {good} | {good} | {quoting} |"
        )),
        [""; 0]
    );
    assert_eq!(
        told_of_kinds(&format!("| a kill | {good} | {good} |")).len(),
        1
    );
}

use super::*;

const HEAD: &str = "# Requirements\n\n| id | clause | tests |\n|---|:--|---|\n";
/// The line of the first row below `HEAD`.
const FIRST: usize = 5;

fn outcomes() -> Outcomes {
    Outcomes::from([
        (
            "onlyonce-core::key::tests::one_key".to_owned(),
            Outcome::Passed,
        ),
        (
            "onlyonce-core::slot::tests::framed".to_owned(),
            Outcome::Passed,
        ),
        (
            "onlyonce-core::slot::tests::broken".to_owned(),
            Outcome::Failed,
        ),
        (
            "onlyonce-tower::it::wait::later".to_owned(),
            Outcome::Ignored,
        ),
    ])
}

fn problems(rows: &str) -> Vec<String> {
    check(&format!("{HEAD}{rows}"), &outcomes())
        .iter()
        .map(Problem::to_string)
        .collect()
}

#[test]
fn rows_whose_tests_passed_are_fine() {
    let rows = r"| K1 | quoted \| bare | `onlyonce-core::key::tests::one_key` |
| PROTOCOL 24 | sealed | `onlyonce-core::key::tests::one_key` `onlyonce-core::slot::tests::framed` |
| KNOWN 11 | spellings | `onlyonce-core::key::tests::one_key`<br>`onlyonce-core::slot::tests::framed` |
| N | numbers | `onlyonce-core::slot::tests::framed` |

Prose between tables.

| id | clause | tests |
| --- | --- | --- |
| K1 | an id may come again | `onlyonce-core::slot::tests::framed` |
";

    assert_eq!(problems(rows), [""; 0]);
}

#[test]
fn the_parser_reads_line_id_and_tests() {
    let (rows, problems) = parse(&format!("{HEAD}| S11 | refused | `a::b`<br/>`c::d` |"));

    let tests = vec!["a::b".to_owned(), "c::d".to_owned()];
    let id = Id("S11".to_owned());
    assert_eq!(
        rows,
        [Row {
            line: FIRST,
            id,
            tests
        }]
    );
    assert_eq!(problems, []);
}

#[test]
fn a_test_that_does_not_exist_gets_the_nearest_name() {
    assert_eq!(
        problems("| K1 | quoted | `onlyonce-core::key::one_key` |"),
        [
            "5: K1 names `onlyonce-core::key::one_key`, which did not run; \
          the nearest name is `onlyonce-core::key::tests::one_key`"
        ]
    );
}

#[test]
fn a_test_that_failed_or_is_ignored_does_not_bear_out_a_row() {
    let rows = "| K6 | framed | `onlyonce-core::slot::tests::broken` |
| S3 | waits | `onlyonce-core::key::tests::one_key` `onlyonce-tower::it::wait::later` |";

    assert_eq!(
        problems(rows),
        [
            "5: K6 names `onlyonce-core::slot::tests::broken`, which failed",
            "6: S3 names `onlyonce-tower::it::wait::later`, which is ignored",
        ]
    );
}

#[test]
fn ids_end_where_the_requirements_end() {
    let good = [
        "K1",
        "K9",
        "S11",
        "R8",
        "T4",
        "B7",
        "G14",
        "O8",
        "X4",
        "N",
        "P",
        "PROTOCOL 1",
        "KNOWN 42",
    ];
    let bad = [
        "",
        "K",
        "K0",
        "K10",
        "K01",
        "K+1",
        "S12",
        "N1",
        "k1",
        "Q1",
        "PROTOCOL",
        "PROTOCOL 43",
        "PROTOCOL 01",
        "PROTOCOL3",
        "KNOWN 43",
        "K1 K2",
    ];

    assert!(good.iter().all(|id| Id::parse(id).is_some()));
    assert!(bad.iter().all(|id| Id::parse(id).is_none()));
}

#[test]
fn an_unknown_id_is_named() {
    let problems = problems("| K10 | more | `onlyonce-core::key::tests::one_key` |");

    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("5: `K10` is no requirement"));
}

#[test]
fn a_row_needs_a_test_and_a_clause() {
    assert_eq!(
        problems("| K1 | quoted | |\n| K2 | | `onlyonce-core::key::tests::one_key` |"),
        [
            "5: K1 names no test; what has none has no row",
            "6: K2 has no clause: say what the tests show",
        ]
    );
}

#[test]
fn malformed_rows_are_reported_and_the_next_row_is_still_read() {
    let rows = "| K1 | quoted |
| K1 | quoted | `onlyonce-core::key::tests::one_key` | more |
| K1 | quoted | `onlyonce-core::key::tests::one_key`
| K1 | quoted | onlyonce-core::key::tests::one_key |
| K1 | quoted | `onlyonce-core::key::tests::one_key`, `onlyonce-core::slot::tests::framed` |
| K1 | quoted | `onlyonce-core::key::tests::one_key |
K1 | quoted | `onlyonce-core::key::tests::one_key`
| K1 | quoted | `gone` |";

    let problems = problems(rows);

    let lines: Vec<_> = problems.iter().map(|problem| &problem[..2]).collect();
    assert_eq!(lines, ["5:", "6:", "7:", "8:", "9:", "10", "11", "12"]);
    assert_eq!(
        problems[0],
        "5: malformed: a row is `| id | clause | tests |`, this has 2 cells"
    );
    assert_eq!(problems[2], "7: malformed: a row ends with `|`");
    assert_eq!(problems[6], "11: not a row; a blank line ends a table");
}

#[test]
fn a_table_with_another_head_is_reported_once() {
    let text = "| id | tests |\n|---|---|\n| K1 | `a` |\n\n| id | clause | test |\n|---|---|---|\n";

    let lines: Vec<_> = check(text, &outcomes()).iter().map(|p| p.line).collect();

    assert_eq!(lines, [1, 5]);
}

#[test]
fn a_head_without_its_rule_is_reported() {
    let text = "| id | clause | tests |\n| K1 | quoted | `onlyonce-core::key::tests::one_key` |\n";

    let problems = check(text, &outcomes());

    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].line, 2);
}

#[test]
fn code_blocks_hold_no_rows_and_must_end() {
    let example = "```\n| K99 | an example | |\n```\n";
    assert_eq!(
        problems(&format!("\n{example}")),
        ["1: no row `| id | clause | tests |` in the whole file"]
    );

    assert_eq!(
        problems("\n```\n| K99 |"),
        ["6: this code block is never closed"]
    );
}

#[test]
fn a_file_without_rows_does_not_look_green() {
    let problems = check("# Requirements\n", &outcomes());

    assert_eq!(problems.len(), 1);
}

#[test]
fn distance_counts_single_letter_edits() {
    assert_eq!(distance("", "abc"), 3);
    assert_eq!(distance("kitten", "sitting"), 3);
    assert_eq!(distance("same", "same"), 0);
}

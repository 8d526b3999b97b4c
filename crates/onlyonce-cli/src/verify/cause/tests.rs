use super::{CODES, Code, Harm, causes};
use crate::verify::CHECKS;
use crate::verify::report::{Finding, Judgement};

fn failed(id: &'static str, code: Code) -> Finding {
    Finding {
        id,
        title: "",
        proves: &[],
        judgement: Judgement::Fail,
        because: String::new(),
        code: Some(code),
        evidence: Vec::new(),
    }
}

#[test]
fn codes_are_unique_and_listed_by_harm() {
    let names: std::collections::BTreeSet<_> = CODES.iter().map(|code| code.name()).collect();

    assert_eq!(names.len(), CODES.len());
    assert!(CODES.is_sorted_by_key(|code| code.harm()));
    assert!(
        CODES
            .iter()
            .all(|code| Code::named(code.name()) == Some(*code))
    );
}

#[test]
fn what_may_run_twice_comes_first_and_takes_its_consequences_along() {
    let findings = [
        failed("marks", Code::Marks),
        failed("date", Code::StaleHeaders),
        failed("mismatch", Code::PayloadRuns),
        failed("replay", Code::RunsAgain),
        failed("quoted-key", Code::KeyFormRuns),
        failed("empty-key", Code::WeakKeys),
    ];

    let found = causes(&findings);

    let told: Vec<_> = found.iter().map(|it| (it.code, &it.checks[..])).collect();
    let of_no_replay = ["replay", "marks", "mismatch", "quoted-key", "empty-key"];
    assert_eq!(
        told,
        [
            ("runs-again", &of_no_replay[..]),
            ("stale-headers", &["date"])
        ]
    );
    assert_eq!(found[0].harm, Harm::RunsTwice);
}

#[test]
fn without_a_broader_cause_each_stands_for_itself() {
    let findings = [
        failed("marks", Code::Marks),
        failed("in-flight-mismatch", Code::PayloadRuns),
    ];

    let codes: Vec<_> = causes(&findings).iter().map(|it| it.code).collect();

    assert_eq!(codes, ["payload-runs", "marks"]);
}

#[test]
fn every_check_and_every_pair_of_causes_lands_in_exactly_one_group() {
    for first in CODES {
        for check in CHECKS {
            let findings = [failed("replay", *first), failed(check.id, check.code)];

            let mut grouped: Vec<_> = causes(&findings)
                .iter()
                .flat_map(|it| it.checks.clone())
                .collect();

            grouped.sort_unstable();
            let mut expected = ["replay", check.id];
            expected.sort_unstable();
            assert_eq!(grouped, expected);
        }
    }
}

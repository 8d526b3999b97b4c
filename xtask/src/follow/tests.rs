use super::*;

fn follow(output: &str) -> Findings {
    let executables = Executables::from([
        ("onlyonce_core-0a1b".to_owned(), "onlyonce-core".to_owned()),
        ("it-2c3d".to_owned(), "onlyonce-tower::it".to_owned()),
    ]);
    let mut follower = Follower::new(&executables);
    output.lines().for_each(|line| follower.line(line));
    follower.finish()
}

fn names(findings: &Findings) -> Vec<&str> {
    findings.outcomes.keys().map(String::as_str).collect()
}

const CORE: &str = "     Running unittests src/lib.rs (target/debug/deps/onlyonce_core-0a1b)\n";

#[test]
fn names_carry_package_and_target_but_unit_tests_only_the_package() {
    let findings = follow(&format!(
        "{CORE}
running 1 test
test key::tests::a_key ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/it/main.rs (target/debug/deps/it-2c3d)

running 1 test
test profiles::stripe ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"
    ));

    assert_eq!(
        names(&findings),
        [
            "onlyonce-core::key::tests::a_key",
            "onlyonce-tower::it::profiles::stripe",
        ]
    );
    assert_eq!(findings.passed, 2);
    assert!(findings.failures.is_empty());
}

#[test]
fn an_unknown_executable_is_named_after_its_file() {
    let findings = follow(
        "     Running unittests src/lib.rs (/elsewhere/deps/other-9f)
running 1 test
test a ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
    );

    assert_eq!(names(&findings), ["other::a"]);
}

#[test]
fn failed_and_ignored_tests_are_failures() {
    let findings = follow(&format!(
        "{CORE}
running 3 tests
test a ... ignored, needs a server
test b ... FAILED
test c ... ok

failures:

---- b stdout ----
test d ... ok

failures:
    b

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
"
    ));

    assert_eq!(findings.passed, 1);
    assert_eq!(
        findings.failures,
        ["ignored: onlyonce-core::a", "failed: onlyonce-core::b"]
    );
    assert_eq!(findings.outcomes["onlyonce-core::a"], Outcome::Ignored);
    assert_eq!(findings.outcomes["onlyonce-core::b"], Outcome::Failed);
    assert_eq!(findings.outcomes["onlyonce-core::c"], Outcome::Passed);
    assert_eq!(findings.outcomes.len(), 3, "output of a test is no test");
}

#[test]
fn a_test_that_should_panic_goes_by_its_plain_name() {
    let findings = follow(&format!(
        "{CORE}running 1 test
test a - should panic ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"
    ));

    assert_eq!(names(&findings), ["onlyonce-core::a"]);
}

#[test]
fn doc_tests_count_but_cannot_be_cited() {
    let findings = follow(
        "   Doc-tests onlyonce_core

running 1 test
test crates/onlyonce-core/src/lib.rs - Key (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 1 test
test crates/onlyonce-core/src/lib.rs - (line 9) ... FAILED

failures:

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
",
    );

    assert!(findings.outcomes.is_empty());
    assert_eq!(findings.passed, 1);
    assert_eq!(
        findings.failures,
        ["failed: onlyonce_core (doc test)::crates/onlyonce-core/src/lib.rs - (line 9)"]
    );
}

#[test]
fn output_that_tears_a_line_does_not_lose_a_passed_test() {
    let findings = follow(&format!(
        "{CORE}running 4 tests
test a ... a server says hello
ok
a server says byetest b ... ok
test c has been running for over 60 seconds
test c ... ok
test d ... FAILED
test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"
    ));

    assert_eq!(findings.passed, 3);
    assert_eq!(findings.outcomes["onlyonce-core::a"], Outcome::Passed);
    assert_eq!(findings.outcomes["onlyonce-core::b"], Outcome::Passed);
    assert_eq!(findings.failures, ["failed: onlyonce-core::d"]);
}

#[test]
fn a_torn_test_is_not_taken_for_passed_while_a_failure_has_no_name() {
    let findings = follow(&format!(
        "{CORE}running 2 tests
test a ... a server says hello
FAILED
test b ... ok
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"
    ));

    assert_eq!(names(&findings), ["onlyonce-core::b"]);
    assert_eq!(
        findings.failures,
        ["failed or ignored: a test of onlyonce-core, name lost"]
    );
}

#[test]
fn a_suite_that_breaks_off_is_a_failure() {
    let findings = follow(&format!(
        "{CORE}running 2 tests
test a ... ok
     Running tests/it/main.rs (target/debug/deps/it-2c3d)
running 0 tests
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"
    ));

    assert_eq!(
        findings.failures,
        ["broke off before its result: onlyonce-core"]
    );
}

#[test]
fn of_two_tests_with_one_name_the_worse_outcome_counts() {
    let suite = |status, result| {
        format!("{CORE}running 1 test\ntest a ... {status}\ntest result: {result}; 0 ignored\n")
    };

    let findings = follow(
        &[
            suite("FAILED", "FAILED. 0 passed; 1 failed"),
            suite("ok", "ok. 1 passed; 0 failed"),
        ]
        .concat(),
    );

    assert_eq!(findings.outcomes["onlyonce-core::a"], Outcome::Failed);
}

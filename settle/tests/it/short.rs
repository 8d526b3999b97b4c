//! A sample of the boundaries, against the programs that the tests built.

use std::path::Path;
use std::process::Command;

/// What the program wrote, and its exit code.
fn settle(args: &str) -> (String, Option<i32>) {
    let program = Path::new(env!("CARGO_BIN_EXE_onlyonce-settle"));
    let output = Command::new(program)
        .arg("run")
        .args(args.split(' '))
        .output();
    let output = output.expect("the program starts");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (text, output.status.code())
}

fn breaks_no_rule(args: &str) {
    let (said, code) = settle(args);

    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(" 0 violations"), "{said}");
    assert!(!said.contains("\n0 boundaries tried"), "{said}");
}

fn is_found(args: &str, as_what: &str) {
    let (said, code) = settle(args);

    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(as_what), "{said}");
    assert!(said.contains("the planted bug was found"), "{said}");
}

#[test]
fn an_upstream_with_its_answer_in_its_transaction_survives_kills_at_system_calls() {
    breaks_no_rule("--kinds transactional,late --sample 3 --random 1");
}

#[test]
fn an_upstream_that_takes_keys_survives_kills_at_system_calls() {
    breaks_no_rule("--kinds keyed --sample 3 --random 1");
}

#[test]
fn an_upstream_that_can_be_asked_survives_kills_at_system_calls() {
    breaks_no_rule("--kinds readable --sample 3 --random 1");
}

#[test]
fn an_upstream_that_can_do_nothing_is_held_and_resolved_after_kills_at_system_calls() {
    breaks_no_rule("--kinds opaque --sample 3 --random 1");
}

#[test]
fn a_handler_of_three_steps_survives_kills_at_system_calls() {
    breaks_no_rule("--kinds steps --sample 3 --random 1");
}

#[test]
fn a_job_that_can_be_looked_up_survives_kills_at_system_calls() {
    breaks_no_rule("--kinds job --sample 3 --random 1");
}

#[test]
fn a_look_that_takes_a_timeout_for_a_no_is_found() {
    is_found(
        "--planted-bug timeout-is-no --stores file --sample 12 --random 0",
        "charge happened 2 times",
    );
}

#[test]
fn a_lease_that_survives_its_loss_is_found() {
    is_found(
        "--planted-bug lease-survives --sample 6 --random 0",
        "charge happened 2 times",
    );
}

#[test]
fn a_step_that_forgets_its_name_is_found() {
    is_found(
        "--planted-bug nameless-step --stores file --sample 8 --random 0",
        "happened 2 times",
    );
}

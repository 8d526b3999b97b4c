//! Runs of a minute and a half at most, against the programs that the tests built.

use std::path::Path;
use std::process::Command;

/// Five Redis servers of which some are killed, hang, lose their disks or have wrong clocks.
const QUORUM: &str = "--stores quorum --faults 18 --operations 800 --clients 6 \
                      --only kill,pause,store-kill,store-hang,store-stall,store-cut,disk-loss,\
                      store-clock,majority-loss";

/// What the program wrote, and its exit code.
fn chaos(args: &str) -> (String, Option<i32>) {
    let program = Path::new(env!("CARGO_BIN_EXE_onlyonce-chaos"));
    let output = Command::new(program)
        .arg("run")
        .args(args.split(' '))
        .output();
    let output = output.expect("the program starts");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (text, output.status.code())
}

#[test]
fn gateways_on_redis_postgres_and_files_break_no_rule_under_faults() {
    let (said, code) = chaos(
        "--stores redis,file,postgres --faults 18 --operations 1500 --jobs 6 --clients 6 \
         --only kill,pause,client-loss,clock,disk-full,store-restart",
    );

    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(" 0 violations"), "{said}");
}

#[test]
fn a_store_that_does_not_fence_is_found_out() {
    let (said, code) = chaos(
        "--planted-bug --stores redis --on-lapse rerun --faults 8 --operations 300 --only pause",
    );

    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("every client sees one and the same final answer"),
        "{said}"
    );
    assert!(said.contains("the planted bug was found"), "{said}");
}

#[test]
fn gateways_on_a_quorum_break_no_rule_while_its_servers_are_in_trouble() {
    let (said, code) = chaos(QUORUM);

    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(" 0 violations"), "{said}");
}

#[test]
fn plain_redlock_fails_the_same_run() {
    let (said, code) = chaos(&format!("--planted-bug=redlock {QUORUM}"));

    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("with hold nothing runs twice"), "{said}");
    assert!(said.contains("the planted bug was found"), "{said}");
}

/// What was decided while some servers were down is on a bare majority. If servers of that lose their
/// disks and vote, it is gone.
#[test]
fn servers_that_vote_after_losing_their_disks_are_found_out() {
    let (said, code) = chaos(
        "--planted-bug=forgetful --stores quorum --on-lapse hold --faults 12 --operations 400 \
         --only store-kill,disk-loss",
    );

    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("with hold nothing runs twice"), "{said}");
    assert!(said.contains("the planted bug was found"), "{said}");
}

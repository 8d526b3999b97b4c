//! Seeded runs: none may break a rule, and every planted bug must be found by the same runs.

use super::world::{Outcome, Plan, Planted, run};

/// Fresh seeds are run by `QUORUM_SEEDS=first..last`.
const SEEDS: std::ops::Range<u64> = 0..150;

fn seeds() -> std::ops::Range<u64> {
    let Ok(given) = std::env::var("QUORUM_SEEDS") else {
        return SEEDS;
    };
    let (first, last) = given.split_once("..").expect("first..last");
    first.parse().unwrap()..last.parse().unwrap()
}

fn runs(servers: usize, brief: bool, planted: Planted) -> impl Iterator<Item = (u64, Outcome)> {
    seeds().map(move |seed| {
        let plan = Plan {
            seed,
            servers,
            brief,
            planted,
        };
        (seed, run(plan))
    })
}

fn assert_sound(servers: usize, brief: bool) {
    let (mut operations, mut errors, mut faults, mut started, mut replays) = (0, 0, 0, 0, 0);
    let mut expired = 0;
    for (seed, outcome) in runs(servers, brief, Planted::Nothing) {
        assert!(
            outcome.violations.is_empty(),
            "seed {seed}: {:?}",
            outcome.violations
        );
        operations += outcome.counts.operations;
        errors += outcome.counts.errors;
        faults += outcome.counts.faults;
        started += outcome.counts.runs;
        replays += outcome.counts.replays;
        expired += outcome.counts.expired;
    }
    println!(
        "{servers} servers: {operations} operations, {faults} faults, {started} runs, {replays} \
         replays, {expired} expired, {errors} errors, 0 violations"
    );
    assert!(started > 0 && replays > 0 && faults > 0);
    assert_eq!(expired > 0, brief);
}

#[test]
fn three_servers_under_faults_break_no_rule() {
    assert_sound(3, false);
}

#[test]
fn five_servers_under_faults_break_no_rule() {
    assert_sound(5, false);
}

#[test]
fn records_of_three_servers_expire_when_they_should() {
    assert_sound(3, true);
}

#[test]
fn records_of_five_servers_expire_when_they_should() {
    assert_sound(5, true);
}

fn assert_found(planted: Planted) {
    let found = runs(3, false, planted).find(|(_, outcome)| !outcome.violations.is_empty());
    let (seed, outcome) = found.expect("the planted bug is found");
    println!("{planted:?}: seed {seed}: {}", outcome.violations[0]);
}

#[test]
fn plain_redlock_is_found_out() {
    assert_found(Planted::Redlock);
}

#[test]
fn a_server_that_votes_after_losing_its_data_is_found_out() {
    assert_found(Planted::VotesAfterLoss);
}

#[test]
fn a_server_that_is_admitted_without_writing_back_is_found_out() {
    assert_found(Planted::AdmittedAtOnce);
}

#[test]
fn a_server_that_is_admitted_in_the_old_epoch_is_found_out() {
    assert_found(Planted::EpochNotRaised);
}

#[test]
fn a_process_that_goes_on_in_a_new_epoch_with_old_promises_is_found_out() {
    assert_found(Planted::FollowsEpoch);
}

#[test]
fn a_seed_is_one_history() {
    let plan = Plan {
        seed: 7,
        servers: 3,
        brief: false,
        planted: Planted::Nothing,
    };
    let (one, two) = (run(plan), run(plan));
    assert_eq!(format!("{:?}", one.counts), format!("{:?}", two.counts));
}

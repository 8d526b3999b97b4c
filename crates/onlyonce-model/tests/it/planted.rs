//! A model that finds no planted bug shows nothing.

use onlyonce_model::{Explored, engines, planted_in_engines, planted_in_quorum, quorum};

fn rules_broken(explored: &Explored) -> Vec<&'static str> {
    println!("{explored}");
    explored.broken.iter().map(|(rule, _)| *rule).collect()
}

#[test]
fn a_store_that_does_not_compare_tokens_is_found_out() {
    let broken = rules_broken(&planted_in_engines(engines::Bug::FencingOff));

    assert!(
        broken.contains(&"a lost lease never completes"),
        "{broken:?}"
    );
}

#[test]
fn a_store_that_forgets_released_tokens_is_found_out() {
    let broken = rules_broken(&planted_in_engines(engines::Bug::ForgetsReleases));

    let rule =
        "a released token stays dead for one lease: a late copy of its claim revives nothing";
    assert!(broken.contains(&rule), "{broken:?}");
}

#[test]
fn a_handler_that_starts_on_a_lapsed_lease_is_found_out() {
    let broken = rules_broken(&planted_in_engines(engines::Bug::StaleStart));

    let rule = "a handler starts only with its own pending token in the store";
    assert!(broken.contains(&rule), "{broken:?}");
}

#[test]
fn an_answer_sent_before_it_is_stored_is_found_out() {
    let broken = rules_broken(&planted_in_engines(engines::Bug::AnswerBeforeStored));

    let rule = "an answer is sent only once it is stored, and equals what is stored";
    assert!(broken.contains(&rule), "{broken:?}");
}

#[test]
fn an_admission_without_a_new_epoch_is_found_out() {
    let broken = rules_broken(&planted_in_quorum(quorum::Bug::EpochNotRaised));

    assert!(
        broken.contains(&"a slot has at most one live lease"),
        "{broken:?}"
    );
}

#[test]
fn a_proposer_that_goes_on_in_a_new_epoch_with_old_promises_is_found_out() {
    let broken = rules_broken(&planted_in_quorum(quorum::Bug::FollowsEpoch));

    assert!(
        broken.contains(&"a slot has at most one live lease"),
        "{broken:?}"
    );
}

#[test]
fn an_admission_without_writing_back_is_found_out() {
    let broken = rules_broken(&planted_in_quorum(quorum::Bug::AdmittedAtOnce));

    assert!(
        broken.contains(&"a slot has at most one live lease"),
        "{broken:?}"
    );
}

#[test]
fn an_acceptor_that_votes_after_losing_its_disk_is_found_out() {
    let broken = rules_broken(&planted_in_quorum(quorum::Bug::VotesAfterLoss));

    assert!(
        broken.contains(&"a slot has at most one live lease"),
        "{broken:?}"
    );
}

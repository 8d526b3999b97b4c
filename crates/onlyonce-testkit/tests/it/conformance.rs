//! The suite on the memory store, and the proof that it can fail: stores with one flaw each, and
//! the function that finds it.

use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::Path;

use futures_util::FutureExt;
use onlyonce_testkit::conformance::{MemoryBed, TestBed};

use self::flawed::{Flaw, FlawedBed};

mod flawed;

onlyonce_testkit::conformance_suite!(MemoryBed::new());

/// Each flaw is found by the function beside it, and that function has nothing against the same
/// store without the flaw.
macro_rules! found_out {
    ($($name:ident: $flaw:ident by $group:ident::$test:ident,)+) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            let test = onlyonce_testkit::conformance::$group::$test;

            assert!(passes(test, &FlawedBed::new(Flaw::None)).await);
            assert!(!passes(test, &FlawedBed::new(Flaw::$flaw)).await);
        }
    )+};
}

async fn passes(test: impl AsyncFn(&dyn TestBed), bed: &FlawedBed) -> bool {
    let run = AssertUnwindSafe(test(bed)).catch_unwind();
    run.await.is_ok()
}

found_out! {
    a_store_that_checks_and_then_sets_is_found_out:
        ChecksThenSets by racing::of_racing_claims_exactly_one_is_granted,
    a_store_that_ignores_the_fingerprint_is_found_out:
        IgnoresFingerprint by claims::a_different_fingerprint_is_not_granted_even_a_lapsed_claim,
    a_store_that_recalls_an_answer_to_something_else_is_found_out:
        RecallsAnything by finishing::what_is_recalled_is_what_a_claim_would_find,
    a_store_that_takes_a_repeated_claim_for_a_rival_is_found_out:
        RefusesOwnToken by claims::the_own_token_again_is_the_same_attempt,
    a_store_that_ignores_hold_is_found_out:
        IgnoresHold by lapses::the_holders_hold_wins,
    a_store_with_one_deadline_for_lease_and_retention_is_found_out:
        ForgetsLapsed by lapses::a_lapsed_claim_is_granted_to_an_equal_one,
    a_store_without_fencing_is_found_out:
        CompletesForAnyone by finishing::a_lost_lease_cannot_complete_while_its_successor_runs,
    a_store_that_refuses_a_late_completion_is_found_out:
        RefusesLate by finishing::a_late_completion_that_nobody_overtook_is_welcome,
    a_store_that_overwrites_an_answer_is_found_out:
        Overwrites by finishing::a_repeated_completion_returns_what_is_stored,
    a_store_that_counts_retention_from_the_claim_is_found_out:
        KeepsFromClaim by finishing::retention_is_counted_from_the_completion,
    a_store_that_renews_for_anyone_is_found_out:
        RenewsForAnyone by renewing::a_lost_lease_cannot_be_renewed,
    a_store_that_adds_a_renewal_to_the_lease_is_found_out:
        AddsRenewals by renewing::a_renewal_counts_from_now,
    a_store_that_releases_for_anyone_is_found_out:
        ReleasesForAnyone by releasing::nobody_releases_somebody_elses_claim,
    a_store_that_revives_a_released_token_is_found_out:
        RevivesTokens by releasing::a_released_token_is_dead,
    a_store_that_revives_a_token_released_too_early_is_found_out:
        RevivesTokens by releasing::a_release_that_overtakes_its_claim_kills_the_token,
    a_store_that_frees_an_unknown_outcome_is_found_out:
        FreesUnknown by releasing::an_unknown_end_under_hold_is_never_claimable,
    a_store_that_wakes_nobody_is_found_out:
        WakesNobody by waiting::a_completion_wakes_who_waits,
    a_store_that_wakes_all_the_time_is_found_out:
        WakesAlways by waiting::nobody_is_woken_for_nothing_all_the_time,
    a_store_that_keeps_bodies_as_text_is_found_out:
        BodiesAsText by answers::a_body_is_bytes_not_text,
    a_store_that_keeps_one_header_a_name_is_found_out:
        HeadersOnce by answers::repeated_headers_keep_their_order,
    a_store_that_drops_trailers_is_found_out:
        DropsTrailers by answers::trailers_are_not_headers,
    a_store_that_extends_a_lease_is_found_out:
        ExtendsLeases by operating::an_extended_claim_is_kept_longer_but_lapses_as_before,
    a_store_that_resolves_a_live_claim_is_found_out:
        ResolvesLive by operating::a_live_claim_cannot_be_resolved,
    a_store_that_keeps_an_answer_by_hand_shorter_is_found_out:
        ResolvesShorter by operating::a_resolution_shortens_no_retention,
    a_store_that_discards_what_is_not_in_doubt_is_found_out:
        DiscardsAnything by operating::only_what_is_in_doubt_is_discarded,
    a_store_that_sweeps_live_records_is_found_out:
        SweepsLive by upkeep::a_sweep_drops_only_what_has_expired,
    a_store_that_counts_a_slot_once_a_batch_is_found_out:
        CountsOnce by upkeep::replays_are_added_up,
    a_store_that_agrees_on_the_last_offer_is_found_out:
        LastOfferWins by upkeep::the_first_offer_is_agreed_on,
    a_store_that_gives_the_first_page_again_is_found_out:
        FirstPageAgain by listing::the_pages_of_a_list_hold_every_record_once,
}

#[test]
fn every_function_is_in_the_suite() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../onlyonce-conformance/src");
    let suite = fs::read_to_string(sources.join("lib.rs")).unwrap();
    let listed: Vec<_> = suite.lines().map(str::trim).collect();
    let mut functions = 0;

    for file in fs::read_dir(sources).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines() {
            let name = line.strip_prefix("pub async fn ");
            let Some((name, _)) = name.and_then(|line| line.split_once('(')) else {
                continue;
            };
            assert!(listed.contains(&name), "{name} is not in the suite");
            functions += 1;
        }
    }

    assert!(functions > 100, "only {functions} functions found");
}

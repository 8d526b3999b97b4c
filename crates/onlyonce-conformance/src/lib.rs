//! What every store must do (docs/protocol.md, rules 1 to 7, B5), as plain functions whose names are the
//! sentences. A store's tests make a [`TestBed`], and [`conformance_suite!`](crate::conformance_suite)
//! turns every function into a test of the same name:
//!
//! ```
//! use onlyonce_conformance::MemoryBed;
//!
//! onlyonce_conformance::conformance_suite!(MemoryBed::new());
//! # fn main() {}
//! ```
//!
//! Timing decides nothing: what must still live is given a minute, what must be over a fraction of
//! a second, and time that is left is compared with the time a test took.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Store, async_trait};

pub use memory::MemoryBed;

pub mod answers;
pub mod claims;
pub mod expiring;
pub mod finishing;
pub mod lapses;
pub mod listing;
mod memory;
pub mod operating;
pub mod racing;
pub mod records;
pub mod releasing;
pub mod renewing;
mod subject;
mod timing;
pub mod upkeep;
pub mod waiting;

/// A store to test, and its time. Empty at first, and nothing else uses it.
#[async_trait]
pub trait TestBed: Send + Sync {
    /// What a failing test calls the store.
    fn name(&self) -> &str;

    /// The store. Each call gives the same records.
    fn store(&self) -> Arc<dyn Store>;

    /// Lets this much time pass on the store's clock, or a little more.
    async fn advance(&self, by: Duration);

    /// Whether the store drops expired records without being swept, so that a sweep finds none.
    fn expires_by_itself(&self) -> bool {
        false
    }
}

/// Expands to a module `suite` with one `#[tokio::test]` for every function of the
/// [conformance suite](crate), under its name.
///
/// The argument is an expression that makes a [`TestBed`](crate::TestBed); it is
/// evaluated in each test, may await, and sees what the calling module sees. The calling crate
/// needs tokio with `macros` and `rt-multi-thread`.
///
/// `conformance_suite!(verbs: …)` leaves out what only an operators' side can do; the suite then
/// needs no more of [`Operate`](onlyonce_core::Operate) than `get`.
#[macro_export]
macro_rules! conformance_suite {
    (@tests $runtime:tt $bed:expr, $($group:ident { $($name:ident)+ })+) => {$($(
        #[tokio::test $runtime]
        async fn $name() {
            let bed = $bed;
            $crate::$group::$name(&bed).await;
        }
    )+)+};
    (@verbs $bed:expr) => {
        $crate::conformance_suite! { @tests () $bed,
            claims {
                an_empty_slot_is_granted
                an_expired_answer_is_granted_anew
                an_expired_claim_is_granted_anew_even_under_hold
                a_live_claim_is_taken
                a_claim_in_vain_changes_nothing
                the_own_token_again_is_the_same_attempt
                the_own_token_again_is_granted_even_when_lapsed
                the_own_token_again_has_a_whole_lease_again
                the_own_token_again_after_completion_finds_the_answer
                a_different_fingerprint_is_not_granted_a_live_claim
                a_different_fingerprint_is_not_granted_even_a_lapsed_claim
                a_different_fingerprint_is_not_granted_a_finished_record
                a_different_fingerprint_is_not_granted_an_unknown_outcome
                a_lease_of_no_time_is_lapsed_at_once
                slots_that_differ_in_one_bit_are_two
                slots_are_bytes_not_text
                tokens_are_bytes_not_text
                a_slot_does_not_change_with_its_neighbours
            }
            lapses {
                a_lapsed_claim_is_granted_to_an_equal_one
                a_claim_taken_over_is_live_again
                every_takeover_is_one_more_attempt
                a_takeover_keeps_when_the_slot_was_first_claimed
                a_takeover_shows_its_own_end_of_retention
                an_overtaken_token_is_not_granted_again
                the_holders_hold_wins
                the_claimants_hold_wins
                hold_on_both_sides_is_hold
                a_lapsed_claim_is_kept_for_its_retention
                a_lapsed_claim_is_gone_after_lease_and_retention
                a_lapsed_claim_in_the_way_of_another_request_stays
            }
            finishing {
                a_stored_answer_is_found_by_every_later_claim
                an_answer_outlives_the_lease_it_was_made_under
                what_is_recalled_is_what_a_claim_would_find
                another_token_cannot_complete
                another_token_cannot_complete_even_a_lapsed_claim
                a_lost_lease_cannot_complete_while_its_successor_runs
                a_lost_lease_gets_what_its_successor_stored
                a_late_completion_that_nobody_overtook_is_welcome
                a_repeated_completion_returns_what_is_stored
                completing_what_was_never_claimed_changes_nothing
                completing_what_was_given_back_changes_nothing
                completing_what_ended_unknown_is_welcome_only_under_rerun
                retention_is_counted_from_the_completion
                retention_may_be_shorter_than_the_claim_asked
                retention_may_be_longer_than_the_claim_asked
                an_answer_kept_for_no_time_is_gone_at_once
                an_answer_may_be_kept_for_a_century
                a_receipt_says_what_the_record_says
                a_token_of_zeros_is_a_token_like_any_other
            }
            renewing {
                a_renewed_claim_outlives_its_first_lease
                a_renewal_counts_from_now
                a_renewal_may_shorten_the_lease
                a_renewed_claim_is_kept_for_lease_and_retention_again
                a_renewal_shows_its_own_end_of_retention
                a_lapsed_claim_that_nobody_overtook_can_be_renewed
                a_lost_lease_cannot_be_renewed
                what_is_over_cannot_be_renewed
            }
            releasing {
                a_claim_that_did_not_run_frees_its_slot
                even_a_held_or_lapsed_claim_that_did_not_run_frees_its_slot
                a_claim_that_took_over_and_did_not_run_forgets_no_earlier_attempt
                a_released_token_is_dead
                a_released_token_stays_dead_whatever_happens_to_its_slot
                a_token_released_as_unknown_is_dead_too
                a_release_that_overtakes_its_claim_kills_the_token
                a_release_that_overtakes_its_claim_leaves_the_holder_alone
                nobody_releases_somebody_elses_claim
                a_lost_lease_cannot_release_its_successor
                an_unknown_end_under_rerun_is_claimable_at_once
                an_unknown_end_under_rerun_yields_to_no_other_request
                an_unknown_end_under_hold_is_never_claimable
                an_unknown_end_is_kept_for_lease_and_retention
                a_repeated_release_changes_nothing_more
                a_repeated_unknown_end_changes_nothing_more
                an_unknown_end_under_hold_cannot_be_given_back
                a_finished_record_cannot_be_released
                releasing_what_is_not_there_is_an_end_too
            }
            waiting {
                there_is_nothing_to_wait_for_in_an_empty_slot
                a_change_before_the_wait_is_not_missed
                a_lapse_before_the_wait_is_not_missed
                a_takeover_before_the_wait_is_not_missed
                a_completion_wakes_who_waits
                a_release_wakes_who_waits
                a_lapse_wakes_who_waits
                nobody_waits_longer_than_asked
                nobody_is_woken_for_nothing_all_the_time
                all_waiters_of_a_slot_are_woken
                who_waits_again_is_woken_again
            }
            records {
                a_pending_record_tells_everything_of_its_claim
                what_a_claim_does_not_tell_stays_untold
                text_for_people_may_be_in_any_script
                a_finished_record_tells_everything_of_its_claim_and_answer
                a_later_attempt_is_told_with_its_answer
                an_unknown_outcome_tells_everything_of_its_claim
                a_record_reads_the_same_each_time
                an_answer_in_a_reused_slot_is_the_new_one
            }
            answers {
                a_body_is_bytes_not_text
                an_empty_body_stays_empty
                a_large_body_is_stored_whole
                repeated_headers_keep_their_order
                header_values_are_bytes_not_text
                trailers_are_not_headers
                who_made_an_answer_is_kept
                a_failure_is_stored_as_one
            }
        }
        $crate::conformance_suite! { @tests (flavor = "multi_thread", worker_threads = 4) $bed,
            racing {
                of_racing_claims_exactly_one_is_granted
                of_racing_claims_for_different_requests_exactly_one_is_granted
                of_racing_takeovers_exactly_one_is_granted
                of_racing_claims_for_an_expired_slot_exactly_one_is_granted
                a_repeated_claim_that_races_itself_is_one_attempt
                claims_for_different_slots_do_not_hinder_each_other
                of_racing_completions_exactly_one_is_stored
                a_late_completion_and_a_takeover_have_one_winner
                a_late_renewal_and_a_takeover_have_one_winner
                a_completion_that_races_its_waiters_wakes_them_all
            }
        }
    };
    (@operators $bed:expr) => {
        $crate::conformance_suite! { @tests () $bed,
            waiting {
                forgetting_a_claim_wakes_who_waits
            }
            expiring {
                an_expired_answer_is_absent_for_every_verb
                an_expired_claim_is_absent_for_every_verb
                an_expired_unknown_outcome_is_absent_for_every_verb
            }
            operating {
                an_empty_slot_has_no_record
                a_forgotten_record_is_gone_whatever_its_state
                a_forgotten_answer_is_not_recalled
                what_is_not_there_cannot_be_forgotten
                the_holder_of_a_forgotten_claim_finds_nothing
                an_extended_answer_is_kept_that_much_longer
                an_extended_unknown_outcome_is_kept_that_much_longer
                an_extended_claim_is_kept_longer_but_lapses_as_before
                an_extension_outlives_a_renewal
                the_answer_of_an_extended_claim_is_kept_that_much_longer
                an_answer_may_be_kept_shorter_than_its_claim
                what_is_not_there_cannot_be_extended
                an_unknown_outcome_can_be_resolved
                a_lapsed_claim_can_be_resolved
                a_live_claim_cannot_be_resolved
                a_finished_record_cannot_be_resolved
                what_is_not_there_cannot_be_resolved
                a_resolution_as_a_failure_is_one
                a_resolution_shortens_no_retention
                what_is_in_doubt_can_be_discarded
                only_what_is_in_doubt_is_discarded
            }
            upkeep {
                the_store_answers
                a_sweep_drops_no_more_than_it_is_told
                a_sweep_drops_only_what_has_expired
                a_sweep_follows_a_record_whose_end_has_moved
                what_has_ended_is_handed_over_once_with_what_was_known_of_it
                sweeps_at_the_same_time_are_handed_different_ends
                the_stats_count_what_is_live
                an_unknown_outcome_does_not_count_as_pending
                replays_are_added_up
                a_new_record_has_no_replays_of_the_old_one
                the_first_offer_is_agreed_on
                what_is_agreed_on_is_no_record
            }
            listing {
                an_empty_store_lists_nothing
                a_list_is_in_the_order_of_the_slots
                the_pages_of_a_list_hold_every_record_once
                a_page_may_begin_where_no_record_is
                a_page_of_none_is_empty
                a_listed_record_is_the_record
                a_list_leaves_out_what_has_expired
                a_list_can_be_of_one_state
                a_list_can_be_of_one_operation_or_actor
                a_list_can_be_of_one_key
                a_list_can_be_of_what_is_old_or_young
                the_pages_of_a_filtered_list_are_full
                an_expired_lapse_is_in_no_list
                the_newest_records_come_first
                the_pages_of_the_newest_hold_every_record_once
                the_newest_can_be_of_one_state_operation_and_actor
            }
        }
        $crate::conformance_suite! { @tests (flavor = "multi_thread", worker_threads = 4) $bed,
            racing {
                racing_replay_counts_are_all_added_up
                racing_offers_agree_on_one
            }
        }
    };
    (verbs: $bed:expr) => { mod suite {
        #[allow(unused_imports, reason = "what the expression needs is not known here")]
        use super::*;

        $crate::conformance_suite! { @verbs $bed }
    }};
    ($bed:expr) => { mod suite {
        #[allow(unused_imports, reason = "what the expression needs is not known here")]
        use super::*;

        $crate::conformance_suite! { @verbs $bed }
        $crate::conformance_suite! { @operators $bed }
    }};
}

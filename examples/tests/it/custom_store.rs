//! The conformance suite against the custom store: all of it that five verbs can answer. A store
//! with an operators' side runs the whole of it by `onlyonce_testkit::conformance_suite!`.

use std::sync::Arc;
use std::time::Duration;

use onlyonce::operate::{Filter, Page, Resolved, Stats};
use onlyonce::{
    Claim, Claimed, Clock, Completed, Lease, Operate, OsEntropy, Record, Release, Released,
    Renewed, Response, Slot, Store, StoreError, StoreErrorKind, SystemClock, Timestamp, Token,
    async_trait,
};
use onlyonce_testkit::conformance::{self, TestBed};
use tokio::runtime::{Handle, RuntimeFlavor};

use example::MapStore;

#[path = "../../custom_store.rs"]
#[expect(dead_code, reason = "its main is for `cargo run`")]
mod example;

macro_rules! suite {
    ($runtime:tt $($group:ident { $($name:ident)+ })+) => {$($(
        #[tokio::test $runtime]
        async fn $name() {
            conformance::$group::$name(&Bed::new()).await;
        }
    )+)+};
}

suite! { ()
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
        a_released_token_is_dead
        a_released_token_stays_dead_whatever_happens_to_its_slot
        a_release_that_overtakes_its_claim_kills_the_token
        a_release_that_overtakes_its_claim_leaves_the_holder_alone
        nobody_releases_somebody_elses_claim
        a_lost_lease_cannot_release_its_successor
        an_unknown_end_under_rerun_is_claimable_at_once
        an_unknown_end_under_rerun_yields_to_no_other_request
        an_unknown_end_under_hold_is_never_claimable
        an_unknown_end_is_kept_for_its_retention
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
        a_body_is_bytes_not_text
        an_empty_body_stays_empty
        a_large_body_is_stored_whole
        repeated_headers_keep_their_order
        header_values_are_bytes_not_text
        trailers_are_not_headers
        who_made_an_answer_is_kept
        a_failure_is_stored_as_one
        a_record_reads_the_same_each_time
        an_answer_in_a_reused_slot_is_the_new_one
    }
}

suite! { (flavor = "multi_thread", worker_threads = 4)
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

/// The store on tokio's clock: paused on a runtime of one thread, real where tests race.
struct Bed {
    store: Arc<Readable>,
}

impl Bed {
    fn new() -> Self {
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            tokio::time::pause();
        }
        let store = MapStore::new(Arc::new(BedClock(SystemClock::new())));
        Self {
            store: Arc::new(Readable(store)),
        }
    }
}

#[async_trait]
impl TestBed for Bed {
    fn name(&self) -> &str {
        NAME
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as _
    }

    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }
}

/// Shows the time that passes, also when it is paused.
struct BedClock(SystemClock);

impl Clock for BedClock {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(1_735_689_600_000).plus(self.now())
    }
}

const NAME: &str = "map";

/// The store with as much of an operators' side as the suite needs to look at records.
struct Readable(MapStore);

#[async_trait]
impl Store for Readable {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.0.claim(claim).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        self.0.renew(lease, lease_for).await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        self.0.complete(lease, response, keep_for).await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        self.0.release(lease, why).await
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.0.settled(slot, seen, at_most).await
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }
}

#[async_trait]
impl Operate for Readable {
    /// Completes under a token that nobody has: fenced, that only reads.
    async fn get(&self, slot: &Slot) -> Result<Option<Record>, StoreError> {
        let nobody = Lease {
            slot: *slot,
            token: Token::generate(&OsEntropy::new()),
            lease_for: Duration::ZERO,
            keep_for: Duration::ZERO,
            attempt: 1,
        };
        let nothing = Arc::new(Response::panicked());
        match self.0.complete(&nobody, &nothing, Duration::ZERO).await? {
            Completed::Found(record) => Ok(Some(record)),
            Completed::Absent => Ok(None),
            Completed::Stored(_) => panic!("a token that nobody has completed a claim"),
        }
    }

    async fn list(&self, _: &Filter, _: &Page) -> Result<Vec<(Slot, Record)>, StoreError> {
        Err(beyond_five_verbs())
    }

    async fn forget(&self, _: &Slot) -> Result<bool, StoreError> {
        Err(beyond_five_verbs())
    }

    async fn extend(&self, _: &Slot, _: Duration) -> Result<bool, StoreError> {
        Err(beyond_five_verbs())
    }

    async fn resolve(
        &self,
        _: &Slot,
        _: &Arc<Response>,
        _: Duration,
    ) -> Result<Resolved, StoreError> {
        Err(beyond_five_verbs())
    }

    async fn sweep(&self, _: usize) -> Result<usize, StoreError> {
        Err(beyond_five_verbs())
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        Err(beyond_five_verbs())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Err(beyond_five_verbs())
    }

    async fn count_replays(&self, _: &[(Slot, u64)]) -> Result<(), StoreError> {
        Err(beyond_five_verbs())
    }

    async fn agree(&self, _: &str, _: &[u8]) -> Result<Vec<u8>, StoreError> {
        Err(beyond_five_verbs())
    }
}

fn beyond_five_verbs() -> StoreError {
    StoreError::new(NAME, StoreErrorKind::Unavailable)
}

//! The checks there are: each a promise in one sentence, with the requirements it is part of.

use std::pin::Pin;

use super::cause::Code;
use super::checks::{
    bodies, hang_up, headers, keys, payloads, refusals, replay, running, scope, time,
};
use super::plan::PlanError;
use super::probe::Probe;
use super::report::Judged;

/// How a check ends; early, where nothing more can be learnt.
pub(crate) type Ruling = Result<Judged, Judged>;
type Ruled<'a> = Pin<Box<dyn Future<Output = Ruling> + 'a>>;

/// One promise and the function that looks whether it holds.
pub struct Check {
    /// Its name on the command line.
    pub id: &'static str,
    /// The promise.
    pub title: &'static str,
    /// The requirements it is part of.
    pub proves: &'static [&'static str],
    /// Why it usually fails.
    pub code: Code,
    pub(crate) run: for<'a> fn(&'a Probe<'a>) -> Ruled<'a>,
}

macro_rules! checks {
    ($($id:literal $title:literal [$($proves:literal),*] $code:ident $run:path;)*) => {
        /// Every check, in the order they are run.
        pub static CHECKS: &[Check] = &[$(Check {
            id: $id,
            title: $title,
            proves: &[$($proves),*],
            code: Code::$code,
            run: |probe| Box::pin($run(probe)),
        }),*];
    };
}

checks! {
    "new-key" "a new key runs anew" ["K1", "S1"] KeysConfused
        replay::a_new_key_runs_anew;
    "replay" "the same key gets the same answer, with the profile's status" ["S1", "R2"] RunsAgain
        replay::the_same_key_gets_the_same_answer;
    "marks" "answers and replays carry the profile's marks" ["R3"] Marks
        replay::answers_and_replays_carry_the_marks;
    "mismatch" "another payload under the same key gets what the profile says" ["K8", "S11"] PayloadIgnored
        payloads::another_payload_gets_what_the_profile_says;
    "query" "another query under the same key is another request" ["K8"] QueryIgnored
        payloads::another_query_is_another_request;
    "json-spelling" "member order and white space of JSON do not conflict" ["K8"] SpellingRuns
        payloads::another_spelling_of_the_same_json_is_a_retry;
    "concurrency" "of many duplicates at once, one runs" ["S2"] DuplicatesRun
        running::of_many_duplicates_at_once_one_runs;
    "in-flight" "a duplicate waits or is told at once, as the profile says" ["S3"] DuplicatesRun
        running::a_duplicate_of_a_running_request_gets_what_the_profile_says;
    "in-flight-mismatch" "another payload is refused at once, also while the original runs" ["S11"] PayloadIgnored
        running::another_payload_is_refused_while_the_original_runs;
    "hang-up" "a client that hangs up finds its answer on the retry" ["S8"] AbandonedRun
        hang_up::a_client_that_hangs_up_finds_its_answer;
    "set-cookie" "cookies are not replayed" ["R2"] CookiesReplayed
        headers::cookies_are_not_replayed;
    "hop-by-hop" "headers of one connection are not replayed" ["R2"] StaleHeaders
        headers::headers_of_one_connection_are_not_replayed;
    "content-headers" "headers that describe the answer are replayed" ["R2"] HeadersChanged
        headers::headers_that_describe_the_answer_are_replayed;
    "binary" "a binary request replays byte for byte" ["R2"] BodyNotCovered
        bodies::a_binary_request_replays_byte_for_byte;
    "binary-mismatch" "binary payloads that would be equal as text are not" ["K8"] PayloadIgnored
        bodies::binary_payloads_are_not_compared_as_text;
    "empty-body" "a request without a body replays" ["R2"] BodyNotCovered
        bodies::a_request_without_a_body_replays;
    "large-request" "a large request replays" ["R6"] BodyNotCovered
        bodies::a_large_request_replays;
    "too-large-request" "a request over the bound is refused, or runs once" ["R6"] BodyNotCovered
        bodies::a_request_over_the_bound_never_runs_twice;
    "empty-key" "an empty key is refused" ["K2", "X4"] WeakKeys
        keys::an_empty_key_is_refused;
    "long-key" "a key may be as long as the bound, and not one byte longer" ["K2", "X4"] WeakKeys
        keys::a_key_may_be_as_long_as_the_bound;
    "key-characters" "a key may have the profile's characters, and no others" ["K2", "X4"] WeakKeys
        keys::a_key_may_have_the_characters_of_the_profile;
    "two-keys" "two key lines are refused, even if they agree" ["K2", "X4"] WeakKeys
        keys::two_key_lines_are_refused;
    "missing-key" "a request without a key passes or is refused, as the profile says" ["K3"] KeysConfused
        keys::a_request_without_a_key_gets_what_the_profile_says;
    "derived-key" "a missing key is derived from the data" ["K3", "K4"] DerivedKeyRuns
        keys::a_missing_key_is_derived_from_the_data;
    "quoted-key" "the quoted and the bare form are one key" ["K1"] KeyFormRuns
        keys::the_quoted_and_the_bare_form_are_one_key;
    "case" "keys are case-sensitive" ["K2"] KeysConfused
        keys::keys_are_case_sensitive;
    "other-caller" "two callers do not share a key" ["K6", "X1"] SharedCallers
        scope::two_callers_do_not_share_a_key;
    "other-methods" "methods that are not covered pass through" ["G3"] CoversSafe
        scope::methods_that_are_not_covered_pass_through;
    "expiry" "a key whose time to live is over runs anew" ["T1", "T2"] KeepsTooLong
        time::a_key_whose_time_is_over_runs_anew;
    "date" "a replay's Date is its own" ["R2"] StaleHeaders
        time::the_date_of_a_replay_is_its_own;
    "error-body" "errors have the profile's shape" ["X4"] ErrorShape
        refusals::errors_have_the_shape_of_the_profile;
    "retry-after" "a caller that is told to wait is told at least a second" ["S3"] RetryAfter
        refusals::retry_after_is_at_least_a_second;
}

/// The checks to run: those named, or all, without those to skip.
pub(crate) fn select(only: &[String], skip: &[String]) -> Result<Vec<&'static Check>, PlanError> {
    for name in only.iter().chain(skip) {
        if !CHECKS.iter().any(|check| check.id == name) {
            return Err(unknown(name));
        }
    }
    let selected: Vec<_> = CHECKS
        .iter()
        .filter(|check| only.is_empty() || only.iter().any(|name| name == check.id))
        .filter(|check| !skip.iter().any(|name| name == check.id))
        .collect();
    if selected.is_empty() {
        return Err(PlanError::new("--only and --skip leave no check to run"));
    }
    Ok(selected)
}

fn unknown(name: &str) -> PlanError {
    let nearest = CHECKS
        .iter()
        .map(|check| (strsim::osa_distance(name, check.id), check.id))
        .min();
    let suggestion = match nearest {
        Some((distance, id)) if distance <= 3 => format!("; did you mean {id}?"),
        _ => String::new(),
    };
    PlanError::new(format!(
        "there is no check {name:?}{suggestion} --list shows them all"
    ))
}

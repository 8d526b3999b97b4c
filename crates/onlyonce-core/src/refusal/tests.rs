use OnLapse::{Hold, Rerun};

use super::*;

/// Of an attempt that did not start: by its number, what the policy is and whether the outcome of those before
/// it can be found out.
#[test]
fn there_is_one_text_for_each_thing_that_is_known_of_an_attempt_that_did_not_start() {
    let fresh = "this request was not run: retry with the same key";
    let rerun = "an earlier attempt under this key may have taken effect, and a retry with the same key may run it again";
    let found = "an earlier attempt under this key may have taken effect, and a retry with the same key finds that out first, and runs it only if it did not happen";
    let held = "it is not run again under this key; do not repeat it under a new one: an operator must find out and resolve it";

    for (attempt, on_lapse, is_reconciled, reason, text, retryable) in [
        (1, Rerun, false, Reason::NotRun, fresh, None),
        (1, Hold, false, Reason::NotRun, fresh, None),
        (1, Hold, true, Reason::NotRun, fresh, None),
        (2, Rerun, false, Reason::NotRun, rerun, None),
        (2, Rerun, true, Reason::NotRun, found, None),
        (2, Hold, true, Reason::NotRun, found, None),
        (2, Hold, false, Reason::OutcomeUnknown, held, Some(false)),
    ] {
        let refusal = Refusal::not_started(attempt, on_lapse, is_reconciled);

        let what = format!("{attempt} {on_lapse:?} {is_reconciled}: {refusal}");
        assert_eq!(
            (refusal.reason, refusal.retryable),
            (reason, retryable),
            "{what}"
        );
        assert!(refusal.detail.ends_with(text), "{what}");
        let is_fresh = attempt == 1;
        assert_eq!(refusal.detail.contains("was not run"), is_fresh, "{what}");
    }
}

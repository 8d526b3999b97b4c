use onlyonce_core::OnLapse::{Hold, Rerun};

use super::*;

const PLAIN: Sent = Sent::Plain {
    is_idempotent: false,
};
const REPEATABLE: Sent = Sent::Plain {
    is_idempotent: true,
};

const fn once(on_lapse: OnLapse, attempt: u32) -> Sent {
    Sent::Once { on_lapse, attempt }
}

/// Everything that can be known, by whether this attempt was sent: what is promised, the text, and
/// whether to retry.
const TABLE: [(bool, Sent, &str, bool); 18] = [
    (
        false,
        PLAIN,
        "The request was not sent to it, and can be sent again.",
        true,
    ),
    (
        false,
        REPEATABLE,
        "The request was not sent to it, and can be sent again.",
        true,
    ),
    (
        false,
        Sent::Unrecorded,
        "The request was not sent to it. Retry with the same key.",
        true,
    ),
    (
        false,
        once(Rerun, 1),
        "The request was not sent to it. Retry with the same key.",
        true,
    ),
    (
        false,
        once(Hold, 1),
        "The request was not sent to it. Retry with the same key.",
        true,
    ),
    (
        false,
        once(Rerun, 2),
        "This attempt was not sent to it, but an earlier one under this key may have taken effect. A retry with the same key may run it again.",
        true,
    ),
    (
        false,
        once(Hold, 2),
        "This attempt was not sent to it, but an earlier one under this key may have taken effect. It is not run again under this key, and must not be repeated under a new one: an operator must find out and resolve it.",
        false,
    ),
    (
        false,
        Sent::Reconciled { attempt: 1 },
        "The request was not sent to it. Retry with the same key.",
        true,
    ),
    (
        false,
        Sent::Reconciled { attempt: 2 },
        "This attempt was not sent to it, but an earlier one under this key may have taken effect. A retry with the same key finds that out first.",
        true,
    ),
    (
        true,
        Sent::Reconciled { attempt: 1 },
        "The request may have taken effect. A retry with the same key finds that out first, and runs it only if it did not.",
        true,
    ),
    (
        true,
        Sent::Reconciled { attempt: 2 },
        "The request may have taken effect. A retry with the same key finds that out first, and runs it only if it did not.",
        true,
    ),
    (
        true,
        PLAIN,
        "The request may have taken effect, and no idempotency key protects it: find out before sending it again.",
        false,
    ),
    (
        true,
        REPEATABLE,
        "The request may have taken effect, and its method may be repeated.",
        true,
    ),
    (
        true,
        Sent::Unrecorded,
        "The request may have taken effect, and its key could not be recorded: find out before sending it again.",
        false,
    ),
    (
        true,
        once(Rerun, 1),
        "The request may have taken effect. A retry with the same key may run it again.",
        true,
    ),
    (
        true,
        once(Rerun, 2),
        "The request may have taken effect. A retry with the same key may run it again.",
        true,
    ),
    (
        true,
        once(Hold, 1),
        "The request may have taken effect. It is not run again under this key, and must not be repeated under a new one: an operator must find out and resolve it.",
        false,
    ),
    (
        true,
        once(Hold, 2),
        "The request may have taken effect. It is not run again under this key, and must not be repeated under a new one: an operator must find out and resolve it.",
        false,
    ),
];

fn follows(was_sent: bool, sent: Sent) -> (&'static str, bool) {
    if was_sent {
        may_have_run(sent)
    } else {
        not_sent(sent)
    }
}

#[test]
fn there_is_one_text_for_each_thing_that_is_known() {
    for (was_sent, sent, text, retryable) in TABLE {
        assert_eq!(
            follows(was_sent, sent),
            (text, retryable),
            "{was_sent} {sent:?}"
        );
    }
}

#[test]
fn no_text_says_more_than_is_known() {
    for (was_sent, sent, text, retryable) in TABLE {
        let is_later = matches!(
            sent,
            Sent::Once { attempt: 2.., .. } | Sent::Reconciled { attempt: 2.. }
        );
        let may_have_run = was_sent || is_later;
        assert_eq!(
            text.contains("may have taken effect"),
            may_have_run,
            "{text}"
        );
        let has_key = !matches!(sent, Sent::Plain { .. });
        assert!(has_key || !text.contains("same key"), "{text}");
        // What is said to run again may be retried; what is held may not.
        assert_eq!(
            text.contains("operator") || text.contains("find out"),
            !retryable,
            "{text}"
        );
        let is_found_out = matches!(sent, Sent::Reconciled { .. }) && may_have_run;
        assert_eq!(
            text.contains("finds that out first"),
            is_found_out,
            "{text}"
        );
        assert!(!text.to_lowercase().contains("nothing ran"), "{text}");
    }
}

/// No row is missing: every promise there is, at its first attempt and at a later one, sent or not.
#[test]
fn the_table_has_every_promise_and_attempt() {
    let promises = [1, 2].into_iter().flat_map(|attempt| {
        let reconciled = Sent::Reconciled { attempt };
        let all = [once(Rerun, attempt), once(Hold, attempt), reconciled];
        all.into_iter().chain([PLAIN, REPEATABLE, Sent::Unrecorded])
    });
    for sent in promises {
        // Adding a variant breaks this match, and reminds of the table.
        match sent {
            Sent::Plain { .. } | Sent::Once { .. } | Sent::Reconciled { .. } | Sent::Unrecorded => {
            }
        }
        for was_sent in [false, true] {
            let rows = TABLE
                .iter()
                .filter(|row| (row.0, row.1) == (was_sent, sent));
            assert_eq!(rows.count(), 1, "{was_sent} {sent:?}");
        }
    }
}

#[test]
fn an_answer_that_broke_off_is_told_under_its_own_promise() {
    for (is_recorded, is_reconciled, may_run_again, sent) in [
        (true, false, true, once(Rerun, 1)),
        (true, false, false, once(Hold, 1)),
        (true, true, true, Sent::Reconciled { attempt: 1 }),
        (true, true, false, Sent::Reconciled { attempt: 1 }),
        (false, false, true, Sent::Unrecorded),
        (false, true, true, Sent::Unrecorded),
    ] {
        let told = Sent::and_broken_off(is_recorded, is_reconciled, may_run_again);
        assert_eq!(told, sent, "{is_recorded} {is_reconciled} {may_run_again}");
    }
}

#[test]
fn a_slow_upstream_is_told_by_what_it_was_sent() {
    for (was_sent, sent, text, retryable) in TABLE {
        if was_sent {
            let error = UpstreamError::Slow;
            let problem = Failure { error, sent }.problem();
            assert_eq!(problem.status, StatusCode::GATEWAY_TIMEOUT);
            assert!(problem.detail.ends_with(text), "{}", problem.detail);
            assert_eq!(problem.retryable, retryable);
        }
    }
}

//! What is said and done about an operation that may have taken effect: no more than is known, and
//! nothing that is not true of every attempt.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::engine::FormerSecret;
use onlyonce_core::operate::{
    AttemptId, Filter, InDoubt, Page, Settled, Settlement, in_doubt, settle,
};
use onlyonce_core::policy::StoredRule;
use onlyonce_core::{
    Answer, Engine, Event, Execution, MemoryStore, OnLapse, Operate as _, Outcome, Policy, Reason,
    Record, Refusal, Response, Slot, SlotSecret, StepError,
};

use crate::support::{Probe, Work, bed, node_of, policy, ran, refused};

fn told(answer: Answer) -> Refusal {
    match answer {
        Answer::Refused(refusal) => refusal,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn under(on_lapse: OnLapse) -> Policy {
    Policy {
        on_lapse,
        execution_max: Duration::from_secs(5),
        ..policy()
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_have_taken_effect_is_told_by_what_the_policy_says_follows() {
    let lost = || Work::ending(|_| Outcome::Unknown);
    let stuck = || Work::new().taking(Duration::from_secs(600));
    for (on_lapse, work, reason, retryable) in [
        (OnLapse::Rerun, lost(), Reason::OutcomeUnknown, true),
        (OnLapse::Rerun, stuck(), Reason::TimedOut, true),
        (OnLapse::Hold, lost(), Reason::OutcomeUnknown, false),
        (OnLapse::Hold, stuck(), Reason::TimedOut, false),
    ] {
        let (_, node) = bed().await;
        let policy = under(on_lapse);

        let first = told(node.once("key", &policy, &work).await);
        let retry = node.once("key", &policy, &Work::new()).await;

        assert_eq!((first.reason, first.retryable), (reason, Some(retryable)));
        assert!(first.detail.starts_with(reason.explanation()), "{first}");
        assert_eq!(first.detail.contains("may run it again"), retryable);
        assert_eq!(first.detail.contains("operator"), !retryable);
        match on_lapse {
            OnLapse::Rerun => assert_eq!(ran(&retry), "run 1"),
            OnLapse::Hold => {
                let retry = told(retry);
                assert_eq!(retry.reason, Reason::OutcomeUnknown);
                assert_eq!(retry.retryable, Some(false));
                assert!(retry.detail.contains("operator"), "{retry}");
            }
        }
    }
}

#[tokio::test]
async fn an_attempt_that_did_not_start_says_so_only_of_itself() {
    let (_, node) = bed().await;
    let policy = under(OnLapse::Rerun);
    let unreached = Work::ending(|_| Outcome::NotRun);

    let first = told(node.once("new", &policy, &unreached).await);
    node.once("lost", &policy, &Work::ending(|_| Outcome::Unknown))
        .await;
    let second = told(node.once("lost", &policy, &unreached).await);
    let third = told(node.once("lost", &policy, &unreached).await);

    assert!(first.detail.contains("this request was not run"), "{first}");
    for refusal in [second, third] {
        assert_eq!(refusal.reason, Reason::NotRun);
        assert!(refusal.detail.contains("an earlier attempt"), "{refusal}");
    }
    let other = node
        .once_meaning("lost", "something else", &policy, &Work::new())
        .await;
    assert_eq!(refused(&other), Reason::Mismatch);
}

/// Of every reason that is about this request, none speaks of others under the same key.
#[test]
fn no_explanation_says_that_nothing_ran() {
    for reason in Reason::ALL {
        let text = reason.explanation();
        assert!(!text.contains("nothing was run"), "{text}");
        assert!(!text.contains("nothing ran"), "{text}");
        assert!(!text.contains("did not run the operation"), "{text}");
    }
}

#[tokio::test]
async fn under_hold_an_unstored_failure_is_in_doubt_and_told_of() {
    let (_, node) = bed().await;
    let policy = Policy {
        stored: StoredRule::success().except(&[429]),
        ..under(OnLapse::Hold)
    };
    let failing = Work::ending(|number| {
        let status = match number {
            1 => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Response::new(status, format!("run {number}")).into()
    });

    let before_the_work = node.once("key", &policy, &failing).await;
    let failed = node.once("key", &policy, &failing).await;
    let retry = node.once("key", &policy, &failing).await;

    assert!(matches!(
        before_the_work,
        Answer::Ran {
            in_doubt: false,
            ..
        }
    ));
    assert!(matches!(failed, Answer::Ran { in_doubt: true, .. }));
    assert_eq!(refused(&retry), Reason::OutcomeUnknown);
    assert_eq!(failing.starts(), 2);
    assert_eq!(
        node.heard.count(|it| matches!(it, Event::OutcomeUnknown)),
        1
    );
}

#[tokio::test]
async fn under_hold_a_panic_that_is_not_stored_is_in_doubt() {
    let (_, node) = bed().await;
    let policy = Policy {
        stored: StoredRule::success(),
        ..under(OnLapse::Hold)
    };
    let work = Work::ending(|_| panic!("boom"));

    node.once("key", &policy, &work).await;
    let retry = node.once("key", &policy, &work).await;

    assert_eq!(refused(&retry), Reason::OutcomeUnknown);
    assert_eq!(work.starts(), 1);
}

#[tokio::test]
async fn what_is_in_doubt_is_so_under_both_secrets() {
    let secret = |byte| SlotSecret::from_bytes([byte; SlotSecret::BYTES]);
    let store = Arc::new(Probe::default());
    let old = node_of(Engine::builder(Arc::clone(&store)).secret(secret(1))).await;
    let both = Engine::builder(Arc::clone(&store)).secret(secret(2));
    let both = node_of(both.rotate_from(FormerSecret::Given(secret(1)))).await;
    let new = node_of(Engine::builder(Arc::clone(&store)).secret(secret(2))).await;
    let policy = Policy {
        stored: StoredRule::success(),
        ..under(OnLapse::Hold)
    };
    let failing = Work::ending(|_| Response::new(StatusCode::BAD_GATEWAY, "").into());

    both.once("key", &policy, &failing).await;

    for node in [&old, &both, &new] {
        let retry = node.once("key", &policy, &Work::new()).await;
        assert_eq!(refused(&retry), Reason::OutcomeUnknown);
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_outcomes_in_doubt_the_oldest_are_found() {
    let (store, node) = bed().await;
    let policy = under(OnLapse::Hold);
    for number in 0..20 {
        let lost = Work::ending(|_| Outcome::Unknown);
        node.once(&format!("key-{number}"), &policy, &lost).await;
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let slots = async |records_max| -> Vec<Slot> {
        let found = in_doubt(&store.inner, &InDoubt::default(), records_max).await;
        found.unwrap().into_iter().map(|(slot, _)| slot).collect()
    };

    let (all, oldest) = (slots(100).await, slots(5).await);

    assert_eq!(all.len(), 20);
    assert_eq!(oldest, all[..5]);
}

/// What is in the store, by slot.
async fn only_doubt(store: &Probe) -> (Slot, Record) {
    let all = in_doubt(&store.inner, &InDoubt::default(), 10).await;
    all.unwrap().remove(0)
}

#[tokio::test]
async fn what_was_found_out_about_an_attempt_does_not_settle_a_later_one() {
    let (store, node) = bed().await;
    let policy = under(OnLapse::Hold);
    let lost = Work::ending(|_| Outcome::Unknown);
    node.once("key", &policy, &lost).await;
    let (slot, seen) = only_doubt(&store).await;
    let did_not = Settlement::DidNotHappen;

    let first = settle(&store.inner, &slot, &seen, &did_not).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2)).await;
    node.once("key", &policy, &lost).await;
    let (_, later) = only_doubt(&store).await;
    let late = settle(&store.inner, &slot, &seen, &did_not).await.unwrap();

    assert!(matches!(first, Settled::Done), "{first:?}");
    assert!(matches!(late, Settled::Skipped), "{late:?}");
    assert_eq!(lost.starts(), 2);
    assert_eq!(only_doubt(&store).await.1.token, later.token);
    assert_ne!(AttemptId::of(&slot, &seen), AttemptId::of(&slot, &later));
}

#[tokio::test]
async fn forgetting_a_doubt_that_is_over_leaves_the_steps_of_what_runs_now() {
    let store = Arc::new(MemoryStore::new());
    let engine = Engine::open(Arc::clone(&store)).await.unwrap();
    let job = engine.job("ride");
    let rules = Policy {
        on_lapse: OnLapse::Hold,
        ..job.rules().clone()
    };
    let job = job.policy(rules);
    let ride = async |execution: Execution| {
        let reserve = execution.step("reserve", &7);
        reserve.run(async || Ok::<_, String>(7)).await?;
        Err::<u8, _>("no mail today".to_owned())
    };
    job.run_with("ride-7", &7, ride).await.unwrap_err();
    let (slot, seen) = in_doubt(&*store, &InDoubt::default(), 10)
        .await
        .unwrap()
        .remove(0);
    settle(&*store, &slot, &seen, &Settlement::DidNotHappen)
        .await
        .unwrap();
    // It runs again, has its first step from before, and is about to do the next one.
    let at = Arc::clone(&store);
    let gone_on = async move |execution: Execution| {
        let reserve = execution.step("reserve", &7);
        let reserved = reserve.run(async || Ok::<u8, String>(9)).await?;
        let late = settle(&*at, &slot, &seen, &Settlement::Forget).await;
        let late = late.unwrap();
        assert!(matches!(late, Settled::Skipped), "{late:?}");
        Ok::<_, StepError<String>>(reserved)
    };

    let ran = job.run_with("ride-7", &7, gone_on).await.unwrap();

    assert_eq!(ran.value, 7);
    let page = Page {
        after: None,
        records_max: 10,
    };
    let records = store.list(&Filter::default(), &page).await.unwrap();
    assert_eq!(records.len(), 2, "the ride, and its step");
}

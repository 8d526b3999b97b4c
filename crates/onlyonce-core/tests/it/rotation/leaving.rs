//! A caller who begins by hand during a rotation, and goes away before both claims are granted or
//! ended: nothing ran, and nobody has to resolve anything.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::engine::Verdict;
use onlyonce_core::policy::StoreDown;
use onlyonce_core::{OnLapse, Outcome, Policy, Reason};

use super::{all, both};
use crate::support::{Fault, Probe, Work, policy, ran, refused};

const LATE: Duration = Duration::from_secs(1);
/// How often a claim is tried.
const CLAIM_TRIES: usize = 3;
const SECOND_IS_LATE: [Fault; 2] = [Fault::SlowBefore(Duration::ZERO), Fault::SlowBefore(LATE)];

/// Where what is left in doubt waits for an operator.
fn holding() -> Policy {
    Policy {
        on_lapse: OnLapse::Hold,
        ..policy()
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_between_the_two_claims_ran_nothing_under_either() {
    for other in 0..3 {
        let store = Arc::new(Probe::default());
        let nodes = all(&store).await;
        let (both, policy) = (&nodes[1], holding());
        store.claims.fail_next(SECOND_IS_LATE);
        let begin = both.engine.begin(both.call("key", "the same", &policy));

        let left = tokio::time::timeout(LATE / 2, begin).await;

        assert!(left.is_err(), "{other}: the second claim waits");
        let answer = nodes[other].once("key", &policy, &Work::new()).await;
        assert_eq!(ran(&answer), "run 1", "{other}");
    }
}

/// Who waited for the one that left is told nothing of it: it tries for itself.
#[tokio::test(start_paused = true)]
async fn who_waited_for_one_that_left_between_the_two_claims_runs() {
    let store = Arc::new(Probe::default());
    let (both, policy) = (both(&store).await, holding());
    store.claims.fail_next(SECOND_IS_LATE);
    let begin = both.engine.begin(both.call("key", "the same", &policy));
    let waiting = async {
        tokio::time::sleep(LATE / 4).await;
        both.once("key", &policy, &Work::new()).await
    };

    let (left, answer) = tokio::join!(tokio::time::timeout(LATE / 2, begin), waiting);

    assert!(left.is_err(), "the second claim waits");
    assert_eq!(ran(&answer), "run 1");
}

/// The claim under the old secret ends as the one under the new secret, whoever waits for it.
#[tokio::test(start_paused = true)]
async fn who_leaves_while_the_first_claim_is_ended_leaves_it_as_the_second_is() {
    let policy = holding();
    let unknown = Work::ending(|_| Outcome::Unknown);
    for (work, found) in [(Work::new(), None), (unknown, Some(Reason::OutcomeUnknown))] {
        let store = Arc::new(Probe::default());
        let [old, both, new] = all(&store).await;
        new.once("key", &policy, &work).await;
        store.releases.fail_next([Fault::SlowBefore(LATE)]);
        let begin = both.engine.begin(both.call("key", "the same", &policy));

        let left = tokio::time::timeout(LATE / 2, begin).await;

        assert!(left.is_err(), "{found:?}: the release waits");
        // The old secret's slot is free again, or in doubt like the other.
        let answer = old.once("key", &policy, &Work::new()).await;
        match found {
            None => assert_eq!(ran(&answer), "run 1"),
            Some(reason) => assert_eq!(refused(&answer), reason),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_under_the_new_secret_is_left_free_under_the_old_one() {
    let store = Arc::new(Probe::default());
    let [old, both, new] = all(&store).await;
    let (policy, work) = (holding(), Work::new().gated());
    let running = new.start("key", &policy, &work);
    work.started().await;

    let other = both.call("key", "another", &policy);
    let Verdict::Refuse(refusal) = both.engine.begin(other).await else {
        panic!("it means another thing");
    };

    assert_eq!(refusal.reason, Reason::Mismatch);
    let answer = old.once("key", &policy, &Work::new()).await;
    assert_eq!(ran(&answer), "run 1");
    work.open();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_second_claim_that_fails_leaves_the_first_free() {
    let open = Policy {
        store_down: StoreDown::Open,
        ..holding()
    };
    for (fault, policy) in [
        (Fault::LostBefore, holding()),
        (Fault::LostBefore, open.clone()),
        (Fault::LostAfter, holding()),
        (Fault::LostAfter, open),
        (Fault::Panic, holding()),
    ] {
        let store = Arc::new(Probe::default());
        let [old, both, _] = all(&store).await;
        let first = Fault::SlowBefore(Duration::ZERO);
        let tries = if fault == Fault::Panic {
            1
        } else {
            CLAIM_TRIES
        };
        let faults = std::iter::repeat_n(fault, tries);
        store.claims.fail_next([first].into_iter().chain(faults));
        let call = both.call("key", "the same", &policy);

        let begun = tokio::spawn(async move { both.engine.begin(call).await }).await;

        let as_told = match begun {
            Ok(Verdict::Refuse(refusal)) => refusal.reason == Reason::StoreDown,
            Ok(Verdict::PassThrough(_)) => policy.store_down == StoreDown::Open,
            Ok(Verdict::Execute(_) | Verdict::Replay(_)) => false,
            Err(panic) => panic.is_panic() && fault == Fault::Panic,
        };
        assert!(as_told, "{fault:?}");
        let answer = old.once("key", &policy, &Work::new()).await;
        assert_eq!(ran(&answer), "run 1", "{fault:?}");
    }
}

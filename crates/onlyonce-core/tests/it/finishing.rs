//! What becomes of a handler: stored, released, panicked, timed out, opted out.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::policy::StoredRule;
use onlyonce_core::{
    Answer, Event, Execution, OnLapse, Operate, Outcome, Policy, Reason, Response, State, Store,
    Verdict,
};

use crate::support::{Fault, Work, bed, eventually, node, policy, ran, refused, replayed, settle};

#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_from_when_it_was_stored_not_from_the_claim() {
    let (_, node) = bed().await;
    let short = Policy {
        keep_for: Duration::from_secs(20),
        ..policy()
    };
    let slow = Work::new().taking(Duration::from_secs(15));
    assert_eq!(ran(&node.once("key", &short, &slow).await), "run 1");

    tokio::time::advance(Duration::from_millis(19_900)).await;
    assert_eq!(replayed(&node.once("key", &short, &slow).await), "run 1");
    tokio::time::advance(Duration::from_millis(200)).await;

    assert_eq!(ran(&node.once("key", &short, &slow).await), "run 2");
}

#[tokio::test(start_paused = true)]
async fn failures_are_replayed_as_failures_where_stored() {
    let (store, node) = bed().await;
    let work = Work::ending(|number| {
        Response::new(StatusCode::INTERNAL_SERVER_ERROR, format!("run {number}")).into()
    });
    node.once("key", &policy(), &work).await;

    let retry = node.once("key", &policy(), &work).await;

    assert_eq!(replayed(&retry), "run 1");
    let slot = *node.call("key", "the same", &policy()).slot();
    let record = store.inner.get(&slot).await.unwrap().unwrap();
    assert!(matches!(record.state, State::Failed(_)));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_stored_failure_where_the_policy_stores_failures() {
    let (_, node) = bed().await;
    let work = Work::ending(|_| panic!("boom"));

    let first = node.once("key", &policy(), &work).await;
    let retry = node.once("key", &policy(), &work).await;

    assert!(matches!(&first, Answer::Ran { response, .. } if response.status == 500));
    assert!(matches!(&retry, Answer::Replayed(replay) if replay.response.status == 500));
    assert_eq!(work.starts(), 1);
    assert_eq!(node.heard.count(|it| matches!(it, Event::Panicked)), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_gives_the_slot_back_where_failures_are_not_stored() {
    let (_, node) = bed().await;
    let success_only = Policy {
        stored: StoredRule::success(),
        ..policy()
    };
    let work = Work::ending(|number| match number {
        1 => panic!("boom"),
        _ => Response::new(StatusCode::OK, "second").into(),
    });

    node.once("key", &success_only, &work).await;
    let retry = node.once("key", &success_only, &work).await;

    assert_eq!(ran(&retry), "second");
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_before_its_first_await_is_caught_too() {
    let (_, node) = bed().await;
    let call = node.call("key", "the same", &policy());

    let answer = node
        .engine
        .once(call, |_| -> std::future::Ready<Outcome> {
            panic!("at once")
        })
        .await;

    assert!(matches!(&answer, Answer::Ran { response, .. } if response.status == 500));
    assert_eq!(node.engine.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_handler_past_its_deadline_ends_unknown_and_is_stopped() {
    for (on_lapse, then) in [
        (OnLapse::Rerun, None),
        (OnLapse::Hold, Some(Reason::OutcomeUnknown)),
    ] {
        let (_, node) = bed().await;
        let policy = Policy {
            execution_max: Duration::from_secs(5),
            on_lapse,
            ..policy()
        };
        let stuck = Work::new().taking(Duration::from_secs(600));

        let first = node.once("key", &policy, &stuck).await;
        let retry = node.once("key", &policy, &Work::new()).await;

        assert_eq!(refused(&first), Reason::TimedOut);
        match then {
            None => assert_eq!(ran(&retry), "run 1"),
            Some(reason) => assert_eq!(refused(&retry), reason),
        }
        tokio::time::advance(Duration::from_secs(700)).await;
        assert_eq!(stuck.ends(), 0);
        assert_eq!(
            node.heard.count(|it| matches!(it, Event::TimedOut { .. })),
            1
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_stored_is_not_told_and_stored_later() {
    let (store, node) = bed().await;
    store.completions.fail_next([Fault::LostBefore; 6]);
    let work = Work::new();

    let first = node.once("key", &policy(), &work).await;
    let during = node.once("key", &policy(), &work).await;
    eventually(|| node.engine.in_flight() == 0).await;
    let after = node.once("key", &policy(), &work).await;

    assert_eq!(refused(&first), Reason::NotStored);
    assert_eq!(refused(&during), Reason::NotStored);
    assert_eq!(replayed(&after), "run 1");
    assert_eq!(work.starts(), 1);
    assert_eq!(node.heard.count(|it| matches!(it, Event::Stalled)), 1);
    assert_eq!(node.heard.count(|it| matches!(it, Event::Stored { .. })), 1);
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_while_the_result_waits_for_the_store() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    store.completions.fail_next([Fault::LostBefore; 20]);
    let work = Work::new();
    first.once("key", &policy(), &work).await;

    let other = Work::new();
    let waiter = second.once("key", &policy(), &other).await;

    assert_eq!(replayed(&waiter), "run 1");
    assert_eq!(other.starts(), 0);
    assert!(store.renewals.count() >= 1);
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_reply_was_lost_is_stored_once() {
    let (store, node) = bed().await;
    store.completions.fail_next([Fault::LostAfter]);
    let work = Work::new();

    let first = node.once("key", &policy(), &work).await;

    assert_eq!(ran(&first), "run 1");
    assert!(matches!(
        first,
        Answer::Ran {
            receipt: Some(_),
            ..
        }
    ));
    assert_eq!(store.completions.count(), 2);
    assert_eq!(node.heard.count(|it| matches!(it, Event::Stored { .. })), 1);
}

/// docs/protocol.md#rule-9: the background is bounded, in bytes too.
#[tokio::test(start_paused = true)]
async fn what_the_background_cannot_hold_is_abandoned_and_said_so() {
    let (store, node) = bed().await;
    let huge = Policy {
        lease_for: Duration::from_secs(30),
        ..policy()
    };
    let work = Work::ending(|_| Response::new(StatusCode::OK, vec![0; 40 << 20]).into());
    store.down.store(false, std::sync::atomic::Ordering::SeqCst);
    store.completions.fail_next([Fault::LostBefore; 100]);

    let first = node.once("one", &huge, &work).await;
    let second = node.once("two", &huge, &work).await;

    assert_eq!(refused(&first), Reason::NotStored);
    assert_eq!(refused(&second), Reason::NotStored);
    eventually(|| node.engine.in_flight() == 1).await;
    assert_eq!(node.heard.count(|it| matches!(it, Event::Abandoned)), 1);
}

#[tokio::test(start_paused = true)]
async fn the_background_is_bounded_in_count_too() {
    let (store, node) = bed().await;
    store
        .completions
        .fail_next(vec![Fault::LostBefore; 1_000_000]);
    let work = Work::new();

    for number in 0..1025 {
        let answer = node.once(&format!("key-{number}"), &policy(), &work).await;
        assert_eq!(refused(&answer), Reason::NotStored);
    }

    eventually(|| node.engine.in_flight() == 1024).await;
    assert_eq!(node.heard.count(|it| matches!(it, Event::Abandoned)), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_keep_its_answer_out_and_change_how_long_it_is_kept() {
    let (_, node) = bed().await;
    let call = || node.call("key", "the same", &policy());
    let answer = |text: &'static str| Outcome::from(Response::new(StatusCode::OK, text));

    let opted_out = node
        .engine
        .once(call(), move |execution| async move {
            execution.do_not_store();
            answer("not stored")
        })
        .await;
    let short_lived = node
        .engine
        .once(call(), move |execution| async move {
            execution.keep_for(Duration::from_secs(7));
            execution.made("order-1");
            answer("short-lived")
        })
        .await;

    assert!(matches!(opted_out, Answer::Ran { receipt: None, .. }));
    assert_eq!(ran(&short_lived), "short-lived");
    tokio::time::advance(Duration::from_secs(6)).await;
    let replay = node.once("key", &policy(), &Work::new()).await;
    assert_eq!(replayed(&replay), "short-lived");
    let Answer::Replayed(replay) = replay else {
        unreachable!("checked above");
    };
    assert_eq!(replay.response.resource.as_deref(), Some("order-1"));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(
        ran(&node.once("key", &policy(), &Work::new()).await),
        "run 1"
    );
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_completes_in_its_own_transaction_is_answered_from_the_record() {
    let (store, node) = bed().await;
    let call = node.call("key", "the same", &policy());
    let theirs = Arc::clone(&store);

    let answer = node
        .engine
        .once(call, move |execution| async move {
            let lease = execution.lease().unwrap().clone();
            let response = Arc::new(Response::new(StatusCode::CREATED, "in the transaction"));
            theirs
                .complete(&lease, &response, Duration::from_secs(60))
                .await
                .unwrap();
            Response::new(StatusCode::OK, "what the handler said").into()
        })
        .await;

    assert_eq!(ran(&answer), "in the transaction");
    assert_eq!(
        replayed(&node.once("key", &policy(), &Work::new()).await),
        "in the transaction"
    );
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_completes_in_its_own_transaction_can_tell_how_long_it_took() {
    const WORK: Duration = Duration::from_millis(250);
    const COMMIT: Duration = Duration::from_millis(50);
    let (store, node) = bed().await;
    let call = node.call("key", "the same", &policy());
    let slot = *call.slot();
    let theirs = Arc::clone(&store);

    let work = async move |execution: Execution| {
        tokio::time::sleep(WORK).await;
        let lease = execution.lease().unwrap();
        let response = Arc::new(Response {
            took: execution.took(),
            ..Response::new(StatusCode::CREATED, "in the transaction")
        });
        let stored = theirs.complete(lease, &response, Duration::from_secs(60));
        stored.await.unwrap();
        tokio::time::sleep(COMMIT).await;
        Outcome::Finished(response)
    };
    node.engine.once(call, work).await;

    let record = store.inner.get(&slot).await.unwrap().unwrap();
    assert_eq!(record.response().unwrap().took, WORK);
    let told =
        |event: &Event| matches!(event, Event::Stored { took, .. } if *took == WORK + COMMIT);
    assert_eq!(node.heard.count(told), 1);
}

#[tokio::test(start_paused = true)]
async fn begin_and_finish_are_the_two_halves_of_a_call() {
    let (_, node) = bed().await;
    let call = || node.call("key", "the same", &policy());
    let Verdict::Execute(held) = node.engine.begin(call()).await else {
        panic!("the slot was free");
    };
    assert_eq!(held.execution().attempt(), 1);

    let outcome = Response::new(StatusCode::OK, "by hand").into();
    let answer = node.engine.finish(held, outcome).await;
    let again = node.engine.begin(call()).await;

    assert_eq!(ran(&answer), "by hand");
    assert!(matches!(again, Verdict::Replay(replay) if replay.response.body == "by hand"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_dropped_without_finishing_is_of_unknown_outcome() {
    let (_, node) = bed().await;
    let hold = Policy {
        on_lapse: OnLapse::Hold,
        ..policy()
    };
    let Verdict::Execute(held) = node.engine.begin(node.call("key", "the same", &hold)).await
    else {
        panic!("the slot was free");
    };

    drop(held);
    tokio::time::sleep(Duration::from_millis(10)).await;

    let retry = node.once("key", &hold, &Work::new()).await;
    assert_eq!(refused(&retry), Reason::OutcomeUnknown);
}

#[tokio::test(start_paused = true)]
async fn a_result_forgotten_while_it_ran_is_still_told_to_its_caller() {
    let (store, node) = bed().await;
    let work = Work::new().gated();
    let caller = node.start("key", &policy(), &work);
    work.started().await;
    let slot = *node.call("key", "the same", &policy()).slot();

    assert!(store.inner.forget(&slot).await.unwrap());
    work.open();

    let answer = caller.await.unwrap();
    assert_eq!(ran(&answer), "run 1");
    assert!(matches!(answer, Answer::Ran { receipt: None, .. }));
}

#[tokio::test(start_paused = true)]
async fn replays_are_counted_without_a_round_trip_each() {
    let (store, node) = bed().await;
    let work = Work::new();
    node.once("key", &policy(), &work).await;

    for _ in 0..7 {
        node.once("key", &policy(), &work).await;
    }
    let slot = *node.call("key", "the same", &policy()).slot();
    let before = store.inner.get(&slot).await.unwrap().unwrap().replays;
    tokio::time::sleep(Duration::from_secs(6)).await;

    assert_eq!(before, 0);
    assert_eq!(store.inner.get(&slot).await.unwrap().unwrap().replays, 7);
    assert_eq!(store.claims.count(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_record_tells_who_ran_what_where_and_how_long() {
    let (store, node) = bed().await;
    let work = Work::new().taking(Duration::from_millis(250));
    node.once("a-long-enough-key-to-hint", &policy(), &work)
        .await;

    let slot = *node
        .call("a-long-enough-key-to-hint", "the same", &policy())
        .slot();
    let record = store.inner.get(&slot).await.unwrap().unwrap();

    assert_eq!(&*record.meta.operation, "test");
    assert!(record.meta.holder.starts_with("instance-"));
    assert_eq!(record.meta.hint.to_string(), "a-lo");
    assert_eq!(record.attempt, 1);
    assert!(record.completed_at.is_some());
    assert_eq!(record.response().unwrap().took, Duration::from_millis(250));
}

#[tokio::test(start_paused = true)]
async fn a_result_finished_by_hand_is_stored_even_if_its_caller_goes_away() {
    let (store, node) = bed().await;
    let call = node.call("key", "the same", &policy());
    let Verdict::Execute(held) = node.engine.begin(call).await else {
        panic!("the slot was free");
    };
    store.completions.fail_next([Fault::LostBefore; 2]);
    let engine = node.engine.clone();
    let outcome = Response::new(StatusCode::OK, "by hand").into();
    let caller = tokio::spawn(async move { engine.finish(held, outcome).await });
    eventually(|| store.completions.count() == 1).await;

    caller.abort();
    eventually(|| node.engine.in_flight() == 0).await;

    let retry = node.once("key", &policy(), &Work::new()).await;
    assert_eq!(replayed(&retry), "by hand");
}

#[tokio::test(start_paused = true)]
async fn expired_records_leave_the_store_without_being_asked_for() {
    const RECORDS: usize = 2500;
    let (store, node) = bed().await;
    let short = Policy {
        keep_for: Duration::from_secs(1),
        ..policy()
    };
    for n in 0..RECORDS {
        node.once(&format!("key-{n}"), &short, &Work::new()).await;
    }

    tokio::time::sleep(Duration::from_secs(700)).await;

    assert_eq!(store.inner.sweep(usize::MAX).await.unwrap(), 0);
}

/// Without its engine nobody sweeps: the test above would see nothing otherwise.
#[tokio::test(start_paused = true)]
async fn the_sweeper_ends_with_its_engine() {
    let (store, node) = bed().await;
    let short = Policy {
        keep_for: Duration::from_secs(1),
        ..policy()
    };
    node.once("key", &short, &Work::new()).await;
    drop(node);

    tokio::time::sleep(Duration::from_secs(700)).await;

    assert_eq!(store.inner.sweep(usize::MAX).await.unwrap(), 1);
}

/// The store takes nothing for so long that another process takes over. Then it is not the store that
/// keeps the answer from the callers, but whoever runs it now: they wait for that.
#[tokio::test(start_paused = true)]
async fn who_comes_after_a_stalled_result_was_overtaken_waits_for_the_new_holder() {
    let (store, first) = bed().await;
    let second = node(&store).await;
    let short = Policy {
        lease_for: Duration::from_millis(200),
        ..policy()
    };
    store.completions.fail_next([Fault::LostBefore; 9]);
    store.renewals.fail_next([Fault::LostBefore; 1_000]);
    let stalled = first.once("key", &short, &Work::new()).await;
    assert_eq!(refused(&stalled), Reason::NotStored);
    let other = Work::ending(|_| Response::new(StatusCode::OK, "the other's").into()).gated();
    let long = Policy {
        lease_for: Duration::from_secs(600),
        ..policy()
    };
    let overtaking = second.start("key", &long, &other);
    other.started().await;
    eventually(|| store.completions.count() == 10).await;

    let newcomer = first.start("key", &short, &Work::new());
    settle().await;
    assert!(!newcomer.is_finished());
    other.open();

    assert_eq!(ran(&overtaking.await.unwrap()), "the other's");
    assert_eq!(replayed(&newcomer.await.unwrap()), "the other's");
}

//! A bound on what runs at a time in one process.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_core::{Answer, Engine, Event, Reason, Verdict};

use crate::support::{
    Node, Probe, Work, eventually, node, node_of, policy, ran, refused, replayed, settle,
};

/// A store and an engine on it that runs at most so many calls at a time.
async fn bounded(running_max: usize) -> (Arc<Probe>, Node) {
    let store = Arc::new(Probe::default());
    let bound = NonZeroUsize::new(running_max).unwrap();
    let node = node_of(Engine::builder(Arc::clone(&store)).running_max(bound)).await;
    (store, node)
}

/// Fills `node` with calls that run until `work` is opened.
async fn fill(node: &Node, calls: usize, work: &Work) -> Vec<tokio::task::JoinHandle<Answer>> {
    let running: Vec<_> = (0..calls)
        .map(|number| node.start(&format!("running-{number}"), &policy(), work))
        .collect();
    eventually(|| work.starts() == calls).await;
    running
}

#[tokio::test(start_paused = true)]
async fn a_new_call_beyond_the_bound_is_refused_before_anything_is_claimed() {
    let (store, node) = bounded(2).await;
    let work = Work::new().gated();
    let running = fill(&node, 2, &work).await;

    let third = node.once("third", &policy(), &work).await;

    let Answer::Refused(refusal) = &third else {
        panic!("expected a refusal, got {third:?}");
    };
    assert_eq!(refusal.reason, Reason::TooManyRunning);
    assert_eq!(refusal.retry_after, Some(policy().retry_after));
    assert_eq!((work.starts(), store.claims.count()), (2, 2));
    let told = |event: &Event| matches!(event, Event::Refused { reason, .. } if *reason == Reason::TooManyRunning);
    assert_eq!(node.heard.count(told), 1);
    work.open();
    join_all(running).await;
    assert_eq!(ran(&node.once("third", &policy(), &work).await), "run 3");
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_caller_has_gone_away_counts_until_it_ends() {
    let (_, node) = bounded(2).await;
    let work = Work::new().gated();
    for caller in fill(&node, 2, &work).await {
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
    }

    let third = node.once("third", &policy(), &work).await;

    assert_eq!(refused(&third), Reason::TooManyRunning);
    work.open();
    eventually(|| work.ends() == 2).await;
    settle().await;
    assert_eq!(ran(&node.once("third", &policy(), &work).await), "run 3");
}

#[tokio::test(start_paused = true)]
async fn at_the_bound_what_ended_is_replayed_and_duplicates_attach() {
    let (store, node) = bounded(1).await;
    assert_eq!(
        ran(&node.once("ended", &policy(), &Work::new()).await),
        "run 1"
    );
    let work = Work::new().gated();
    let running = fill(&node, 1, &work).await;
    let duplicate = node.start("running-0", &policy(), &work);
    settle().await;

    let ended = node.once("ended", &policy(), &work).await;
    let other = node
        .once_meaning("ended", "something else", &policy(), &work)
        .await;

    assert_eq!(replayed(&ended), "run 1");
    assert_eq!(refused(&other), Reason::Mismatch);
    work.open();
    assert_eq!(replayed(&duplicate.await.unwrap()), "run 1");
    join_all(running).await;
    assert_eq!(store.completions.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn at_the_bound_nothing_is_taken_over() {
    let (store, node) = bounded(1).await;
    let gone = self::node(&store).await;
    let lost = Work::new().gated();
    let left = gone.start("lapsed", &policy(), &lost);
    lost.started().await;
    store
        .renewals
        .fail_next([crate::support::Fault::LostBefore; 64]);
    let work = Work::new().gated();
    let running = fill(&node, 1, &work).await;
    tokio::time::sleep(policy().lease_for * 2).await;

    let retry = node.once("lapsed", &policy(), &work).await;

    assert_eq!(refused(&retry), Reason::TooManyRunning);
    assert_eq!(work.starts(), 1);
    for call in running {
        call.abort();
    }
    left.abort();
}

#[tokio::test(start_paused = true)]
async fn refusals_take_no_place_however_many_race_for_the_last_one() {
    let (store, node) = bounded(8).await;
    let work = Work::new().gated();

    let racing: Vec<_> = (0..200)
        .map(|number| node.start(&format!("racing-{number}"), &policy(), &work))
        .collect();
    eventually(|| racing.iter().filter(|it| it.is_finished()).count() == 192).await;
    work.open();
    let answers = join_all(racing).await;

    let ran = |answer: &&Answer| matches!(answer, Answer::Ran { .. });
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(ran).count(), 8);
    assert_eq!((work.starts(), store.claims.count()), (8, 8));
    assert_eq!(node.engine.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_bound_holds_for_calls_that_are_run_by_hand() {
    let (_, node) = bounded(1).await;
    let Verdict::Execute(held) = node.engine.begin(node.call("one", "it", &policy())).await else {
        panic!("the first call runs");
    };

    let second = node.engine.begin(node.call("two", "it", &policy())).await;

    let Verdict::Refuse(refusal) = second else {
        panic!("the second call is refused");
    };
    assert_eq!(refusal.reason, Reason::TooManyRunning);
    drop(held);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let third = node.engine.begin(node.call("three", "it", &policy())).await;
    assert!(matches!(third, Verdict::Execute(_)));
}

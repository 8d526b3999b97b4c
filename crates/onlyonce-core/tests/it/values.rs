//! What the work returns beside its outcome: for the very caller it ran for, and never stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;
use onlyonce_core::{Answer, Execution, Outcome, Reason, Response};

use crate::support::{Fault, bed, eventually, policy, ran, refused, replayed};

/// Counts how many of it there are.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn done() -> Outcome {
    Response::new(StatusCode::OK, "done").into()
}

#[tokio::test(start_paused = true)]
async fn the_caller_it_ran_for_gets_the_value_and_a_retry_the_answer_alone() {
    let (_store, node) = bed().await;
    let call = || node.call("key", "meaning", &policy());
    let work = async |_: Execution| (done(), "my own");

    let (first, value) = node.engine.once_returning(call(), work).await;
    let (retry, none) = node.engine.once_returning(call(), work).await;

    assert_eq!((ran(&first).as_str(), value), ("done", Some("my own")));
    assert_eq!((replayed(&retry).as_str(), none), ("done", None));
}

#[tokio::test(start_paused = true)]
async fn a_panic_has_no_value() {
    let (_store, node) = bed().await;
    let call = node.call("key", "meaning", &policy());

    let (answer, value) = node
        .engine
        .once_returning(call, async |_| -> (Outcome, &str) { panic!("as told") })
        .await;

    assert!(matches!(answer, Answer::Ran { .. }));
    assert_eq!(value, None);
}

#[tokio::test(start_paused = true)]
async fn a_value_is_neither_given_nor_kept_while_the_store_does_not_take_the_answer() {
    let (store, node) = bed().await;
    store.completions.fail_next([Fault::LostBefore; 100]);
    let count = Arc::new(AtomicUsize::new(0));
    let made = Counted::new(&count);
    let call = node.call("key", "meaning", &policy());

    let (answer, value) = node
        .engine
        .once_returning(call, async move |_| (done(), made))
        .await;

    assert_eq!(refused(&answer), Reason::NotStored);
    assert!(value.is_none());
    assert_eq!(node.engine.in_flight(), 1);
    eventually(|| count.load(Ordering::SeqCst) == 0).await;
    assert_eq!(node.engine.in_flight(), 1);
}

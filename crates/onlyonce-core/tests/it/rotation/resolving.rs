//! During a rotation an operator answers, under the old secret, what still runs: that is what every
//! process that knows it tells from then on.

use std::sync::Arc;

use onlyonce_core::engine::Verdict;
use onlyonce_core::operate::{Operate as _, Resolved};
use onlyonce_core::{Policy, Response};

use super::{all, end_former_lease};
use crate::support::{Node, Probe, Work, policy, ran, replayed};

async fn resolve_former(store: &Probe, both: &Node, policy: &Policy) {
    let slot = end_former_lease(store, both, policy).await;
    let response = Arc::new(Response::new(http::StatusCode::OK, "resolved"));
    let resolved = store.inner.resolve(&slot, &response, policy.keep_for).await;
    assert!(matches!(resolved, Ok(Resolved::Stored)), "{resolved:?}");
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_resolved_under_the_old_secret_is_what_its_caller_hears() {
    let store = Arc::new(Probe::default());
    let [old, both, _] = all(&store).await;
    let (policy, work) = (policy(), Work::new().gated());
    let first = both.start("key", &policy, &work);
    work.started().await;

    resolve_former(&store, &both, &policy).await;
    work.open();

    assert_eq!(ran(&first.await.unwrap()), "resolved");
    for node in [&old, &both] {
        let again = node.once("key", &policy, &work).await;
        assert_eq!(replayed(&again), "resolved");
    }
}

#[tokio::test(start_paused = true)]
async fn who_runs_it_by_hand_hears_what_an_operator_resolved_too() {
    let store = Arc::new(Probe::default());
    let [_, both, _] = all(&store).await;
    let policy = policy();
    for stores in [true, false] {
        let key = both.call("key", "the same", &policy);
        let Verdict::Execute(held) = both.engine.begin(key).await else {
            panic!("it is new");
        };
        if !stores {
            held.execution().do_not_store();
        }

        resolve_former(&store, &both, &policy).await;
        let own = Response::new(http::StatusCode::OK, "by hand");
        let answer = both.engine.finish(held, own.into()).await;

        assert_eq!(ran(&answer), "resolved", "stores: {stores}");
        tokio::time::advance(policy.lease_for * 2 + policy.keep_for).await;
    }
}

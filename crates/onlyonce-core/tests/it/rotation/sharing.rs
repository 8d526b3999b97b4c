//! An answer that is not stored is shared only with those who waited for it.

use super::*;

use http::StatusCode;
use onlyonce_core::policy::StoredRule;

use crate::support::settle;

/// The claim under the former secret is forgotten while the handler runs, so that a second call has a
/// flight of its own there, and inside of it waits for the handler of the first. Who joins that flight
/// when the handler has ended has not waited for its answer.
#[tokio::test(start_paused = true)]
async fn what_is_not_stored_is_not_shared_with_who_came_after_it() {
    let store = Arc::new(Probe::default());
    let both = both(&store).await;
    let policy = Policy {
        stored: StoredRule::success(),
        ..policy()
    };
    let failing = Work::ending(|_| Response::new(StatusCode::BAD_GATEWAY, "not stored").into());
    let failing = failing.gated();
    let first = both.start("key", &policy, &failing);
    failing.started().await;
    let former = both.engine.former().expect("it rotates").clone();
    let outside = Node {
        engine: former,
        heard: Arc::clone(&both.heard),
    };
    let slot = *outside.call("key", "the same", &policy).slot();
    assert!(store.inner.forget(&slot).await.unwrap());
    // Long enough for a renewal to find that out.
    tokio::time::sleep(policy.lease_for / 2).await;
    let second = both.start("key", &policy, &Work::new());
    settle().await;
    // The first claim under the new secret is given back at once, both under the former slowly.
    let slow = Fault::SlowBefore(Duration::from_secs(1));
    let at_once = Fault::SlowBefore(Duration::ZERO);
    store.releases.fail_next([at_once, slow, slow]);
    failing.open();
    eventually(|| store.releases.count() >= 2).await;

    let fresh = Work::new();
    let late = both.start("key", &policy, &fresh);

    assert_eq!(replayed(&second.await.unwrap()), "not stored");
    assert_eq!(ran(&late.await.unwrap()), "run 1");
    assert_eq!(fresh.starts(), 1);
    drop(first.await);
}

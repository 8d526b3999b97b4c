//! During a rotation the store takes the answer of neither half for as long as it would be kept.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Execution, Policy, Reason, Response};

use super::all;
use crate::support::{Fault, Probe, Work, policy, ran, refused};

#[tokio::test(start_paused = true)]
async fn a_result_that_is_given_up_is_in_doubt_under_both() {
    const FOR_TOO_LONG: Duration = Duration::from_secs(10);
    let policy = Policy {
        keep_for: Duration::from_secs(2),
        ..policy()
    };
    let attempt = async |execution: Execution| {
        let said = format!("attempt {}", execution.attempt());
        Response::new(http::StatusCode::OK, said).into()
    };
    for other in 0..3 {
        let store = Arc::new(Probe::default());
        let nodes = all(&store).await;
        let failing = [Fault::LostBefore, Fault::LostBefore];
        store.completions.fail_next(failing);
        let hanging = Fault::SlowLost(FOR_TOO_LONG);
        store.completions.fail_next([hanging]);

        let given_up = nodes[1].once("key", &policy, &Work::new()).await;

        assert_eq!(refused(&given_up), Reason::NotStored, "{other}");
        // What it left behind is for the next attempt to look at.
        let call = nodes[other].call("key", "the same", &policy);
        let answer = nodes[other].engine.once(call, attempt).await;
        assert_eq!(ran(&answer), "attempt 2", "{other}");
    }
}

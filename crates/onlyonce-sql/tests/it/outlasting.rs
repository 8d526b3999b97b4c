//! A handler whose transaction lasts longer than its lease, under an engine that renews, while
//! another process waits for it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::engine::Who;
use onlyonce_core::policy::Duplicate;
use onlyonce_core::{
    Answer, Engine, Execution, Fingerprint, Key, OnLapse, Policy, Response, Store,
};

/// Three leases, so that several renewals meet the transaction.
pub(crate) const TRANSACTION: Duration = Duration::from_secs(3);
const LEASE: Duration = Duration::from_secs(1);

/// Runs `work` on `here` while `there` waits: it runs once, never counts as lost, and both get
/// what it stored.
pub(crate) async fn runs_once<F>(
    here: Arc<dyn Store>,
    there: Arc<dyn Store>,
    work: impl FnOnce(Execution) -> F + Send + 'static,
) where
    F: Future<Output = Arc<Response>> + Send + 'static,
{
    let (here, there) = (
        Engine::open(here).await.unwrap(),
        Engine::open(there).await.unwrap(),
    );
    let policy = Arc::new(Policy {
        lease_for: LEASE,
        on_lapse: OnLapse::Rerun,
        duplicate: Duplicate::Wait(10 * TRANSACTION),
        ..Policy::default()
    });
    let call = |engine: &Engine| {
        let key = Key::new("order-7-of-alice", &policy.key).unwrap();
        let fingerprint = Fingerprint::new(Fingerprint::RECIPE, [1; 32]);
        let who = Who::doing("order");
        engine.call(&engine.scope(), &key, fingerprint, &policy, who)
    };
    let (starts, started) = tokio::sync::oneshot::channel();
    let holder = here.once(call(&here), async move |execution: Execution| {
        starts.send(()).unwrap();
        let response = work(execution.clone()).await;
        assert!(!execution.is_lost(), "its transaction was alive");
        Response::clone(&response).into()
    });
    let waiter = async {
        started.await.unwrap();
        let again = there.once(call(&there), async |_| {
            Response::new(StatusCode::OK, "it ran again").into()
        });
        again.await
    };

    let (ran, waited) = tokio::join!(holder, waiter);

    let Answer::Ran { response, .. } = ran else {
        panic!("it did not run: {ran:?}");
    };
    let Answer::Replayed(replay) = waited else {
        panic!("not replayed: {waited:?}");
    };
    assert_eq!(response.body, "inside");
    assert_eq!(replay.response.body, "inside");
}

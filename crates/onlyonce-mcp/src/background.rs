//! Calls in doubt that nobody retries: what lapsed is asked about by the id of its operation, the one thing
//! that a record keeps and the server knows. What happened gets its answer; nothing is run here.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use onlyonce_core::engine::settler::Settler;
use onlyonce_core::{Engine, Finding, Policy};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::rules::{Background, Rules};
use crate::session::Session;
use crate::verify::Verify;

/// Asks a server about the operation of this id, as this says.
pub(crate) type Ask = Arc<dyn Fn(Verify, String) -> BoxFuture<'static, Finding> + Send + Sync>;

/// Everything that is settled for one server.
pub(crate) struct Settling {
    background: Background,
    settlers: Vec<Settler>,
}

impl Settling {
    /// What these rules want settled; nothing if that is nothing.
    pub(crate) fn of(engine: &Engine, rules: &Rules, policy: &Policy, ask: &Ask) -> Option<Self> {
        let background = rules.background?;
        let mut policy = policy.clone();
        if let Some(derive) = &rules.derive {
            // A record does not tell whether its key was made up: the answer to a guess is not kept for
            // longer than that guess counts. One to a key that was sent is kept as long as its record.
            policy.keep_for = policy.keep_for.min(derive.within);
        }
        let askable = rules.reconcile.iter().filter(|it| it.is_by_operation());
        let settlers = askable.map(|verify| {
            let (ask, verify) = (Arc::clone(ask), verify.clone());
            let tool = rules.operation(verify.tool());
            Settler::new(engine, tool, &policy, background.every, move |unsettled| {
                ask(verify.clone(), unsettled.operation().to_string())
            })
        });
        let settlers: Vec<Settler> = settlers.collect();
        (!settlers.is_empty()).then_some(Self {
            background,
            settlers,
        })
    }

    /// Looks for at most this long at each call.
    pub(crate) fn within(mut self, within: Duration) -> Self {
        let settlers = self.settlers.into_iter();
        self.settlers = settlers.map(|it| it.within(within)).collect();
        self
    }

    /// Looks again and again until it is told to stop; `rest` follows each time.
    pub(crate) async fn run(mut self, stop: &CancellationToken, rest: impl Fn()) {
        let first = self.settlers.iter().map(Settler::first).max();
        let mut pause = first.unwrap_or_default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            for settler in &mut self.settlers {
                if stop.is_cancelled() {
                    break;
                }
                if let Err(error) = settler.round().await {
                    (self.background.failed)(&error);
                }
            }
            rest();
            pause = self.background.every;
        }
    }
}

/// A question that is not waited for any longer once all is to stop.
pub(crate) async fn until(
    stop: &CancellationToken,
    asking: impl Future<Output = Finding>,
) -> Finding {
    tokio::select! {
        biased;
        () = stop.cancelled() => Finding::CannotTell,
        finding = asking => finding,
    }
}

/// The background of a session whose client is the only one: it asks the client's own server, from when
/// client and server have agreed on a session until it is ended or dropped.
pub(crate) struct OfSession {
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl OfSession {
    /// Nothing where the rules want nothing settled.
    pub(crate) fn start(session: &Arc<Session>) -> Option<Self> {
        let stop = CancellationToken::new();
        let ask: Ask = {
            let (session, stop) = (Arc::clone(session), stop.clone());
            Arc::new(move |verify, operation| {
                let (session, stop) = (Arc::clone(&session), stop.clone());
                Box::pin(async move { until(&stop, session.look_at(&operation, &verify)).await })
            })
        };
        let settling = session.settling(&ask)?;
        let (begun, stopped) = (session.begun(), stop.clone());
        let task = tokio::spawn(async move {
            tokio::select! {
                biased;
                () = stopped.cancelled() => return,
                () = begun.cancelled() => {}
            }
            settling.run(&stopped, || {}).await;
        });
        let stop = stop.drop_guard();
        Some(Self { stop, task })
    }

    /// Returns when what it had claimed is given back.
    pub(crate) async fn end(self) {
        drop(self.stop);
        // It does not panic, and nothing follows if it did.
        drop(self.task.await);
    }
}

//! Stands between an engine and its store, and writes every verb down: before it is sent, and
//! when its reply is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce_core::operate::Operate;
use onlyonce_core::{
    Claim, Claimed, Completed, Lease, Meta, Origin, Record, Release, Released, Renewed, Response,
    Slot, State, Store, StoreError, Token, async_trait,
};

use super::gate::Gate;
use super::log::{Ask, CallId, LogWriter, PANICKED, Reply, Seen, SeenState, Short, What};

pub(crate) struct Watched {
    store: Arc<dyn Store>,
    log: Arc<LogWriter>,
    gate: Arc<Gate>,
    verbs: AtomicU64,
}

impl Watched {
    pub(crate) fn new(store: Arc<dyn Store>, log: Arc<LogWriter>, gate: Arc<Gate>) -> Self {
        let verbs = AtomicU64::new(0);
        Self {
            store,
            log,
            gate,
            verbs,
        }
    }

    async fn watch<T>(
        &self,
        token: &Token,
        ask: Ask,
        verb: impl Future<Output = Result<T, StoreError>> + Send,
        reply: impl FnOnce(&T) -> Reply,
    ) -> Result<T, StoreError> {
        let number = self.verbs.fetch_add(1, Ordering::Relaxed);
        self.log.note(What::Sent {
            verb: number,
            token: Short::of(token),
            ask,
        });
        self.gate.pass().await;
        let replied = verb.await;
        self.gate.pass().await;
        let reply = replied.as_ref().map_or(Reply::Failed, reply);
        self.log.note(What::Replied {
            verb: number,
            reply,
        });
        replied
    }
}

#[async_trait]
impl Store for Watched {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let Some(call) = call_of(&claim.meta) else {
            return self.store.claim(claim).await;
        };
        let verb = self.store.claim(claim);
        self.watch(
            &claim.token,
            Ask::Claim { call },
            verb,
            |claimed| match claimed {
                Claimed::Granted { lease, overtook } => Reply::Granted {
                    attempt: lease.attempt,
                    overtook: overtook.as_ref().and_then(|it| call_of(&it.meta)),
                },
                Claimed::Taken(record) => Reply::Taken(seen(record)),
                Claimed::Dead => Reply::Dead,
            },
        )
        .await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        let verb = self.store.renew(lease, lease_for);
        self.watch(&lease.token, Ask::Renew, verb, |renewed| match renewed {
            Renewed::Kept => Reply::Kept,
            Renewed::Lost => Reply::Lost,
            Renewed::Busy => Reply::Busy,
        })
        .await
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let ask = Ask::Complete {
            said: said(response),
            keep: millis(keep_for),
        };
        let verb = self.store.complete(lease, response, keep_for);
        self.watch(&lease.token, ask, verb, |completed| match completed {
            Completed::Stored(_) => Reply::Stored,
            Completed::Found(record) => Reply::Found(seen(record)),
            Completed::Absent => Reply::Absent,
        })
        .await
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        let ask = match why {
            Release::NotRun => Ask::GiveBack,
            Release::Unknown => Ask::Doubt,
        };
        let verb = self.store.release(lease, why);
        self.watch(&lease.token, ask, verb, |released| match released {
            Released::Ended => Reply::Over,
            Released::Found(record) => Reply::Found(seen(record)),
        })
        .await
    }

    /// A wait changes nothing and tells nothing: it is not worth a line.
    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        self.gate.pass().await;
        let settled = self.store.settled(slot, seen, at_most).await;
        self.gate.pass().await;
        settled
    }

    fn operate(&self) -> Option<&dyn Operate> {
        self.store.operate()
    }
}

/// What a response says, for the log.
pub(crate) fn said(response: &Response) -> String {
    match response.origin {
        Origin::Handler => String::from_utf8_lossy(&response.body).into_owned(),
        Origin::Panicked => PANICKED.to_owned(),
        Origin::TooLarge => "too large".to_owned(),
    }
}

/// What payload a fingerprint stands for.
pub(crate) fn payload_of(record: &Record) -> u8 {
    record.fingerprint.digest()[0]
}

fn seen(record: &Record) -> Seen {
    Seen {
        token: Short::of(&record.token),
        payload: payload_of(record),
        call: call_of(&record.meta),
        state: match &record.state {
            State::Pending { lease_left } => SeenState::Pending(millis(*lease_left)),
            State::Done(response) | State::Failed(response) => SeenState::Finished(said(response)),
            State::Unknown => SeenState::Unknown,
        },
    }
}

fn call_of(meta: &Meta) -> Option<CallId> {
    meta.trace.as_deref()?.parse().ok()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

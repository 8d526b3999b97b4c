//! What goes into the engine and what comes out of it.

use std::sync::Arc;
use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::key::{Hint, Key};
use crate::policy::Policy;
use crate::record::{Meta, Replay, Token};
use crate::refusal::Refusal;
use crate::response::Response;
use crate::slot::Slot;
use crate::store::{Claim, Receipt};

use super::execution::Execution;
use super::finish::Held;

/// One keyed call: where, what, under which rules.
#[derive(Clone, Debug)]
pub struct Call {
    pub(super) slot: Slot,
    pub(super) key: Key,
    pub(super) fingerprint: Fingerprint,
    pub(super) policy: Arc<Policy>,
    pub(super) keep_for: Duration,
    pub(super) meta: Arc<Meta>,
    /// The same under the former secret, while the secret is rotated.
    pub(super) former: Option<Arc<Call>>,
    pub(super) intake: Option<Arc<str>>,
    pub(super) route: Option<Arc<str>>,
    /// When it came, on the engine's clock.
    pub(super) began: Duration,
}

/// Who calls, and what: for people, and for telling unverified credentials apart.
#[derive(Clone, Debug)]
pub struct Who {
    /// The route or job.
    pub operation: Arc<str>,
    /// Who asks, where that is known and no secret.
    pub actor: Option<Arc<str>>,
    /// The trace of this request.
    pub trace: Option<Arc<str>>,
    /// A keyed digest of a credential that was not verified.
    pub credential: Option<[u8; 32]>,
    /// The value of the path parameter in its scope, such as an intake's name: for metrics.
    pub intake: Option<Arc<str>>,
    /// The operation, where its name is not a path that the client chose: for metrics.
    pub route: Option<Arc<str>>,
}

impl Who {
    /// Nobody in particular, doing `operation`.
    pub fn doing(operation: impl Into<Arc<str>>) -> Self {
        let operation = operation.into();
        Self {
            route: Some(Arc::clone(&operation)),
            operation,
            actor: None,
            trace: None,
            credential: None,
            intake: None,
        }
    }

    pub(super) fn meta(self, hint: Hint, holder: &Arc<str>) -> Meta {
        Meta {
            hint,
            operation: self.operation,
            actor: self.actor,
            holder: Arc::clone(holder),
            trace: self.trace,
            credential: self.credential,
        }
    }
}

impl Call {
    pub(super) fn new(
        slot: Slot,
        key: &Key,
        fingerprint: Fingerprint,
        policy: &Arc<Policy>,
        names: (Option<Arc<str>>, Option<Arc<str>>),
        meta: Meta,
        began: Duration,
    ) -> Self {
        let (intake, route) = names;
        let policy = if policy.is_bounded() {
            Arc::clone(policy)
        } else {
            Arc::new(Policy::clone(policy).bounded())
        };
        Self {
            slot,
            key: key.clone(),
            fingerprint,
            keep_for: policy.keep_for,
            policy,
            meta: Arc::new(meta),
            former: None,
            intake,
            route,
            began,
        }
    }

    /// Keeps the answer this long instead of what the policy says.
    #[must_use]
    pub fn keep_for(mut self, keep_for: Duration) -> Self {
        self.keep_for = keep_for;
        self
    }

    /// The same call as [`Engine::former`](crate::Engine::former) makes it: claimed before this one.
    #[must_use]
    pub fn after(mut self, former: Self) -> Self {
        self.former = Some(Arc::new(former));
        self
    }

    /// Where its record lives.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(super) fn claim(&self, token: Token) -> Claim {
        Claim {
            slot: self.slot,
            fingerprint: self.fingerprint,
            token,
            on_lapse: self.policy.on_lapse,
            lease_for: self.policy.lease_for,
            keep_for: self.keep_for,
            meta: Arc::clone(&self.meta),
        }
    }
}

/// The engine's answer before the handler.
pub enum Verdict {
    /// Run it without protection: the store is down and the policy is open.
    PassThrough(Execution),
    /// Run it, then [`finish`](crate::Engine::finish).
    Execute(Held),
    /// It ran before: this was the answer.
    Replay(Replay),
    /// No.
    Refuse(Refusal),
}

/// What the handler made of it.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It ran to its end with this answer, good or bad.
    Finished(Arc<Response>),
    /// Nothing happened: the slot is given back.
    NotRun,
    /// Something may have happened: `on_lapse` says what follows.
    Unknown,
}

impl From<Response> for Outcome {
    fn from(response: Response) -> Self {
        Self::Finished(Arc::new(response))
    }
}

/// What a caller gets.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The handler ran for this call.
    Ran {
        /// What it said.
        response: Arc<Response>,
        /// Until when that is stored; nothing if it is not.
        receipt: Option<Receipt>,
        /// Whether it is not stored and not run again either: its outcome is in doubt.
        in_doubt: bool,
        /// Whether it is what the handler returned. A handler that completed the record itself
        /// is answered from the record, whatever it returned.
        as_returned: bool,
    },
    /// The handler ran for another call with the same key.
    Replayed(Replay),
    /// It was not run for this call.
    Refused(Refusal),
}

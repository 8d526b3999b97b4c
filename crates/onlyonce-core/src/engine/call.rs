//! What goes into the engine and what comes out of it.

use std::sync::Arc;
use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::key::{Hint, Key};
use crate::policy::Policy;
use crate::record::{Meta, OnLapse, Replay, Token};
use crate::refusal::Refusal;
use crate::response::Response;
use crate::slot::Slot;
use crate::store::{Claim, Receipt};

use super::execution::Execution;
use super::finish::Held;
use super::reconcile::Reconcile;

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
    /// The attempt of the claim under the former secret that this one is made inside of; else 1.
    pub(super) attempt_min: u32,
    /// How to find out whether an earlier attempt happened.
    pub(super) reconcile: Option<Reconcile>,
    /// Whether it is found out before anything runs again, here or by the call inside of it: then a
    /// lapsed claim may be taken over, though nothing is run again unseen.
    pub(super) is_reconciled: bool,
    pub(super) intake: Option<Arc<str>>,
    pub(super) route: Option<Arc<str>>,
    /// When it came, on the engine's clock.
    pub(super) began: Duration,
    /// Whether it is part of an execution, whose place it shares and with which it may come to its
    /// end.
    pub(super) is_step: bool,
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
            attempt_min: 1,
            reconcile: None,
            is_reconciled: false,
            intake,
            route,
            began,
            is_step: false,
        }
    }

    /// Keeps the answer this long instead of what the policy says.
    #[must_use]
    pub fn keep_for(mut self, keep_for: Duration) -> Self {
        self.keep_for = keep_for;
        self
    }

    /// Finds out whether an earlier attempt happened before it runs again. The policy's `on_lapse`
    /// counts no more: what is in doubt is neither run again unseen nor held for an operator, but
    /// asked about. Every process that may take the call over must be told the same.
    #[must_use]
    pub fn reconcile(mut self, reconcile: Reconcile) -> Self {
        self.reconcile = Some(reconcile);
        self.seen_before_run()
    }

    fn seen_before_run(mut self) -> Self {
        self.is_reconciled = true;
        if self.policy.on_lapse != OnLapse::Hold {
            // An answer that is not stored leaves doubt as under `hold`, and the doubt is looked into.
            Arc::make_mut(&mut self.policy).on_lapse = OnLapse::Hold;
        }
        self
    }

    /// Whether something may have happened before this execution, and it is found out here.
    pub(super) fn looks_first(&self, execution: &Execution) -> bool {
        self.reconcile.is_some() && execution.lease().is_some() && execution.attempt() > 1
    }

    /// What to do with a lapsed claim at this slot.
    pub(super) fn on_lapse(&self) -> OnLapse {
        if self.is_reconciled {
            OnLapse::Rerun
        } else {
            self.policy.on_lapse
        }
    }

    /// Whether a claim of it must be found after a power cut, before anything runs: so that it is held, or
    /// looked into, and does not run again unseen (docs/protocol.md#rule-43). What is looked into is under the
    /// policy `hold`, whatever its claims say of a lapse.
    fn must_last(&self) -> bool {
        self.policy.on_lapse == OnLapse::Hold
    }

    /// The call under the former secret, as it goes around this one: it looks for nothing itself.
    pub(super) fn around(&self) -> Option<Self> {
        let mut around = Self::clone(self.former.as_ref()?);
        around.reconcile = None;
        Some(if self.is_reconciled {
            around.seen_before_run()
        } else {
            around
        })
    }

    /// The same call as [`Engine::former`](crate::Engine::former) makes it: claimed before this one.
    #[must_use]
    pub fn after(mut self, former: Self) -> Self {
        self.former = Some(Arc::new(former));
        self
    }

    /// The same inside of an `attempt`th claim under the former secret.
    pub(super) fn inside(self: Arc<Self>, attempt: u32) -> Arc<Self> {
        if attempt <= self.attempt_min {
            return self;
        }
        Arc::new(Self {
            attempt_min: attempt,
            ..Self::clone(&self)
        })
    }

    /// The slot that ids are derived from. While the secret is rotated it is the former one's, which
    /// processes that do not know the new one yet derive from as well.
    pub(super) fn slot_outside(&self) -> Slot {
        self.former.as_ref().map_or(self.slot, |former| former.slot)
    }

    /// Where its record lives.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// What is asked of the store for it, as `token`.
    pub fn claim(&self, token: Token) -> Claim {
        Claim {
            slot: self.slot,
            fingerprint: self.fingerprint,
            token,
            on_lapse: self.on_lapse(),
            must_last: self.must_last(),
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

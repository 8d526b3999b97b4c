//! What a handler gets to know and to say about its own execution.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::Clock;
use crate::derived::DerivedId;
use crate::event;
use crate::key::Key;
use crate::lock;
use crate::policy::Fate;
use crate::record::OnLapse;
use crate::slot::Slot;
use crate::store::Lease;

use super::Engine;
use super::call::Call;
use super::flight::{Flight, Phase};

/// Handed to the handler: its lease, key and attempt, and a say in what is stored.
///
/// With the lease, a handler can complete the record inside its own database transaction; the
/// engine then finds it complete already.
#[derive(Clone)]
pub struct Execution {
    key: Key,
    shared: Arc<Shared>,
}

struct Shared {
    /// What ids for the world outside are derived from.
    slot: Slot,
    /// No attempt before this one may be forgotten, though our lease may be the first of its slot.
    attempt_min: u32,
    /// What it runs under; nothing when running without protection.
    protection: Option<Protection>,
    wishes: Mutex<Wishes>,
    /// The names of its steps so far.
    steps: Mutex<Vec<String>>,
}

struct Protection {
    engine: Engine,
    call: Arc<Call>,
    lease: Lease,
    flight: Arc<Flight>,
    /// When the slot became ours, on this clock.
    since: Duration,
    clock: Arc<dyn Clock>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Wishes {
    /// What is to become of the key, where the handler knows better than the policy by its status.
    pub(super) fate: Option<Fate>,
    /// Whether it may still take effect, though it has no outcome.
    pub(super) may_go_on: bool,
    pub(super) keep_for: Option<Duration>,
    pub(super) resource: Option<String>,
    /// The size of an answer that is too large to store.
    pub(super) bytes: Option<usize>,
}

impl Execution {
    pub(super) fn new(
        engine: &Engine,
        call: &Arc<Call>,
        lease: Lease,
        flight: &Arc<Flight>,
        since: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let protection = Protection {
            engine: engine.clone(),
            call: Arc::clone(call),
            lease,
            flight: Arc::clone(flight),
            since,
            clock: Arc::clone(clock),
        };
        Self::under(Some(protection), call)
    }

    pub(super) fn unprotected(call: &Call) -> Self {
        Self::under(None, call)
    }

    fn under(protection: Option<Protection>, call: &Call) -> Self {
        Self {
            key: call.key.clone(),
            shared: Arc::new(Shared {
                slot: call.slot_outside(),
                attempt_min: call.attempt_min,
                protection,
                wishes: Mutex::default(),
                steps: Mutex::default(),
            }),
        }
    }

    fn protection(&self) -> Option<&Protection> {
        self.shared.protection.as_ref()
    }

    /// The key this runs under.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The lease; nothing when running without protection.
    pub fn lease(&self) -> Option<&Lease> {
        self.protection().map(|protection| &protection.lease)
    }

    /// How logs and events name the key: a harmless start of it and of its digest. Nothing when
    /// running without protection.
    pub fn label(&self) -> Option<impl fmt::Display> {
        let lease = self.lease()?;
        Some(event::label(self.key.hint(), lease.slot))
    }

    /// When the slot became ours; nothing when running without protection.
    pub(super) fn since(&self) -> Option<Duration> {
        self.protection().map(|protection| protection.since)
    }

    /// How long this has run until now: the [`took`](crate::Response::took) of an answer that the
    /// handler stores itself. Zero when running without protection.
    pub fn took(&self) -> Duration {
        self.protection()
            .map_or(Duration::ZERO, |it| it.clock.now().saturating_sub(it.since))
    }

    /// 1, or more if an earlier attempt lapsed: then check what it left behind.
    pub fn attempt(&self) -> u32 {
        let attempt = self.lease().map_or(1, |lease| lease.attempt);
        attempt.max(self.shared.attempt_min)
    }

    /// The id of this operation for the services it calls: the same for every attempt, in every
    /// process on the store. The gateway sends it as `Onlyonce-Operation`.
    ///
    /// It is derived from the slot, so it changes with the slot secret: while that is rotated it is
    /// the one of the former secret, and another one once processes have the new secret alone.
    pub fn operation(&self) -> DerivedId {
        DerivedId::of_operation(&self.shared.slot)
    }

    /// A key for one of the calls this handler makes to services that take idempotency keys: as
    /// stable as [`operation`](Self::operation), and another one for each `name`.
    ///
    /// ```
    /// # use onlyonce_core::Execution;
    /// fn charge_key(execution: &Execution) -> String {
    ///     execution.downstream("charge").to_string()
    /// }
    /// ```
    pub fn downstream(&self, name: &str) -> DerivedId {
        DerivedId::of_downstream(&self.shared.slot, name)
    }

    /// What follows if its outcome stays unknown; nothing when running without protection.
    pub fn on_lapse(&self) -> Option<OnLapse> {
        self.protection()
            .map(|protection| protection.call.policy.on_lapse)
    }

    /// Whether it is found out, before anything runs again, what became of it, if its outcome stays
    /// unknown.
    pub fn is_reconciled(&self) -> bool {
        self.protection()
            .is_some_and(|protection| protection.call.is_reconciled)
    }

    /// Whether another process has taken over meanwhile. What this one answers will not count.
    pub fn is_lost(&self) -> bool {
        self.protection()
            .is_some_and(|protection| protection.flight.is_lost())
    }

    /// Whose it is and its lease, for its steps; nothing when running without protection.
    pub(super) fn origin(&self) -> Option<(&Engine, &Call, &Lease)> {
        let Protection {
            engine,
            call,
            lease,
            ..
        } = self.protection()?;
        Some((engine, call, lease))
    }

    /// Notes the name of a step; returns whether it is the first of that name.
    pub(super) fn begin_step(&self, name: &str) -> bool {
        let mut steps = lock(&self.shared.steps);
        let is_new = steps.iter().all(|step| step != name);
        if is_new {
            steps.push(name.to_owned());
        }
        is_new
    }

    /// What it runs on; nothing when running without protection.
    pub(super) fn flight(&self) -> Option<Arc<Flight>> {
        let protection = self.protection()?;
        Some(Arc::clone(&protection.flight))
    }

    /// Tells those that wait that it ran and that the store does not take the result yet.
    pub(super) fn stall(&self) {
        if let Some(protection) = self.protection() {
            protection.flight.enter(Phase::Stalled);
        }
    }

    /// Keeps its answer from those that wait for it here: each tries for itself.
    pub(super) fn end_alone(&self) {
        if let Some(protection) = self.protection() {
            protection.flight.end_alone();
        }
    }

    /// Does not store this answer; the next request with the key runs again, under any policy.
    pub fn do_not_store(&self) {
        lock(&self.shared.wishes).fate = Some(Fate::Released);
    }

    /// Does not store this answer, and leaves the outcome in doubt: what follows is for the policy
    /// to say, as after a crash.
    pub fn leave_in_doubt(&self) {
        lock(&self.shared.wishes).fate = Some(Fate::InDoubt);
    }

    /// Says that what was begun elsewhere may still take effect after this has ended, as after a time-out.
    /// If its outcome is unknown and is to be found out, nobody looks before its lease has passed: that
    /// it did not happen yet would be no sign that it will not.
    pub fn may_go_on(&self) {
        lock(&self.shared.wishes).may_go_on = true;
    }

    /// What is to become of its key, as far as it was said until now: [`Fate::Released`] when
    /// running without protection.
    pub fn fate(&self) -> Fate {
        if self.protection().is_none() {
            return Fate::Released;
        }
        lock(&self.shared.wishes).fate.unwrap_or(Fate::Stored)
    }

    /// Keeps this answer for another time than the policy's.
    pub fn keep_for(&self, keep_for: Duration) {
        lock(&self.shared.wishes).keep_for = Some(keep_for);
    }

    /// Names what was made, for audits and operators.
    pub fn made(&self, resource: impl Into<String>) {
        lock(&self.shared.wishes).resource = Some(resource.into());
    }

    /// Says how large an answer was that is too large to store, for logs.
    pub fn too_large(&self, bytes: usize) {
        lock(&self.shared.wishes).bytes = Some(bytes);
    }

    /// Decides what becomes of the key, whatever was said before.
    pub(super) fn wish(&self, fate: Fate) {
        lock(&self.shared.wishes).fate = Some(fate);
    }

    /// Stores its answer whatever the policy says of its status, unless the handler has said otherwise.
    pub(super) fn store_unless_said(&self) {
        lock(&self.shared.wishes).fate.get_or_insert(Fate::Stored);
    }

    pub(super) fn wishes(&self) -> Wishes {
        lock(&self.shared.wishes).clone()
    }
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution")
            .field("key", &self.key)
            .field("lease", &self.lease())
            .finish_non_exhaustive()
    }
}

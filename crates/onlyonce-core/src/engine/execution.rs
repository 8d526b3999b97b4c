//! What a handler gets to know and to say about its own execution.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::Clock;
use crate::event;
use crate::key::Key;
use crate::lock;
use crate::policy::Fate;
use crate::record::OnLapse;
use crate::store::Lease;

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
    /// What it runs under; nothing when running without protection.
    protection: Option<Protection>,
    wishes: Mutex<Wishes>,
}

struct Protection {
    lease: Lease,
    flight: Arc<Flight>,
    on_lapse: OnLapse,
    /// When the slot became ours, on this clock.
    since: Duration,
    clock: Arc<dyn Clock>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Wishes {
    /// What is to become of the key, where the handler knows better than the policy by its status.
    pub(super) fate: Option<Fate>,
    pub(super) keep_for: Option<Duration>,
    pub(super) resource: Option<String>,
    /// The size of an answer that is too large to store.
    pub(super) bytes: Option<usize>,
}

impl Execution {
    pub(super) fn new(
        call: &Call,
        lease: Lease,
        flight: &Arc<Flight>,
        since: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let protection = Protection {
            lease,
            flight: Arc::clone(flight),
            on_lapse: call.policy.on_lapse,
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
                protection,
                wishes: Mutex::default(),
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
        self.lease().map_or(1, |lease| lease.attempt)
    }

    /// What follows if its outcome stays unknown; nothing when running without protection.
    pub fn on_lapse(&self) -> Option<OnLapse> {
        self.protection().map(|protection| protection.on_lapse)
    }

    /// Whether another process has taken over meanwhile. What this one answers will not count.
    pub fn is_lost(&self) -> bool {
        self.protection()
            .is_some_and(|protection| protection.flight.is_lost())
    }

    /// What it runs on; nothing when running without protection.
    pub(super) fn flight(&self) -> Option<Arc<Flight>> {
        let protection = self.protection()?;
        Some(Arc::clone(&protection.flight))
    }

    /// Tells who waits that it ran and that the store does not take the result yet.
    pub(super) fn stall(&self) {
        if let Some(protection) = self.protection() {
            protection.flight.enter(Phase::Stalled);
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
